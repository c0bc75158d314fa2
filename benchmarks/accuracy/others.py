"""Jobs that somebody else wrote, who had the README and the docs alone: what the tool said of them the first time.

Each set was made, and its true causes written down and hashed, before the tool was asked. What it
missed was mended afterwards, so that no set can be used twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .others_sets import BY_RANK, SETS


class Asked(NamedTuple):
    """One set of jobs; the rest of `cases` is "could not tell", or the right rank with another cause."""

    cases: int
    exact: int
    wrong: int  # a rank was named that only suffered, or a hang called otherwise


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
    yield from _of_logs()
    yield from _of_jobs()


def _of_logs() -> Iterator[str]:
    """Where the public and the whole logs are from, and what they show."""
    yield "Public logs are posts on issue trackers and forums, often cut, with the cause that their thread found or that the"
    yield "text shows, 24 to 40 a set from about 30 sources, other posts every time; some are files that public repositories"
    yield "keep, without a thread, and from how many of these is not sure. They were gathered without the tool; the last ones"
    yield "were judged by somebody who did not know its source."
    yield "In five of the sets 12 of 131 exact answers had the reason only in the lines of the log that are shown beside the"
    yield "sentence, which the tool does from then on."
    yield 'Some logs alone do not hold the cause for anyone: they are in the column of "could not tell".'
    yield ""
    yield "Public logs by what they show: the same, but whoever gathered a piece wrote down before whether an expert could say the"
    yield "cause with the text alone. Where that is not so, an answer that leaves it open and names no rank is exact: the row above"
    yield "counts it as a miss. Mostly excerpts of 1,000 to 1,500 characters. What is stored of such threads is finite: later sets came"
    yield "upon pieces that an earlier one had had. These are left out, 86 of 720. Of 411 pieces that do show the cause 259 (63 %) were"
    yield "exact; of 223 that do not show it, 206 (92 %). In the last three sets together 80 of 120 (67 %) are exact, and 7 (5.8 %)"
    yield "name a victim; the first of these was sought among less known projects, the second among files that repositories keep."
    yield "Judged by somebody who did not know the tool's source."
    yield ""
    yield "Whole logs are all that a job printed, from its first line to its last: 200 to 30,000 lines of 2 to 8 ranks, by programs"
    yield "that others wrote and ran with a fault in them, with the errors that a job lives with. The last nine sets of 20 are the"
    yield "jobs below, without their boxes. Nowhere else does the tool name a rank so often that only suffered: of the last three sets"
    yield "in three, none and one of 20."
    yield ""


def _of_jobs() -> Iterator[str]:
    """How the jobs were run, and who judged the answers."""
    yield "Jobs that ended by themselves: nine sets of 20 under `hangdoctor run`, half of them hangs that a time-out ended, half crashes,"
    yield "exits and losses of a process, some that went well and some that were cancelled. Of a job that went well no box is kept, so"
    yield "that there is no verdict: those are left out of the row of boxes. The second set's boxes were asked a second time, since the"
    yield "first time they had been written without the compiled extension by a mistake in the set-up. The third and the fourth were"
    yield "asked with one version, as were the fifth and the sixth, with what those had brought; two MPI jobs whose first start had"
    yield "failed, by files that two jobs on one machine both wanted, were run again."
    yield ""
    yield "The last nineteen sets of live and ended jobs had a stricter judge, who had seen neither the source nor a set before: the"
    yield "right rank without what it was doing is no longer exact. Of these 228 jobs 193 (85 %) were exact unprepared; of the 227"
    yield "that hung as they should under `hangdoctor run`, 199 (88 %) with it and 183 (81 %) by their boxes after SIGKILL to all; 18 of"
    yield "the 682 answers (2.6 %) named a victim. In the last seven sets it is 73 of 84 (87 %), 73 of 83 (88 %) and 75 of 83 (90 %), and"
    yield "6 of 250 answers (2.4 %) named a victim. One job is left out of two rows, since another rank than the one meant had failed;"
    yield "one was asked again unprepared, since it had not hung yet."
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
