"""A sweep of real jobs, one too large, one that hangs; and the chronicle's table by the same lines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("torch")

from hangdoctor.train.config import load_config
from hangdoctor.train.options import ConfigError
from hangdoctor.train.submit.job import torchrun_command
from hangdoctor.train.sweep import rendered, running, watch
from hangdoctor.train.sweep.__main__ import main, parser, show
from hangdoctor.train.sweep.candidates import read_sweep
from hangdoctor.train.sweep.results import Result, Results

ROOT = Path(__file__).parents[2]
SMALL = {
    "parallel": {"tp": 1, "dp": 1},
    "model": {"layers": 2, "hidden_size": 32, "heads": 4, "seq_length": 32},
    "train": {"global_batch": 4},
    "data": {"workers": 0},
}
TOO_LARGE = 131072  # a matrix of 192 GiB
# The table of 2022-02-20: nodes, billions, dp, tp, pp, micro-batch, batch, GB, seconds, TFLOPs.
CHRONICLE = [
    (48, 200, 12, 8, 4, 1, 2040, 47, 189.06, 91.67),
    (48, 194, 8, 8, 6, 1, 2048, 39, 183.64, 92.38),
    (42, 191, 6, 8, 7, 1, 2046, 39, 202.99, 94.20),
    (40, 200, 4, 8, 10, 1, 2048, 35, 221.21, 94.39),
    (48, 183, 4, 8, 12, 1, 2048, 30, 172.40, 90.84),
]


def written(folder: Path, **given: Any) -> Path:
    """A file of a sweep on a CPU."""
    path = folder / "sizes.yaml"
    usual = {"gpus": 2, "cpu": True, "environment": {"OMP_NUM_THREADS": "1"}, "options": SMALL}
    path.write_text(yaml.safe_dump({**usual, **given}))
    return path


def swept(path: Path, *words: str) -> tuple[int, str, str]:
    """(exit code, standard output, standard error) of the command."""
    command = [sys.executable, "-m", "hangdoctor.train.sweep", str(path), *words]
    done = subprocess.run(
        command,
        cwd=path.parent,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=540,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.full
@pytest.mark.torch
@pytest.mark.timeout(600)
def test_a_job_is_measured_one_is_too_large_and_one_hangs(tmp_path: Path) -> None:
    """As in the chronicle: the fast one on top, and "always hangs" in a row, here with its cause."""
    jobs: list[dict[str, Any]] = [
        {"model.hidden_size": TOO_LARGE},
        {"parallel.tp": 2, "fault": "sleep@1:2"},
        {"train.micro_batch": 3},
        {},
    ]
    path = written(tmp_path, jobs=jobs)
    # Only a hang between two iterations is looked for: a busy host may start as slowly as it likes.
    words = ("--stall-after", "3", "--start-after", "300", "--json", "found.json")
    code, out, errors = swept(path, *words)
    assert code == 0, errors
    found = json.loads((tmp_path / "found.json").read_text())["results"]
    by = {result["status"]: result for result in found}
    assert found[0]["status"] == "measured"
    assert set(by) == {"measured", "hang", "out of memory", "refused"}
    fast = by["measured"]
    assert len(fast["iterations"]) == 3 and min(fast["iterations"]) > 0
    assert fast["seconds"] == pytest.approx(sum(fast["iterations"][1:]) / 2)
    log = Path(fast["log"]).read_text()
    last = next(line for line in log.splitlines() if "iteration        3/" in line)
    assert float(last.partition("TFLOPs: ")[2].split()[0]) == pytest.approx(
        fast["tflops"] * fast["seconds"] / fast["iterations"][2], rel=1e-2
    )
    assert fast["memory"] > 1e8
    hang = by["hang"]["verdict"]
    assert (hang["status"], hang["causes"][0]["kind"]) == ("hang", "not_entered")
    assert hang["causes"][0]["ranks"] == [1]
    lines = out.splitlines()
    assert lines[0].split() == (
        "Nodes Size hidden_size fault DP TP PP MBS GBS Mem Sec/it TFLOPs Notes".split()
    )
    assert lines[1].split()[2:4] == ["32", "-"]  # the column shows it where it is usual, too
    notes = {result["status"]: result["note"] for result in found}
    assert notes["hang"].startswith("Rank 1 (") and "never reached all_reduce" in notes["hang"], (
        notes
    )
    assert f"hang: {notes['hang']}" in out
    kept = Path(by["out of memory"]["log"]).read_text()[-1500:]
    assert "MemoryError" in notes["out of memory"], (notes, kept)
    assert "refused: --train.global_batch 4 is not micro_batch x accumulation x dp" in out
    # A second call has nothing to run, and prints the same.
    assert swept(path, *words) == (0, out, "")
    # Without one of its lines, and with a torn one, it would run that job again.
    results = tmp_path / "sizes-sweep" / "results.jsonl"
    kept = results.read_text().splitlines(keepends=True)
    results.write_text("".join(kept[:3]) + kept[3][:40])
    with Results(results) as again:
        assert set(again.found) == {json.loads(line)["key"] for line in kept[:3]}
    assert results.read_text() == "".join(kept[:3])


def chronicle() -> list[Result]:
    """The chronicle's rows as results."""
    made = []
    names = ("nodes", "parameters", "dp", "tp", "pp", "micro_batch", "global_batch")
    for row in CHRONICLE:
        sizes = dict(zip(names, row, strict=False))
        sizes["parameters"] = int(sizes["parameters"] * 1e9)
        made.append(
            Result(
                key=str(row),
                name="",
                status="measured",
                options={},
                sizes=sizes,
                seconds=row[8],
                tflops=row[9],
                memory=row[7] * 1e9,
                date="2022-02-20",
            )
        )
    return made


