"""Jobs that somebody else wrote, who had the README and the docs alone: what the tool said of them the first time.

Each set was made, and its true causes written down and hashed, before the tool was asked. What it
missed was mended afterwards, so that no set can be used twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Asked:
    """One set of jobs; the rest of `cases` is "could not tell", or the right rank with another cause."""

    evidence: str
    made: str
    cases: int
    exact: int
    wrong: int  # a rank was named that only suffered, or a hang called otherwise


_ENDED, _LOG = "ended jobs, black boxes", "ended jobs, log alone"
_PLAIN, _RUN = "live jobs, unprepared", "live jobs, with `run`"
_PUBLIC = "public logs"
SETS = (
    Asked(_ENDED, "2026-11-22", 38, 31, 6),
    Asked(_ENDED, "2026-11-23", 20, 16, 1),
    Asked(_ENDED, "2026-11-23", 16, 15, 1),
    Asked(_ENDED, "2026-11-23", 16, 12, 0),
    Asked(_ENDED, "2026-11-23", 16, 10, 1),
    Asked(_ENDED, "2026-11-23", 20, 14, 2),
    Asked(_ENDED, "2026-11-23", 12, 9, 1),
    Asked(_ENDED, "2026-11-23", 16, 13, 1),
    Asked(_ENDED, "2026-11-23", 16, 11, 0),
    Asked(_ENDED, "2026-11-24", 16, 10, 2),
    Asked(_ENDED, "2026-11-24", 16, 11, 1),
    Asked(_ENDED, "2026-11-25", 18, 14, 2),
    Asked(_ENDED, "2026-11-25", 22, 12, 1),
    Asked(_ENDED, "2026-11-26", 14, 12, 1),
    Asked(_ENDED, "2026-11-26", 16, 12, 2),
    Asked(_ENDED, "2026-11-26", 17, 13, 1),
    Asked(_ENDED, "2026-11-26", 12, 9, 2),
    Asked(_ENDED, "2026-11-26", 12, 10, 0),
    Asked(_ENDED, "2026-11-26", 12, 10, 1),
    Asked(_ENDED, "2026-11-26", 12, 9, 0),
    Asked(_ENDED, "2026-11-26", 12, 11, 0),
    Asked(_ENDED, "2026-11-26", 12, 10, 1),
    Asked(_ENDED, "2026-11-26", 12, 12, 0),
    Asked(_ENDED, "2026-11-26", 12, 10, 1),
    Asked(_ENDED, "2026-11-26", 12, 10, 1),
    Asked(_ENDED, "2026-11-26", 12, 12, 0),
    Asked(_LOG, "2026-11-23", 6, 1, 0),
    Asked(_LOG, "2026-11-23", 16, 7, 2),
    Asked(_LOG, "2026-11-23", 20, 10, 0),
    Asked(_LOG, "2026-11-23", 16, 4, 0),
    Asked(_LOG, "2026-11-23", 20, 12, 1),
    Asked(_LOG, "2026-11-23", 12, 7, 1),
    Asked(_LOG, "2026-11-23", 16, 12, 1),
    Asked(_LOG, "2026-11-23", 16, 11, 1),
    Asked(_LOG, "2026-11-24", 16, 13, 0),
    Asked(_LOG, "2026-11-24", 16, 7, 1),
    Asked(_LOG, "2026-11-25", 18, 4, 0),
    Asked(_LOG, "2026-11-25", 22, 4, 0),
    Asked(_LOG, "2026-11-26", 15, 2, 0),
    Asked(_LOG, "2026-11-26", 17, 5, 0),
    Asked(_LOG, "2026-11-26", 16, 3, 0),
    Asked(_LOG, "2026-11-26", 12, 4, 1),
    Asked(_LOG, "2026-11-26", 12, 3, 0),
    Asked(_LOG, "2026-11-26", 12, 0, 0),
    Asked(_LOG, "2026-11-26", 12, 3, 0),
    Asked(_LOG, "2026-11-26", 12, 3, 1),
    Asked(_LOG, "2026-11-26", 12, 2, 1),
    Asked(_LOG, "2026-11-26", 12, 4, 0),
    Asked(_PLAIN, "2026-11-22", 19, 12, 5),
    Asked(_PLAIN, "2026-11-23", 16, 12, 1),
    Asked(_PLAIN, "2026-11-23", 12, 8, 1),
    Asked(_PLAIN, "2026-11-23", 14, 6, 2),
    Asked(_PLAIN, "2026-11-23", 16, 14, 1),
    Asked(_PLAIN, "2026-11-23", 20, 14, 2),
    Asked(_PLAIN, "2026-11-23", 12, 9, 2),
    Asked(_PLAIN, "2026-11-23", 16, 13, 2),
    Asked(_PLAIN, "2026-11-23", 16, 11, 1),
    Asked(_PLAIN, "2026-11-24", 16, 10, 1),
    Asked(_PLAIN, "2026-11-24", 16, 10, 1),
    Asked(_PLAIN, "2026-11-25", 18, 15, 1),
    Asked(_PLAIN, "2026-11-25", 19, 13, 1),
    Asked(_PLAIN, "2026-11-26", 15, 14, 0),
    Asked(_PLAIN, "2026-11-26", 18, 15, 1),
    Asked(_PLAIN, "2026-11-26", 17, 13, 1),
    Asked(_PLAIN, "2026-11-26", 12, 9, 1),
    Asked(_PLAIN, "2026-11-26", 12, 11, 0),
    Asked(_PLAIN, "2026-11-26", 12, 9, 1),
    Asked(_PLAIN, "2026-11-26", 12, 12, 0),
    Asked(_PLAIN, "2026-11-26", 12, 9, 0),
    Asked(_PLAIN, "2026-11-26", 12, 11, 1),
    Asked(_PLAIN, "2026-11-26", 12, 11, 1),
    Asked(_PLAIN, "2026-11-26", 12, 10, 2),
    Asked(_PLAIN, "2026-11-26", 12, 8, 1),
    Asked(_PLAIN, "2026-11-26", 12, 10, 2),
    Asked(_RUN, "2026-11-22", 19, 15, 2),
    Asked(_RUN, "2026-11-23", 16, 12, 0),
    Asked(_RUN, "2026-11-23", 12, 10, 0),
    Asked(_RUN, "2026-11-23", 14, 9, 2),
    Asked(_RUN, "2026-11-23", 16, 13, 2),
    Asked(_RUN, "2026-11-23", 20, 15, 1),
    Asked(_RUN, "2026-11-23", 12, 9, 1),
    Asked(_RUN, "2026-11-23", 16, 15, 0),
    Asked(_RUN, "2026-11-23", 16, 13, 1),
    Asked(_RUN, "2026-11-24", 16, 13, 2),
    Asked(_RUN, "2026-11-24", 16, 11, 1),
    Asked(_RUN, "2026-11-25", 18, 14, 2),
    Asked(_RUN, "2026-11-25", 16, 9, 2),
    Asked(_RUN, "2026-11-26", 14, 14, 0),
    Asked(_RUN, "2026-11-26", 18, 16, 0),
    Asked(_RUN, "2026-11-26", 18, 16, 2),
    Asked(_RUN, "2026-11-26", 12, 10, 2),
    Asked(_RUN, "2026-11-26", 12, 12, 0),
    Asked(_RUN, "2026-11-26", 12, 10, 1),
    Asked(_RUN, "2026-11-26", 12, 11, 0),
    Asked(_RUN, "2026-11-26", 12, 11, 0),
    Asked(_RUN, "2026-11-26", 12, 10, 1),
    Asked(_RUN, "2026-11-26", 12, 11, 0),
    Asked(_RUN, "2026-11-26", 12, 9, 2),
    Asked(_RUN, "2026-11-26", 12, 10, 0),
    Asked(_RUN, "2026-11-26", 12, 12, 0),
    Asked(_PUBLIC, "2026-11-22", 33, 22, 1),
    Asked(_PUBLIC, "2026-11-22", 27, 22, 1),
    Asked(_PUBLIC, "2026-11-23", 24, 14, 1),
    Asked(_PUBLIC, "2026-11-23", 30, 20, 0),
    Asked(_PUBLIC, "2026-11-24", 30, 21, 3),
    Asked(_PUBLIC, "2026-11-24", 30, 17, 1),
    Asked(_PUBLIC, "2026-11-25", 40, 23, 1),
    Asked(_PUBLIC, "2026-11-25", 36, 24, 0),
    Asked(_PUBLIC, "2026-11-26", 40, 26, 6),
    Asked(_PUBLIC, "2026-11-26", 40, 24, 2),
    Asked(_PUBLIC, "2026-11-26", 40, 26, 4),
    Asked(_PUBLIC, "2026-11-26", 40, 23, 3),
    Asked(_PUBLIC, "2026-11-26", 40, 29, 3),
    Asked(_PUBLIC, "2026-11-26", 40, 22, 7),
    Asked(_PUBLIC, "2026-11-26", 40, 23, 5),
    Asked(_PUBLIC, "2026-11-26", 40, 23, 2),
    Asked(_PUBLIC, "2026-11-26", 40, 26, 3),
    Asked(_PUBLIC, "2026-11-26", 40, 23, 3),
)
_HEAD = (
    "evidence",
    "made",
    "jobs",
    "exact",
    "right rank only, or could not tell",
    "a victim named, or wrong",
)


def section() -> Iterator[str]:
    """The lines of the section, without its title."""
    yield "Each set of jobs was written by somebody who had the README and the docs alone, with the true causes hashed before"
    yield "the tool was asked; first answers. Whoever wrote the second set of 20 had seen what the set before had shown. 3 to 8"
    yield "ranks each, with gloo: loops by hand, DDP, FSDP2, DTensor, pipelining, Lightning, transformers, Accelerate,"
    yield "DeepSpeed, JAX, mpi4py, Ray, plain multiprocessing. What a set missed was mended after it was counted. These are the"
    yield "figures to expect on a job of your own; the other sections are about the tool's own cases. From 2026-11-26 on,"
    yield "torch's own records are read of unprepared jobs."
    yield ""
    yield "| " + " | ".join(_HEAD) + " |"
    yield "| --- | --- |" + " ---: |" * (len(_HEAD) - 2)
    for one in SETS:
        found = (one.cases, f"{one.exact} ({one.exact / one.cases:.0%})".replace("%", " %"))
        rest = (one.cases - one.exact - one.wrong, one.wrong)
        yield "| " + " | ".join(map(str, (one.evidence, one.made, *found, *rest))) + " |"
    yield ""
    yield "Public logs are posts on issue trackers and forums, often cut, with the cause that their thread found or that the"
    yield "text shows. All but four of the last twelve were gathered from 30 to 38 sources each, other posts every time, without the"
    yield "tool; the last four are job logs, stacks and mails that public repositories keep, mostly without a thread, and from"
    yield "how many of these is not sure."
    yield 'Some logs alone do not hold the cause for anyone: they are in the column of "could not tell".'
    yield ""
