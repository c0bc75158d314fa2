"""Faults of real jobs that gloo's Flight Recorder dumps cannot tell apart: two jobs each, with two
culprits or two ends, that leave the same records.

    python -m benchmarks.accuracy.real_twins

hangs both jobs of each pair and compares what their ranks answer: of each rank all operations with
group, number, state and shapes; times and process ids apart. gloo's recorder keeps no send and no receive.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.progress import say

from .coordinates import Case
from .real import Stem

Records = dict[int, list[tuple[object, ...]]]  # by rank


@dataclass(frozen=True)
class Twins:
    """Two faults with one evidence, and why that is so."""

    one: Case
    other: Case
    why: str


def _case(kind: str, rank: int, step: int, where: str) -> Case:
    return Case(kind, 0, [{"kind": kind, "rank": rank, "step": step, "where": where}])


TWINS = (
    Twins(
        _case("missing_send", 4, 2, "send.0"),
        _case("sleep", 0, 2, "backward.0"),
        "rank 0 waits for what rank 4 never sent, or sleeps after it came",
    ),
    Twins(
        _case("missing_receive", 0, 2, "receive.0"),
        _case("sleep", 4, 2, "forward.1"),
        "rank 4 waits until rank 0 receives, or sleeps after that",
    ),
    Twins(
        _case("sleep", 5, 2, "send.1"),
        _case("sleep", 1, 2, "receive.1"),
        "one of two neighbour stages sleeps, and the other waits for it in the transfer",
    ),
    Twins(
        _case("sleep", 6, 4, "evaluate"),
        _case("long_evaluation", 6, 4, "evaluate"),
        "the rank will never come, or it will",
    ),
    Twins(
        _case("sleep", 2, 2, "checkpoint"),
        _case("long_checkpoint", 2, 2, "checkpoint"),
        "the rank will never come, or it will",
    ),
)


def compare(twins: Iterator[Twins]) -> Iterator[tuple[Twins, Records, Records]]:
    """What both jobs of each pair leave."""
    with Stem() as stem:
        for pair in twins:
            yield pair, records(stem, pair.one), records(stem, pair.other)


def records(stem: Stem, case: Case) -> Records:
    """Hang one job: what its recorders hold, without times.

    Raises:
        NoHang, TimeoutError: see `Running.wait_hung`.
    """
    running = stem.start(case, probe=True)
    try:
        running.wait_hung()
        found = running.ask()
    finally:
        stem.end_job(running)
    return {
        ops.rank: [(o.op, o.group, o.seq, o.state, str(o.shapes)) for o in ops.operations]
        for ops in found
    }


def main() -> None:
    """Compare all pairs; a difference ends with 1."""
    differ = 0
    for pair, one, other in compare(iter(TWINS)):
        same = one == other
        differ += not same
        both = f"{pair.one.kind} ({pair.one.place}), {pair.other.kind} ({pair.other.place})"
        say(f"{'same' if same else 'DIFFERENT'}: {both}: {pair.why}")
    raise SystemExit(bool(differ))


if __name__ == "__main__":
    main()