def test_the_table_has_the_columns_of_the_chronicle_and_the_fastest_on_top() -> None:
    lines = [" ".join(line.split()) for line in rendered.table(chronicle(), ())]
    assert lines[:3] == [
        "Nodes Size DP TP PP MBS GBS Mem Sec/it TFLOPs Notes",
        "48 183B 4 8 12 1 2048 30GB 172.40 90.84 02-20",
        "48 194B 8 8 6 1 2048 39GB 183.64 92.38 02-20",
    ]
    assert lines[5].startswith("40 200B 4 8 10 ")  # the highest TFLOPs, and the slowest


def test_the_chronicles_jobs_come_out_of_its_layouts(tmp_path: Path) -> None:
    """48 nodes of 8 GPUs: 8 x 12 leaves room for 4 replicas; 8 x 4 x 12 needs another batch."""
    model = {"layers": 96, "hidden_size": 13312, "heads": 64, "vocab_size": 150257}
    model["seq_length"] = 2048
    train = {"global_batch": 2048, "rampup": "192 16 9765625", "precision": "bf16"}
    options = {"model": model, "train": train}
    grid = {"parallel.tp": 8, "parallel.pp": [12, 6, 4, 5], "train.micro_batch": [1, 4]}
    path = written(tmp_path, gpus=384, node=8, options=options, grid=grid)
    sweep = read_sweep(path, 3)
    places = [(c.config.parallel.pp, c.config.parallel.dp, c.ranks) for c in sweep.candidates[::2]]
    assert places == [(12, 4, 384), (6, 8, 384), (4, 8, 256), (5, 8, 320)]
    refused = [c.refused for c in sweep.candidates]
    assert refused[:3] == ["", "", ""] and "layers % stages" in refused[6]
    assert "reaches a batch of 208 is not micro_batch" in refused[3]  # the ramp-up's: by 4 x 8
    assert all(c.config.train.rampup == "" for c in sweep.candidates)
    assert running.sizes(sweep.candidates[0], sweep)["nodes"] == 48
    planned = written(
        tmp_path,
        gpus=384,
        node=8,
        options=options,
        plan={"memory": 80, "tflops": 150, "top": 2},
    )
    first, second = read_sweep(planned, 3).candidates
    assert [(c.config.parallel.pp, c.config.parallel.dp) for c in (first, second)] == [
        (6, 8),
        (12, 4),
    ]
    assert first.plan is not None and f"{first.plan:.1f}" == "99.0"  # docs/planning.md


def test_the_file_of_a_job_is_the_configuration_of_the_candidate(tmp_path: Path) -> None:
    path = written(tmp_path, jobs=[{"fault": "sleep@0:2:step"}], environment={"A": "b"})
    sweep = read_sweep(path, 5)
    (candidate,) = sweep.candidates
    job = running.job_of(candidate, sweep, tmp_path)
    assert load_config(["--config", str(tmp_path / "config.yaml")]) == candidate.config
    assert candidate.config.train.iterations == 5 and candidate.config.run.fault
    assert (job.ranks, job.gpus, job.environment["A"]) == (1, 0, "b")


@pytest.mark.parametrize(
    ("ranks", "node", "nodes"),
    [(1, 8, 1), (8, 8, 1), (384, 8, 48), (12, 8, 2), (10, 8, 2), (7, 4, 7)],
)
def test_a_job_has_all_of_its_ranks(tmp_path: Path, ranks: int, node: int, nodes: int) -> None:
    """On nodes of a cluster, and on this host alone."""
    options = {**SMALL, "parallel": {"dp": ranks}, "train": {"global_batch": ranks}}
    sweep = read_sweep(written(tmp_path, gpus=ranks, node=node, options=options, jobs=[{}]), 3)
    job = running.job_of(sweep.candidates[0], sweep, tmp_path)
    assert (job.nodes, job.ranks) == (nodes, ranks) and job.per_node <= node
    assert f"--nproc-per-node={ranks}" in torchrun_command(job)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"grid": {}, "plan": {}}, "give one of grid, plan, jobs"),
        ({"grid": {"parallel.tpp": [1]}}, "parallel.tp"),
        ({"grid": {}, "gpu": 4}, "no key 'gpu'"),
        ({"plan": {"memory": 80}}, "needs memory (GiB) and tflops"),
        ({"jobs": {"parallel.tp": 1}}, "'jobs' takes a list"),
        ({"grid": {}, "gpus": 0}, "whole number above 0"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused(
    tmp_path: Path, capsys: Any, given: dict[str, Any], says: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(written(tmp_path, **given))])
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


