"""A rank in a ``while`` without end that calls a library at each turn, and ranks that are only slow."""

from __future__ import annotations

import pytest

from hangdoctor.model.capture import Frame, RankCapture
from hangdoctor.readers.retry_loops import counted
from tests.support.captures import WAIT, captured, causes, judged, sample, still, thread

APP = "/app/fit.py"
MEAN = Frame("_mean", "/v/site-packages/numpy/_core/_methods.py", 132)
MODEL = Frame("forward", "/v/site-packages/torch/nn/modules/linear.py", 125)


def scale(line: int = 14, counts: str = "while", **values: int) -> Frame:
    return Frame("local_scale", APP, line, counts=counts, values=values)


def main(line: int = 34, it: int = 9) -> Frame:
    return Frame("main", APP, line, values={"it": it})


def at_work(*stacks: list[Frame], cpu: float = 0.9, state: str = "R") -> RankCapture:
    times = [2.0 * n for n in range(len(stacks))]
    threads = [
        thread(frames, state=state, switches=9 * n, cpu_s=cpu * at)
        for n, (at, frames) in enumerate(zip(times, stacks, strict=True))
    ]
    samples = [sample(at, one, state=state) for at, one in zip(times, threads, strict=True)]
    return captured(2, samples)


def others() -> list[RankCapture]:
    return [still(rank, WAIT) for rank in (0, 1, 3)]


def test_who_turns_in_a_while_without_end_is_busy() -> None:
    said = judged(*others(), at_work([scale(13), main()], [MEAN, scale(), main()]))
    assert (said.status, causes(said)) == ("hang", [("busy", [2])]), said.summary
    assert "it is computing in local_scale (fit.py:14)" in said.summary
    more = [[MEAN, scale(), main()], [scale(16), main()], [MEAN, scale(), main()]]
    assert causes(judged(*others(), at_work([scale(13), main()], *more))) == [("busy", [2])]


def test_a_function_of_its_own_that_the_loop_calls_is_a_part_of_its_turn() -> None:
    parse = Frame("parse", APP, 25, counts="v")
    said = judged(*others(), at_work([parse, scale(), main()], [scale(), main()]))
    assert causes(said) == [("busy", [2])], said.summary


def test_arithmetic_of_tensors_is_a_part_of_its_turn() -> None:
    divide = Frame("Tensor.__rdiv__", "/v/site-packages/torch/_tensor.py", 1112)
    said = judged(*others(), at_work([divide, scale(13), main()], [scale(), main()]))
    assert causes(said) == [("busy", [2])], said.summary


def test_the_loop_of_the_training_gets_on() -> None:
    """The ranks that wait are in it, too; and a model computes below the other one."""
    fit = Frame("fit", APP, 70, counts="while")
    waiting = [still(rank, [*WAIT[:1], fit, main()]) for rank in (0, 1, 3)]
    read, parse = Frame("read", APP, 7), Frame("parse", APP, 25)
    said = judged(*waiting, at_work([read, fit, main()], [parse, fit, main()]))
    assert causes(said) == [("slow", [2])], said.summary
    below = judged(*others(), at_work([MODEL, scale(), main()], [scale(), main()]))
    assert causes(below) == [("slow", [2])], below.summary


@pytest.mark.parametrize(
    "stacks",
    [
        [[scale(counts="batch"), main()], [MEAN, scale(counts="batch"), main()]],
        [[scale(counts=""), main()], [MEAN, scale(counts=""), main()]],
        [[scale(step=3), main()], [MEAN, scale(step=4), main()]],
        [[scale(), main()], [MEAN, scale(), main(it=10)]],
        [[scale(), main(33)], [MEAN, scale(), main(35)]],
        [[scale(), main()], [MODEL, Frame("evaluate", APP, 50, counts="while"), main()]],
    ],
    ids=["a for", "no loop", "a count", "an iteration", "called again", "another function"],
)
def test_who_gets_on_is_slow(stacks: list[list[Frame]]) -> None:
    said = judged(*others(), at_work(*stacks))
    assert (said.status, causes(said)) == ("slow", [("slow", [2])]), said.summary


def test_a_while_that_sleeps_between_its_turns_is_none() -> None:
    said = judged(
        *others(), at_work([scale(), main()], [MEAN, scale(), main()], cpu=0.01, state="S")
    )
    assert ("busy", [2]) not in causes(said), said.summary


SOURCE = """
def local_scale(values):
    while True:
        below = mean(values)
        for value in values:
            use(value)
        if below:
            return below
    done()
""".splitlines()


@pytest.mark.parametrize(("line", "found"), [(4, "while"), (6, "value"), (7, "while"), (9, "")])
def test_which_loop_is_around_a_line(line: int, found: str) -> None:
    assert counted(SOURCE, line) == found
