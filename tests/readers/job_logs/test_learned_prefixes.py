"""Prefixes that a file's first lines show: numbers of ranks, pods, ranks in words, key=value.

Each form is put before every line of one failure, whose lines come mixed: only the prefix tells the
ranks' tracebacks apart.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from hangdoctor.readers.job_logs.habits import habits
from tests.support.read_logs import diagnosed, logs_of, named

DAY = "2026-11-23T08:10:{:02d}.123456789Z"
Form = Callable[[int, int, str], str]
TORCH = "/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
STEPS = [f"INFO step {step} loss 2.{step}" for step in range(3)]
OWN = ['  File "/job/data.py", line 9, in load_batch', "ValueError: bad sample"]
LOST = [
    f'  File "{TORCH}", line 2806, in all_reduce',
    "RuntimeError: [/x/pair.cc:534] Connection closed by peer [127.0.0.1]:5023",
]


def of_rank(rank: int) -> list[str]:
    head = ["Traceback (most recent call last):", '  File "/job/train.py", line 41, in <module>']
    return [*STEPS, *head, *(OWN if rank == 2 else LOST)]


def mixed(form: Form) -> str:
    """The lines of four ranks, rank 2 first; the order is the same each time."""
    left = {rank: of_rank(rank) for rank in range(4)}
    later = [rank for rank in (0, 1, 3) for _ in left[rank]]
    random.Random(1).shuffle(later)
    order = [2] * 4 + later[:6] + [2] * 3 + later[6:]
    return "".join(form(rank, n, left[rank].pop(0)) + "\n" for n, rank in enumerate(order))


def pod(rank: int) -> str:
    return f"llama-worker-{rank}"


RANKED: dict[str, Form] = {
    "letter": lambda r, n, line: f"r{r}: {line}",
    "letter in brackets": lambda r, n, line: f"[r{r}] {line}",
    "fraction": lambda r, n, line: f"[{r}/4] {line}",
    "number": lambda r, n, line: f"[{r}] {line}",
    "number and pipe": lambda r, n, line: f"{r}| {line}",
    "words": lambda r, n, line: f"rank {r}: {line}",
    "words and pipe": lambda r, n, line: f"Rank {r} | {line}",
    "equals": lambda r, n, line: f"rank={r} {line}",
    "host and rank": lambda r, n, line: f"[n1 rank{r}] {line}",
    "axes and rank": lambda r, n, line: f"[dp{r // 2} tp{r % 2} rank{r}] {line}",
    "host before a rank": lambda r, n, line: f"worker-{r}: [rank{r}]:{line}",
    "actor": lambda r, n, line: f"\x1b[36m(RankActor(rank={r}) pid=81{r})\x1b[0m {line}",
    "mpi of a cloud": lambda r, n, line: f"[1,mpirank:{r},algo-{r // 2}]<stderr>:{line}",
    "logger, level first": lambda r, n, line: (
        f"2026-11-23 08:10:{n:02d},123: rank{r}[81{r}][MainThread]: INFO: train: {line}"
    ),
    "loguru": lambda r, n, line: (
        f"2026-11-23 08:10:{n:02d}.123 | INFO     | __main__:main:41 - [rank{r}] {line}"
    ),
    "absl": lambda r, n, line: f"I1123 08:10:{n:02d}.123456 140{r} train.py:41] [rank {r}] {line}",
    "pairs": lambda r, n, line: f"time={DAY.format(n)} level=info rank={r} msg={json.dumps(line)}",
    "nested JSON": lambda r, n, line: json.dumps({"extra": {"rank": r}, "message": line}),
    "loguru's JSON": lambda r, n, line: json.dumps(
        {"text": line + "\n", "record": {"extra": {"rank": r}, "message": line}}
    ),
    "Windows": lambda r, n, line: f"[rank{r}]: {line}\r",
}


@pytest.mark.parametrize("form", list(RANKED))
def test_a_rank_by_the_prefix_of_its_lines(tmp_path: Path, form: str) -> None:
    verdict = diagnosed(tmp_path, mixed(RANKED[form]))
    assert named(verdict) == [("error", [2])], verdict.summary
    assert "load_batch (data.py:9): bad sample" in verdict.summary


PODS: dict[str, Form] = {
    "Kubeflow": lambda r, n, line: f"[{pod(r)}] {line}",
    "kubectl --prefix --timestamps": lambda r, n, line: f"[pod/{pod(r)}/x] {DAY.format(n)} {line}",
    "stern": lambda r, n, line: f"{pod(r)} pytorch {line}",
    "stern --timestamps": lambda r, n, line: f"{pod(r)} pytorch {DAY.format(n)} {line}",
}


@pytest.mark.parametrize("form", list(PODS))
def test_a_pod_by_the_prefix_of_its_lines(tmp_path: Path, form: str) -> None:
    [cause] = diagnosed(tmp_path, mixed(PODS[form])).causes
    assert (cause.kind, cause.ranks, cause.nodes) == ("error", [], ["llama-worker-2"])
    assert cause.where.frame == "load_batch (/job/data.py:9)"


def test_the_number_of_a_gpu_is_a_local_rank(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, mixed(lambda r, n, line: f"[GPU{r}] {line}"))
    assert verdict.summary.startswith("The process with local rank 2 failed first")


def test_a_size_behind_the_rank_is_the_jobs(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_text(mixed(RANKED["fraction"]))
    assert logs_of(path).world_size == 4


@pytest.mark.parametrize(
    "lines",
    [
        [f"[{n}/9] c++ -o {n}.o" for n in range(1, 10)],  # a build
        [f"[{n // 4}/8] loss 2.{n}" for n in range(36)],  # steps that four ranks print
        [f"[{80740 + n}] [rank{n % 4}]: text" for n in range(20)],  # numbers of lines
        [f"[{n}] text" for n in (3, 1, 2)],  # too few to be ranks
        ["[1]  Done  make"] + ["text"] * 20,
    ],
)
def test_what_only_looks_like_ranks(lines: list[str]) -> None:
    assert habits(lines).first is None


@pytest.mark.parametrize(
    "line",
    [
        "Waiting in store based barrier for rank: 0, key: x (world_size=4, worker_count=1)",
        "[E ProcessGroupNCCL.cpp:457] [Rank 3] Watchdog caught collective operation timeout",
        'print("[rank3] text")',
        "step 4 of rank 2: loss 0.3",
        "local rank 3: text",
    ],
)
def test_a_rank_in_the_text_is_no_prefix(line: str) -> None:
    assert habits([line] * 20).last is None