def test_one_sweep_at_a_time_writes_a_file(tmp_path: Path) -> None:
    with Results(tmp_path / "results.jsonl"), pytest.raises(ConfigError, match="another sweep"):
        Results(tmp_path / "results.jsonl").__enter__()
    (tmp_path / "results.jsonl").write_text("{}\n")
    with pytest.raises(ConfigError, match=r"results.jsonl:1: no result"):
        Results(tmp_path / "results.jsonl").__enter__()


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.",
            "out of memory",
        ),
        ("RuntimeError: [enforce fail] can't allocate memory: you tried 8 bytes", "out of memory"),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=7.0.", "out of memory"),
        ("error: --train.precision fp16 needs a GPU", "refused"),
        ("RuntimeError: NCCL error in: socket.c:61", "failed"),
    ],
)
def test_why_a_job_ended_early_is_read_in_its_log(line: str, status: str) -> None:
    assert running.how_it_failed(f"model: 8 parameters\n{line}\n")[0] == status
    said = "hangdoctor: Rank 3 (n1, pid 7) failed first: it. Details: hangdoctor diagnose x"
    sentence = "Rank 3 (n1, pid 7) failed first: it."
    own = sentence if status == "failed" else line.removeprefix("error: ")
    assert (
        running.how_it_failed(f"[rank3]: {line}\n{said}\n" if own == line else f"{line}\n{said}")[1]
        == own
    )
    both = "hangdoctor: Rank 3 failed first: MemoryError in f (a.py:1)."
    assert running.how_it_failed(f"MemoryError: x\n{both}\n")[1] == both.removeprefix(
        "hangdoctor: "
    )


class Recorded:
    """A launcher whose job is in the given states, one a question; its ranks are in `target`."""

    def __init__(self, states: list[str], target: list[str]) -> None:
        self.states, self.words, self.ended = states, target, False

    def state(self, job: str) -> str:
        """The next state; ended for good once it was ended."""
        return "ended" if self.ended or not self.states else self.states.pop(0)

    def end(self, job: str) -> None:
        """Note it."""
        self.ended = True

    def target(self, job: str, folder: Path) -> list[str]:
        """As given."""
        return self.words


def test_ranks_that_cannot_be_captured_are_waited_for_until_the_limit(tmp_path: Path) -> None:
    """A process without ranks is no hang; what waits in the queue has its time ahead of it."""
    sleeper = subprocess.Popen(["sleep", "600"])
    try:
        wait_for_ranks(tmp_path, ["--pid", str(sleeper.pid)])
    finally:
        sleeper.kill()
        sleeper.wait()


def wait_for_ranks(tmp_path: Path, target: list[str]) -> None:
    progress = watch.Progress(tmp_path / "metrics.jsonl", 3)
    launcher = Recorded(["queued"] * 3 + ["running"] * 3, target)
    limits = watch.Limits(start=0.0, stall=0.0, job=1000.0, pause=0.0)
    watched = watch.watch(launcher, "1", progress, limits, threading.Event())  # type: ignore[arg-type]
    assert (watched.is_hung, launcher.ended) == (False, False)
    late = watch.Limits(start=1000.0, stall=1000.0, job=0.0, pause=0.0)
    launcher = Recorded(["running"] * 3, target)
    watched = watch.watch(launcher, "1", progress, late, threading.Event())  # type: ignore[arg-type]
    assert (watched.is_late, launcher.ended) == (True, True)
    assert watched.sentence


def test_both_outputs_cannot_be_printed(tmp_path: Path, capsys: Any) -> None:
    options = parser().parse_args(
        ["x.yaml", "--markdown", str(tmp_path / "table.md"), "--json", "-"]
    )
    path = written(tmp_path, jobs=[{}])
    show(chronicle(), read_sweep(path, 3), options)
    assert len(json.loads(capsys.readouterr().out)["results"]) == 5
    assert "| 48 | 183B | 4 | 8 | 12 |" in (tmp_path / "table.md").read_text()
    for words in (["--json", "-", "--markdown", "-"], ["--iterations", "1"]):
        with pytest.raises(SystemExit):
            main([str(path), *words])
