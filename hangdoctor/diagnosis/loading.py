"""Pass: a slow rank that most samples found in its data loader: that is where it loses its time, and
its node need not be compared with others.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from ..model.capture import Frame
from ..stacks.user_code import is_users
from .case import Case
from .draft import Draft
from .findings import Doing
from .own_samples import stacks_of
from .view import RankView

_LOADER = "torch/utils/data/dataloader.py"


def run(case: Case, draft: Draft) -> None:
    """Say of each slow rank that it waits for its loader."""
    views = {view.rank: view for view in case.alive}
    for finding in draft.findings:
        slow = [views[rank] for rank in finding.ranks if rank in views]
        if finding.kind == "slow" and slow and all(map(_loads, slow)):
            finding.doing = Doing("loading")


def _loads(view: RankView) -> bool:
    stacks = [thread.frames for thread in stacks_of(view)]
    return 2 * sum(map(_waits_for_workers, stacks)) > len(stacks)


def _waits_for_workers(frames: Sequence[Frame]) -> bool:
    """Whether the loader is in it, and no code of the user's below: a loader without workers runs the
    data set in the rank itself.
    """
    inside = list(takewhile(lambda frame: not frame.file.endswith(_LOADER), frames))
    return len(inside) < len(frames) and not any(map(is_users, inside))
