"""Jobs that somebody else wrote, who had the README and the docs alone: what the tool said of them the first time.

Each set was made, and its true causes written down and hashed, before the tool was asked. What it
missed was mended afterwards, so that no set can be used twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Asked(NamedTuple):
    """One set of jobs; the rest of `cases` is "could not tell", or the right rank with another cause."""

    cases: int
    exact: int
    wrong: int  # a rank was named that only suffered, or a hang called otherwise


_ENDED, _LOG = "ended jobs, black boxes", "ended jobs, log alone"
_PLAIN, _RUN = "live jobs, unprepared", "live jobs, with `run`"
_PUBLIC, _SHOWN = "public logs", "public logs, by what they show"
_WHOLE = "whole logs"
_OVER_BOXES = "jobs that ended by themselves, black boxes"
_OVER_BOTH = "jobs that ended by themselves, boxes and output"

# Of each evidence, by the day when they were made: sets as (cases, exact, wrong), the oldest first.
SETS: dict[str, dict[str, tuple[tuple[int, int, int], ...]]] = {
    _ENDED: {
        "2026-11-22": ((38, 31, 6),),
        "2026-11-23": (
            (20, 16, 1),
            (16, 15, 1),
            (16, 12, 0),
            (16, 10, 1),
            (20, 14, 2),
            (12, 9, 1),
            (16, 13, 1),
            (16, 11, 0),
        ),
        "2026-11-24": ((16, 10, 2), (16, 11, 1)),
        "2026-11-25": ((18, 14, 2), (22, 12, 1)),
        "2026-11-26": (
            (14, 12, 1),
            (16, 12, 2),
            (17, 13, 1),
            (12, 9, 2),
            (12, 10, 0),
            (12, 10, 1),
            (12, 9, 0),
            (12, 11, 0),
            (12, 10, 1),
            (12, 12, 0),
            (12, 10, 1),
            (12, 10, 1),
            (12, 12, 0),
            (12, 12, 0),
            (12, 11, 1),
            (12, 10, 2),
            (12, 11, 0),
            (12, 9, 0),
            (12, 12, 0),
            (12, 12, 0),
            (12, 11, 1),
            (12, 11, 1),
        ),
        "2026-11-27": (
            (12, 11, 1),
            (12, 12, 0),
            (12, 8, 1),
            (12, 12, 0),
            (12, 10, 0),
            (12, 11, 0),
            (12, 11, 0),
            (12, 11, 1),
            (12, 12, 0),
            (12, 12, 0),
            (12, 9, 2),
            (12, 11, 1),
            (12, 6, 1),
            (12, 9, 0),
            (12, 7, 0),
            (12, 10, 0),
            (12, 10, 2),
            (12, 8, 0),
            (12, 11, 0),
            (12, 8, 0),
            (12, 10, 1),
        ),
    },
    _LOG: {
        "2026-11-23": (
            (6, 1, 0),
            (16, 7, 2),
            (20, 10, 0),
            (16, 4, 0),
            (20, 12, 1),
            (12, 7, 1),
            (16, 12, 1),
            (16, 11, 1),
        ),
        "2026-11-24": ((16, 13, 0), (16, 7, 1)),
        "2026-11-25": ((18, 4, 0), (22, 4, 0)),
        "2026-11-26": (
            (15, 2, 0),
            (17, 5, 0),
            (16, 3, 0),
            (12, 4, 1),
            (12, 3, 0),
            (12, 0, 0),
            (12, 3, 0),
            (12, 3, 1),
            (12, 2, 1),
            (12, 4, 0),
            (12, 4, 1),
            (12, 2, 1),
            (12, 3, 0),
            (12, 3, 1),
            (12, 2, 0),
            (12, 4, 1),
            (12, 5, 0),
            (12, 2, 0),
            (12, 3, 0),
        ),
    },
    _PLAIN: {
        "2026-11-22": ((19, 12, 5),),
        "2026-11-23": (
            (16, 12, 1),
            (12, 8, 1),
            (14, 6, 2),
            (16, 14, 1),
            (20, 14, 2),
            (12, 9, 2),
            (16, 13, 2),
            (16, 11, 1),
        ),
        "2026-11-24": ((16, 10, 1), (16, 10, 1)),
        "2026-11-25": ((18, 15, 1), (19, 13, 1)),
        "2026-11-26": (
            (15, 14, 0),
            (18, 15, 1),
            (17, 13, 1),
            (12, 9, 1),
            (12, 11, 0),
            (12, 9, 1),
            (12, 12, 0),
            (12, 9, 0),
            (12, 11, 1),
            (12, 11, 1),
            (12, 10, 2),
            (12, 8, 1),
            (12, 10, 2),
            (12, 11, 1),
            (12, 8, 1),
            (12, 9, 2),
            (12, 10, 0),
            (12, 8, 1),
            (12, 10, 2),
            (12, 8, 3),
            (12, 10, 2),
            (12, 12, 0),
        ),
        "2026-11-27": (
            (12, 10, 1),
            (12, 10, 1),
            (12, 12, 0),
            (12, 9, 2),
            (12, 9, 2),
            (12, 11, 0),
            (12, 11, 0),
            (12, 9, 2),
            (12, 10, 0),
            (12, 11, 0),
            (12, 10, 1),
            (12, 11, 1),
            (12, 10, 0),
            (12, 11, 1),
            (12, 10, 0),
            (12, 12, 0),
            (12, 10, 1),
            (12, 9, 0),
            (12, 11, 0),
            (12, 10, 0),
            (12, 11, 1),
        ),
    },
    _RUN: {
        "2026-11-22": ((19, 15, 2),),
        "2026-11-23": (
            (16, 12, 0),
            (12, 10, 0),
            (14, 9, 2),
            (16, 13, 2),
            (20, 15, 1),
            (12, 9, 1),
            (16, 15, 0),
            (16, 13, 1),
        ),
        "2026-11-24": ((16, 13, 2), (16, 11, 1)),
        "2026-11-25": ((18, 14, 2), (16, 9, 2)),
        "2026-11-26": (
            (14, 14, 0),
            (18, 16, 0),
            (18, 16, 2),
            (12, 10, 2),
            (12, 12, 0),
            (12, 10, 1),
            (12, 11, 0),
            (12, 11, 0),
            (12, 10, 1),
            (12, 11, 0),
            (12, 9, 2),
            (12, 10, 0),
            (12, 12, 0),
            (12, 12, 0),
            (12, 11, 1),
            (12, 10, 2),
            (12, 11, 0),
            (12, 8, 1),
            (12, 12, 0),
            (12, 11, 1),
            (12, 11, 1),
            (12, 12, 0),
        ),
        "2026-11-27": (
            (12, 11, 1),
            (12, 12, 0),
            (12, 12, 0),
            (12, 12, 0),
            (12, 10, 0),
            (12, 11, 0),
            (12, 12, 0),
            (12, 11, 1),
            (12, 12, 0),
            (12, 11, 0),
            (12, 10, 1),
            (12, 10, 1),
            (12, 9, 0),
            (12, 11, 0),
            (12, 9, 0),
            (12, 12, 0),
            (12, 9, 2),
            (12, 11, 0),
            (12, 12, 0),
            (12, 10, 0),
            (12, 11, 1),
        ),
    },
    _PUBLIC: {
        "2026-11-22": ((33, 22, 1), (27, 22, 1)),
        "2026-11-23": ((24, 14, 1), (30, 20, 0)),
        "2026-11-24": ((30, 21, 3), (30, 17, 1)),
        "2026-11-25": ((40, 23, 1), (36, 24, 0)),
        "2026-11-26": (
            (40, 26, 6),
            (40, 24, 2),
            (40, 26, 4),
            (40, 23, 3),
            (40, 29, 3),
            (40, 22, 7),
            (40, 23, 5),
            (40, 23, 2),
            (40, 26, 3),
            (40, 23, 3),
            (40, 27, 4),
            (40, 27, 2),
            (40, 24, 3),
            (40, 28, 2),
            (40, 29, 1),
            (40, 31, 3),
            (40, 23, 2),
            (40, 24, 1),
            (40, 24, 5),
        ),
    },
    # Without pieces of which an earlier set had the text.
    _SHOWN: {
        "2026-11-27": (
            (40, 32, 2),
            (37, 27, 2),
            (33, 25, 1),
            (34, 27, 2),
            (34, 17, 1),
            (36, 26, 2),
            (32, 25, 4),
            (35, 28, 1),
            (40, 29, 4),
            (38, 30, 3),
            (39, 36, 1),
            (20, 14, 0),
            (16, 13, 0),
        ),
    },
    _WHOLE: {
        "2026-11-27": (
            (30, 21, 5),
            (24, 12, 6),
            (20, 7, 2),
            (20, 10, 3),
            (20, 10, 2),
            (20, 12, 2),
            (20, 9, 4),
            (20, 14, 0),
        ),
    },
    # Without jobs that went well, of which no box is kept.
    _OVER_BOXES: {
        "2026-11-27": ((18, 15, 0), (19, 16, 1), (20, 17, 1), (18, 14, 2), (19, 18, 0)),
    },
    _OVER_BOTH: {
        "2026-11-27": ((20, 16, 2), (20, 16, 3), (20, 16, 2), (20, 13, 3), (20, 19, 0)),
    },
}
# The same sets, the newest of each evidence: all of the culprits and no other, whatever is said of them; where
# no rank alone is at fault, none.
BY_RANK: dict[str, tuple[tuple[int, int, int], ...]] = {
    _PLAIN: (
        (12, 10, 0),
        (12, 11, 1),
        (12, 10, 1),
        (12, 12, 0),
        (12, 11, 1),
        (12, 9, 1),
        (12, 11, 0),
        (12, 10, 1),
        (12, 11, 1),
    ),
    _RUN: (
        (12, 11, 0),
        (12, 12, 0),
        (12, 10, 1),
        (12, 12, 0),
        (12, 10, 2),
        (12, 11, 0),
        (12, 12, 0),
        (12, 11, 0),
        (12, 11, 1),
    ),
    _ENDED: (
        (12, 9, 1),
        (12, 10, 1),
        (12, 9, 1),
        (12, 12, 0),
        (12, 10, 2),
        (12, 10, 0),
        (12, 11, 0),
        (12, 10, 0),
        (12, 10, 1),
    ),
    _OVER_BOXES: ((18, 17, 0), (19, 17, 1), (20, 18, 0), (18, 16, 1), (19, 19, 0)),
    _OVER_BOTH: ((20, 18, 1), (20, 17, 2), (20, 18, 0), (20, 18, 1), (20, 20, 0)),
}
_NEWEST = 60  # cases: the figures to expect
_HEAD = (
    "evidence",
    "made",
    "sets",
    "cases",
    "exact",
    "worst and best set",
    "right rank only, or could not tell",
    "a victim named, or wrong",
)


def section() -> Iterator[str]:
    """The lines of the section, without its title."""
    yield "Each set of jobs was written by somebody who had the README and the docs alone, with the true causes hashed before"
    yield "the tool was asked; first answers. Mostly 12 to 20 jobs a set, 3 to 8 ranks each, with gloo: loops by hand, DDP, FSDP2,"
    yield "DTensor, pipelining, Lightning, transformers, Accelerate, DeepSpeed, JAX, mpi4py, Ray, plain multiprocessing. What a"
    yield "set missed was mended after it was counted, so that no set counts twice; whoever wrote one of the sets of 20 had seen"
    yield "what the set before had shown. The other sections are about the tool's own cases."
    yield ""
    yield f"The newest sets, of at least {_NEWEST} cases together: what to expect on a job of your own."
    yield ""
    yield from _table(_newest())
    yield ""
    yield "All sets, by the day when they were made. From 2026-11-26 on, torch's own records are read of unprepared jobs."
    yield ""
    yield from _table(
        (evidence, day, [Asked(*one) for one in sets])
        for evidence, days in SETS.items()
        for day, sets in days.items()
    )
    yield ""
    yield "By the ranks alone: all of the culprits and no other, whatever is said of them; where no rank alone is at fault,"
    yield "none. Of the tables above, whose judge also asks for what the rank does instead, the newest sets."
    yield ""
    yield from _table(
        (of, "2026-11-27", [Asked(*one) for one in sets]) for of, sets in BY_RANK.items()
    )
    yield ""
    yield "Public logs are posts on issue trackers and forums, often cut, with the cause that their thread found or that the"
    yield "text shows, 24 to 40 a set from about 30 sources, other posts every time; some are files that public repositories"
    yield "keep, without a thread, and from how many of these is not sure. They were gathered without the tool; the last ones"
    yield "were judged by somebody who did not know its source."
    yield "Of the last five sets 12 of 131 exact answers have the reason only in the lines of the log that are shown beside the"
    yield "sentence, which the tool does from then on."
    yield 'Some logs alone do not hold the cause for anyone: they are in the column of "could not tell".'
    yield ""
    yield "Public logs by what they show: the same, but whoever gathered a piece wrote down before whether an expert could say the"
    yield "cause with the text alone. Where that is not so, an answer that leaves it open and names no rank is exact: the row above"
    yield "counts it as a miss. Mostly excerpts of 1,000 to 1,500 characters. What is stored of such threads is finite: later sets came"
    yield "upon pieces that an earlier one had had. These are left out, 86 of 520, and of the last two sets 44 of 80. Of 282 pieces that"
    yield "do show the cause 187 (66 %) were exact, in the last four sets 55 of 74; of 152 that do not show it, 142 (93 %). In the last"
    yield "four sets together 93 of 113 (82 %) are exact, and 4 (3.5 %) name a victim, none of them in the last two."
    yield "Judged by somebody who did not know the tool's source."
    yield ""
    yield "Whole logs are all that a job printed, from its first line to its last: 200 to 30,000 lines of 2 to 8 ranks, by programs"
    yield "that others wrote and ran with a fault in them, with the errors that a job lives with. The last five sets of 20 are the"
    yield "jobs below, without their boxes. Nowhere else does the tool name a rank so often that only suffered; in the last set, after"
    yield "what the two before had shown was mended, it did not."
    yield ""
    yield "Jobs that ended by themselves: five sets of 20 under `hangdoctor run`, half of them hangs that a time-out ended, half crashes,"
    yield "exits and losses of a process, some that went well and some that were cancelled. Of a job that went well no box is kept, so"
    yield "that there is no verdict: those are left out of the row of boxes. The second set's boxes were asked a second time, since the"
    yield "first time they had been written without the compiled extension by a mistake in the set-up. The third and the fourth were"
    yield "asked with one version, the fifth with what these had brought; two MPI jobs whose first start had failed, by files that two"
    yield "jobs on one machine both wanted, were run again."
    yield ""
    yield "The last nine sets of live and ended jobs had a stricter judge, who had seen neither the source nor a set before: the"
    yield "right rank without what it was doing is no longer exact. Of these 108 jobs 94 (87 %) were exact unprepared, 94 (87 %)"
    yield "with `run` and 79 (73 %) by their boxes after SIGKILL to all, and 10 of the 324 answers named a victim. In the last three"
    yield "sets it is 32, 33 and 29 of 36, and 3 of 108 answers named a victim, all of one job."
    yield ""


def _newest() -> Iterator[tuple[str, str, Sequence[Asked]]]:
    """Of each evidence the last sets that have enough cases together."""
    for evidence, days in SETS.items():
        chosen: list[Asked] = []
        first = ""
        for day, sets in reversed(days.items()):
            for one in reversed(sets):
                if sum(each.cases for each in chosen) < _NEWEST:
                    chosen.insert(0, Asked(*one))
                    first = day
        last = next(reversed(days))
        yield evidence, first if first == last else f"{first} to {last}", chosen


def _table(rows: Iterator[tuple[str, str, Sequence[Asked]]]) -> Iterator[str]:
    yield "| " + " | ".join(_HEAD) + " |"
    yield "| --- | --- |" + " ---: |" * (len(_HEAD) - 2)
    for evidence, made, sets in rows:
        cases, exact, wrong = (sum(column) for column in zip(*sets, strict=True))
        shares = sorted(one.exact / one.cases for one in sets)
        spread = f"{_share(shares[0])} to {_share(shares[-1])}" if len(sets) > 1 else "-"
        found = f"{exact} ({_share(exact / cases)})", spread, cases - exact - wrong, wrong
        yield "| " + " | ".join(map(str, (evidence, made, len(sets), cases, *found))) + " |"


def _share(of: float) -> str:
    return f"{of:.0%}".replace("%", " %")
