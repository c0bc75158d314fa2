"""`benchmarks.gpu` on a CPU with the smallest sizes: the code that a GPU will run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("deepspeed")

from benchmarks.gpu import (  # noqa: E402
    hangs,
    kernel_inputs,
    kernel_peers,
    kernel_truths,
    kernels,
    model,
    parity,
)
from benchmarks.gpu.options import Options  # noqa: E402
from benchmarks.gpu.results import read  # noqa: E402
from benchmarks.gpu.worker import NotHere  # noqa: E402
from hangdoctor.train.config import load_config  # noqa: E402
from hangdoctor.train.kernels import triton_support  # noqa: E402
from hangdoctor.train.kernels.registry import FLAVOURS, choose  # noqa: E402
from hangdoctor.train.validate import Machine, check  # noqa: E402

ROOT = Path(__file__).parents[2]
SMOKE = Options("cpu", True)


def test_every_kernel_of_the_trainer_has_inputs_sizes_and_a_truth() -> None:
    measured = {*kernel_inputs.INPUTS, "adam"}
    assert set(FLAVOURS) <= measured
    assert measured == set(kernel_inputs.SIZES)
    assert set(kernel_inputs.INPUTS) == set(kernel_truths.TRUTHS)
    assert all(len(sizes) >= 2 for sizes in kernel_inputs.SIZES.values())


def test_every_flavour_of_every_kernel_is_a_unit_on_a_gpu(monkeypatch: Any) -> None:
    monkeypatch.setattr(kernels, "missing", lambda options: {})
    units = set(kernels.units(Options("cuda")))
    for kernel in FLAVOURS:
        flavours = {*kernel_peers.own(kernel), "compile"} if kernel != "adam" else {"triton"}
        for size in kernel_inputs.SIZES[kernel]:
            assert {f"{kernel} {size} {f}" for f in flavours} <= units
    assert "attention 32k flash" in units and "cross_entropy 4096x128256 liger" in units


def test_torchs_own_kernels_can_be_chosen_on_a_gpu_too() -> None:
    """What the fused ones are measured beside."""
    chosen = choose("torch", torch.device("cuda"))
    assert set(chosen.used.values()) == {"torch"}
    assert "(--kernels torch: " in chosen.line()


@pytest.mark.parametrize("kernel", sorted(kernel_inputs.INPUTS))
def test_an_error_in_a_kernel_shows(kernel: str) -> None:
    """Of the values, and of the gradients alone."""
    function = kernel_peers.own(kernel)["reference"]
    size = kernel_inputs.for_check(kernel_inputs.sizes(kernel, True)["tiny"])

    def error_of(changed: Any) -> float:
        made = kernel_inputs.INPUTS[kernel](kernel_inputs.Maker("cpu", torch.float32), size)
        return kernels.worst_error(kernel, changed, made)

    limit = kernels.LIMITS[torch.float32]
    assert error_of(function) <= limit
    assert error_of(on_first(function, lambda t: 1.01 * t)) > limit
    gradient_only = on_first(function, lambda t: t.detach() + 0.9 * (t - t.detach()))
    assert error_of(gradient_only) > limit
    assert not error_of(on_first(function, lambda t: t * float("nan"))) <= limit


def on_first(function: Any, change: Any) -> Any:
    """`function` with its first output changed."""

    def changed(*arguments: Any, **keywords: Any) -> Any:
        made = function(*arguments, **keywords)
        return change(made) if isinstance(made, torch.Tensor) else (change(made[0]), *made[1:])

    return changed


def test_a_library_that_is_missing_or_lacks_a_kernel_says_so(monkeypatch: Any) -> None:
    monkeypatch.setattr(kernel_peers, "_LIGER", "json")  # a package without the function
    with pytest.raises(NotHere, match="liger has no rms_norm: module 'json' has no attribute"):
        kernels._found("rms_norm", "liger", SMOKE)
    monkeypatch.setattr(kernel_peers, "_LIGER", "absent_package")
    with pytest.raises(NotHere, match="liger has no rms_norm: No module named"):
        kernels._found("rms_norm", "liger", SMOKE)


def test_the_trainer_takes_the_flags_of_every_training_on_a_gpu(tmp_path: Path) -> None:
    on_gpu = Options("cuda")
    plan = parity.planned(tmp_path, [], on_gpu)
    for unit in model.units(on_gpu):
        way, *settings = unit.split(" ")
        if way != model.PLAIN:
            chosen = dict(word.split("=") for word in settings)
            plan.append((unit, model.flags_of(way, chosen, on_gpu)))
    assert len(plan) == 20 + 8
    for name, flags in plan:
        config = load_config([*flags, "--parallel.dp", "1"])
        check(config, Machine(1, has_gpu=True))
        assert config.train.precision == ("fp16" if name == "overflow" else "bf16")


def test_a_job_behind_run_is_ready_under_its_own_process_id(tmp_path: Path) -> None:
    """Not that of `run`: it is what `dump` is given."""
    case = hangs.Case("probed", "sleeps", (), world=2, probe=True)
    with hangs.job(case, tmp_path) as pids:
        words = [psutil.Process(pid).cmdline() for pid in pids]
        assert [w[-2:] for w in words] == [["benchmarks.gpu.jobs.hang", "sleeps"]] * 2
        assert not any("run" in w for w in words)
        ranks = [psutil.Process(pid) for pid in pids]
    psutil.wait_procs(ranks, timeout=60)
    assert not any(rank.is_running() for rank in ranks)


@pytest.mark.full
@pytest.mark.torch
@pytest.mark.timeout(600)
def test_the_whole_command(tmp_path: Path) -> None:
    out = tmp_path / "gpu.json"
    command = [sys.executable, "-m", "benchmarks.gpu", "--device", "cpu", "--smoke"]
    done = subprocess.run(
        [*command, "--minutes", "60", "--out", str(out)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    sections = read(out)["sections"]
    assert list(sections) == ["fingerprint", "model", "kernels", "hangs", "parity"]
    for name, section in sections.items():
        assert section["state"] == "whole", (name, section, done.stderr)
    rows = [row for section in sections.values() for row in section["rows"]]
    assert not [row for row in rows if row.get("right") is False]
    assert not [row for row in rows if "error" in row and not row["error"] <= row["limit"]]
    assert {row["kernel"] for row in rows if "kernel" in row} == {*kernel_inputs.INPUTS, "adam"}
    by_triton = {row["kernel"] for row in rows if row.get("flavour") == "triton"}
    has_triton = {kernel for kernel, table in FLAVOURS.items() if "triton" in table}
    if not triton_support.AVAILABLE:
        assert by_triton == has_triton | {"attention"}
    ways = {row["way"]: row for row in rows if "way" in row}
    assert ways["torch"]["slowest"] and ways["plain_gpt"]["tokens_per_s"] > 0
    assert "### Right and exact" in done.stdout
