"""One rank compiles in all samples, and all others wait for it."""

from __future__ import annotations

import pytest

from hangdoctor.model.capture import Frame, Process, ProcessSample, RankCapture
from tests.support.captures import C10D, captured, causes, judged, sample, stack, thread

JAX = "/site-packages/jax/_src"
AT_RESULT = stack(("ArrayImpl._value", f"{JAX}/array.py", 623), ("main", "/app/train.py", 57))
IN_XLA = stack(
    ("backend_compile_and_load", f"{JAX}/compiler.py", 353),
    ("MeshComputation.compile", f"{JAX}/interpreters/pxla.py", 1239),
    ("main", "/app/train.py", 54),
)
REDUCE = stack(("all_reduce", C10D, 9), ("main", "/app/train.py", 57))
IN_DYNAMO = stack(
    ("call", "/site-packages/torch/fx/interpreter.py", 9),
    ("_compile", "/site-packages/torch/_dynamo/convert_frame.py", 1700),
    ("main", "/app/train.py", 54),
)
IN_TRITON = stack(
    ("add_stages", "/site-packages/triton/backends/nvidia/compiler.py", 9),
    ("compile", "/site-packages/triton/compiler/compiler.py", 226),
    ("main", "/app/train.py", 54),
)


def used(rank: int, frames: list[Frame], cpu_s: float, **more: object) -> RankCapture:
    """A rank in one stack at both samples, whose process used so much CPU time in the second between;
    its own thread slept, as it does while a compiler's threads work.
    """
    found = []
    for n, at in enumerate((0.0, 1.0)):
        own = thread(frames, syscall="futex", switches=20 * n)
        found.append(sample(at, own, cpu_s=cpu_s * n))
    return captured(rank, found, **more)


@pytest.mark.parametrize(
    ("compiles", "waits", "shows"),
    [
        (IN_XLA, AT_RESULT, "JAX_EXPLAIN_CACHE_MISSES=1"),
        (IN_DYNAMO, REDUCE, "TORCH_LOGS=recompiles"),
        (IN_TRITON, REDUCE, "constants each time."),
    ],
)
def test_who_compiles_is_slow(compiles: list[Frame], waits: list[Frame], shows: str) -> None:
    said = judged(*(used(rank, waits, 0.0) for rank in (0, 2, 3)), used(1, compiles, 0.4))
    assert (said.status, causes(said)) == ("slow", [("slow", [1])]), said.summary
    assert "is compiling in main (train.py:54). Ranks 0,2-3 are waiting" in said.summary
    assert shows in said.causes[0].advice


def test_a_compiler_that_uses_no_time_may_be_stuck() -> None:
    """It waits for a lock of its cache, or for a worker that has died."""
    said = judged(*(used(rank, REDUCE, 0.0) for rank in (0, 2, 3)), used(1, IN_DYNAMO, 0.0))
    assert said.status == "hang" and causes(said)[0][1] == [1]
    assert "compiling" not in said.summary


def test_the_time_of_a_compilers_workers_counts() -> None:
    workers = [Process(77, samples=[ProcessSample(at, cpu_s=at) for at in (0.0, 1.0)])]
    one = used(1, IN_DYNAMO, 0.0, children=workers)
    said = judged(*(used(rank, REDUCE, 0.0) for rank in (0, 2, 3)), one)
    assert (said.status, causes(said)) == ("slow", [("slow", [1])]), said.summary


def test_what_runs_compiled_code_does_not_compile() -> None:
    runs = stack(
        ("call", "/tmp/torchinductor/ab/cab.py", 30),
        ("_fn", "/site-packages/torch/_dynamo/eval_frame.py", 800),
        ("run", "/site-packages/torch/_inductor/compile_fx.py", 1900),
        ("main", "/app/train.py", 54),
    )
    said = judged(*(used(rank, REDUCE, 0.0) for rank in (0, 2, 3)), used(1, runs, 0.4))
    assert "compiling" not in said.summary and said.status == "hang"


def test_where_most_compile_or_one_is_at_neither_none_is_slow() -> None:
    most = [used(rank, IN_XLA, 0.4) for rank in (1, 2, 3)]
    assert judged(used(0, AT_RESULT, 0.0), *most).status != "slow"
    loads = used(3, stack(("load", "/app/data.py", 4), ("main", "/app/train.py", 50)), 0.0)
    two = [used(rank, AT_RESULT, 0.0) for rank in (0, 2)]
    assert judged(*two, used(1, IN_XLA, 0.4), loads).status != "slow"


def step(frames: list[Frame], number: int) -> list[Frame]:
    *inner, main = frames
    return [*inner, Frame(main.name, main.file, main.line, values={"step": number})]


def test_a_job_that_goes_on_while_one_rank_compiles_each_step_is_slow() -> None:
    ranks = []
    for rank in range(4):
        frames = IN_XLA if rank == 1 else AT_RESULT
        cpu_s = 0.5 if rank == 1 else 0.01
        samples = [
            sample(at, thread(step(frames, 20 + n), switches=9 * n), cpu_s=cpu_s * n)
            for n, at in enumerate((0.0, 1.0))
        ]
        ranks.append(captured(rank, samples))
    said = judged(*ranks)
    assert (said.status, causes(said)) == ("slow", [("slow", [1])]), said.summary
    assert "in all samples it was compiling in main (train.py:54)" in said.summary
