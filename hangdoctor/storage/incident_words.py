"""What an incident can be found by: a bundle's verdict as one small entry, and its words.

Words are in lower case and without underscores: `all_reduce` is the two words `all reduce`, which
match one after the other. Between two texts is `GAP`, so that no match goes over it.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from ..errors import BadInput
from ..files import read_regular
from ..model.diagnosis import Cause, Job, StackGroup, Wait
from ..text.ranges import format_ranks
from . import bundle
from .incidents import hang_of

MAX_WORDS = 32 << 10  # characters of one incident
_MAX_RANKS = 1024  # culprits that have a word of their own
_MAX_DIAGNOSIS = 64 << 20
_WORD = re.compile(r"[^\W_]+")
_RANK = re.compile(r"\branks?[\s_#]*(?=\d)", re.IGNORECASE)
_KEY = 16  # hexadecimal digits
GAP = "0gap0"
_DAMAGED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Entry(Struct):
    """One incident of any job. `at` is the time of day of its capture, `place` the folder of its
    job, `nodes` those of its culprits.
    """

    id: str
    bundle: str
    place: str
    job: str
    user: str
    at: float
    status: str
    script: str = ""
    kind: str = ""
    ranks: str = ""
    nodes: list[str] = []
    confidence: float = 0.0
    summary: str = ""
    hang: str = ""  # the same for all captures of one hang
    key: str = ""  # of the bundle's path, for addresses

    @property
    def folder(self) -> str:
        """Of its job; of a bundle that `dump` saved, where that was started."""
        parent = Path(self.bundle).parent
        return str(parent.parent if parent.name == "incidents" else parent)


class _Verdict(Struct):
    """The part of diagnosis.json that is searched."""

    status: str
    job: Job
    summary: str
    causes: list[Cause] = []
    waits: list[Wait] = []
    stacks: list[StackGroup] = []


class _Made(Struct):
    """The part of manifest.json that says when."""

    schema: str
    created: float


def read(path: Path, place: str) -> tuple[Entry, str]:
    """The entry of a bundle, and its words.

    Raises:
        BadInput: it cannot be read, or is not a bundle of this version.
    """
    try:
        made = msgspec.json.decode(
            read_regular(path / "manifest.json", bundle.MAX_MANIFEST), type=_Made
        )
        told = msgspec.json.decode(
            read_regular(path / "diagnosis.json", _MAX_DIAGNOSIS), type=_Verdict
        )
        owner = path.stat().st_uid
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error
    except _DAMAGED as error:
        raise BadInput(f"{path} is damaged: {str(error)[:200]}") from error
    if made.schema != bundle.BUNDLE_SCHEMA:
        raise BadInput(f"{path} is of format {made.schema[:80]}")
    entry = Entry(
        path.name,
        str(path),
        place,
        told.job.id,
        user_name(owner),
        at=made.created,
        status=told.status,
        script=told.job.script,
    )
    entry.summary = told.summary
    entry.key = hashlib.sha256(os.fsencode(path)).hexdigest()[:_KEY]
    if told.causes:
        first = told.causes[0]
        entry.kind, entry.ranks = first.kind, format_ranks(first.ranks)
        entry.confidence, entry.hang = first.confidence, hang_of(first, entry.ranks)
        every = (node for cause in told.causes for node in cause.nodes)
        entry.nodes = list(dict.fromkeys(every))
    return entry, _words(entry, told)


def user_name(uid: int) -> str:
    """The name of a user, its number where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _words(entry: Entry, told: _Verdict) -> str:
    """All words of an incident; the most important first, since the last may be cut off."""
    texts = [
        entry.status,
        entry.job,
        entry.place,
        entry.script,
        entry.user,
        *_of_causes(told.causes),
        told.summary,
    ]
    for wait in told.waits:
        texts += filter(None, (wait.on.group, wait.on.op))
    frames = {f"{f.name} {Path(f.file).name}": None for s in told.stacks for f in s.frames}
    return f" {GAP} ".join(map(split, [*texts, *frames]))[:MAX_WORDS]


def _of_causes(causes: Iterable[Cause]) -> Iterator[str]:
    ranks = sorted({rank for cause in causes for rank in cause.ranks})
    yield from (f"rank{rank}" for rank in ranks[:_MAX_RANKS])
    for cause in causes:
        where = cause.where
        yield from (cause.kind, *cause.nodes)
        yield from filter(None, (where.op, where.group, where.phase, where.frame, cause.summary))


def split(text: str) -> str:
    """The words of a text with one blank between them; `rank 5` is one word."""
    return " ".join(_WORD.findall(_RANK.sub("rank", text.lower())))


def wanted(words: Iterable[str]) -> list[tuple[str, bool]]:
    """What a person looks for: (words that follow one another, whether the last goes on)."""
    joined = _RANK.sub("rank", " ".join(words))
    asked = [(split(part), part.endswith("*")) for part in joined.split()]
    return [(phrase, open_end) for phrase, open_end in asked if phrase]
