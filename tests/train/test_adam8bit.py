"""Adam with moments of 8 bits: near the one of 32 bits, and a restart changes nothing."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("deepspeed")
bitsandbytes = pytest.importorskip("bitsandbytes")

from hangdoctor.train.checkpoint import files, universal  # noqa: E402
from hangdoctor.train.checkpoint.compare import check_same_training  # noqa: E402
from hangdoctor.train.config import load_config  # noqa: E402
from hangdoctor.train.kernels import adam8bit  # noqa: E402
from hangdoctor.train.kernels.adam8bit import with_adam8bit  # noqa: E402
from hangdoctor.train.kernels.registry import choose  # noqa: E402
from hangdoctor.train.options import ConfigError  # noqa: E402
from hangdoctor.train.planning.memory import moment_bytes  # noqa: E402
from hangdoctor.train.validate import Machine, check  # noqa: E402
from tests.support.trainer_ranks import ROOT, SMALL, metrics, run_cases  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]

CPU = torch.device("cpu")
EIGHT = "--optimizer.kind adam8bit".split()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two stages and two replicas with ZeRO-1: both kinds, and each precision resumed."""
    folder = tmp_path_factory.mktemp("adam8bit")
    common = [*SMALL, *"--parallel.pp 2 --train.iterations 8 --optimizer.lr 5e-3".split()]

    def saving(name: str, *flags: str) -> dict[str, list[str]]:
        here = [*common, *EIGHT, *flags]
        save = ["--checkpoint.dir", str(folder / name), "--checkpoint.interval", "4"]
        load = ["--checkpoint.load", str(folder / name / "global_step4")]
        return {name: [*here, *save], f"{name}_resumed": [*here, *load]}

    cases = {"adam": common, **saving("fp32"), **saving("bf16", "--train.precision", "bf16")}
    run_cases(4, cases, folder, timeout=200)
    return folder


def losses(folder: Path, name: str) -> list[float]:
    return [line["loss"] for line in metrics(folder, name)]


@pytest.mark.full
def test_losses_are_near_those_of_moments_of_32_bits(trained: Path) -> None:
    ours, wanted = losses(trained, "fp32"), losses(trained, "adam")
    assert ours == pytest.approx(wanted, abs=2e-3)
    assert ours[2:] != wanted[2:]  # it is another optimizer
    assert ours[-1] < ours[0] - 0.5
    log = (trained / "logs" / "rank0.log").read_text()
    assert "kernels: bitsandbytes: adam; torch: " in log


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_restart_is_exact(trained: Path, precision: str) -> None:
    kept = ("iteration", "loss", "grad_norm")
    whole, resumed = (
        [[line[name] for name in kept] for line in metrics(trained, run)]
        for run in (precision, f"{precision}_resumed")
    )
    assert len(resumed) == 4 and resumed == whole[4:]


def test_moments_have_the_bytes_that_the_plan_counts() -> None:
    config = load_config(EIGHT)
    for elements in (4095, 4096, 10_000):
        weight = torch.nn.Parameter(torch.ones(elements))
        adam = with_adam8bit(choose("auto", CPU)).adam
        optimizer = adam([weight], lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
        weight.grad = torch.ones(elements)
        optimizer.step()
        state = optimizer.state[weight]
        names = [n for n in state if n.startswith(("state", "absmax"))]
        found = sum(state[n].numel() * state[n].element_size() for n in names)
        assert found == moment_bytes(config, elements)
    assert moment_bytes(load_config([]), 10_000) == 80_000


def test_another_layout_and_another_kind_are_refused(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="moments in 8 bits"):
        universal.convert(trained / "fp32" / "global_step4", tmp_path / "universal")
    saved = files.inspect(trained / "fp32" / "global_step4")
    now = copy.deepcopy(saved.meta)
    now["config"]["optimizer"]["kind"] = "adam"
    with pytest.raises(ConfigError, match=r"kind is adam, the checkpoint has adam8bit"):
        check_same_training(saved, load_config([]), now)
    load = ["--checkpoint.load", str(saved.folder)]
    config = load_config([*EIGHT, *load, "--checkpoint.universal", "true"])
    with pytest.raises(ConfigError, match="moments of 32 bits alone"):
        check(config, Machine(1, False))


def test_without_the_package_the_error_says_what_to_install() -> None:
    """Before any torch is imported: a module of that name that is None counts as not there."""
    program = """
import sys
sys.modules["bitsandbytes"] = None
from hangdoctor.train.kernels.adam8bit import adam8bit_complaints, load
from hangdoctor.train.config import load_config
print(*adam8bit_complaints(load_config(['--optimizer.kind', 'adam8bit']), None))
assert "torch" not in sys.modules
try:
    load()
except ValueError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(adam8bit.INSTALL) == 2


def test_an_old_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bitsandbytes, "__version__", "0.45.1")
    with pytest.raises(ConfigError, match=r"0\.45\.1 is installed: pip install"):
        adam8bit.load()
