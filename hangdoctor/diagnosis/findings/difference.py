"""In one word, how a culprit's calls differ from those of ranks that run the same program."""

from __future__ import annotations

from ...model.diagnosis import Difference
from . import stories
from .stories import Apart

_OF_HOW: dict[str, Difference] = {
    "skipped": "skipped",
    "extra": "added",
    "swapped": "swapped",
    "group": "group",
}
_OF_FIELD: dict[str, Difference] = {
    "op": "operation",
    "root": "root",
    "reduce_op": "reduction",
    "dtype": "type",
    "shapes": "size",
    "members": "group",
    "order of groups": "group",
    "mesh shape": "group",
    "tag": "tag",
}
_OF_APART: dict[Apart, Difference] = {
    Apart.AHEAD: "skipped",
    Apart.BEHIND: "added",
    Apart.CALLED_ALONE: "added",
    Apart.OTHER_GROUP: "group",
    Apart.ROOTS: "root",
}


def difference(story: stories.Story) -> Difference | None:
    """The difference that a story tells of; None where it tells of none, or of one that has no
    name.
    """
    if isinstance(story, stories.Diverged):
        return _OF_HOW.get(story.how) or _of_other(story)
    if isinstance(story, stories.Disagrees):
        return next((_OF_FIELD[field] for field in story.fields), None)
    if isinstance(story, stories.InOther):
        return _OF_APART.get(story.how)
    if isinstance(story, stories.OtherPartners):
        return "peer"
    return None


def _of_other(story: stories.Diverged) -> Difference | None:
    """One call in the place of another one."""
    if story.how != "other" or story.mine is None or story.theirs is None:
        return None
    if story.mine.name != story.theirs.name:
        return "operation"
    return "root" if story.mine.peer is None else "peer"
