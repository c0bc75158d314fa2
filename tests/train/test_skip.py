"""--train.skip: the samples of some iterations are consumed without a step."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("deepspeed")

from hangdoctor.train.checkpoint import files  # noqa: E402
from hangdoctor.train.config import load_config  # noqa: E402
from hangdoctor.train.data.loader import MicroBatches  # noqa: E402
from hangdoctor.train.digests.compare import between  # noqa: E402
from hangdoctor.train.digests.files import read as read_digests  # noqa: E402
from hangdoctor.train.options import ConfigError  # noqa: E402
from hangdoctor.train.passing_over import passed_over  # noqa: E402
from hangdoctor.train.schedule import BatchSize  # noqa: E402
from hangdoctor.train.validate import Machine, check  # noqa: E402
from tests.support.trainer_ranks import SMALL, metrics, run_cases  # noqa: E402

# Dropout, so that the random streams count, and a learning rate that is another one at each step.
FLAGS = [*SMALL, *"--model.hidden_dropout 0.1 --data.workers 1 --train.clip_grad 0.5".split()]
FLAGS += "--optimizer.warmup_samples 24 --optimizer.decay_samples 64".split()
FILTERED = ["--lacking", "32-47"]  # the samples of iterations 5 and 6, of 8 samples each
SAME = ("loss", "grad_norm", "learning_rate")


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """Iterations 5 and 6 passed over, in one go and resumed before them; and data without them."""
    folder = tmp_path_factory.mktemp("skip")
    skip = ["--train.iterations", "8", "--train.skip", "5-6"]
    saved = ["--checkpoint.dir", str(folder / "ckpt"), "--checkpoint.interval", "4"]

    def digested(name: str, iteration: int) -> list[str]:
        return ["--log.digests", str(folder / name), "--log.digest_iterations", str(iteration)]

    run_cases(
        2,
        {
            "skipping": [*FLAGS, *skip, *saved, *digested("a", 8)],
            "resumed": [*FLAGS, *skip, "--checkpoint.load", str(folder / "ckpt" / "global_step4")],
            "filtered": [*FILTERED, *FLAGS, "--train.iterations", "6", *digested("b", 6)],
            "whole": [*FLAGS, "--train.iterations", "8"],
        },
        folder,
    )
    return folder


def steps(folder: Path, name: str) -> list[tuple[float, ...]]:
    return [tuple(m[n] for n in SAME) for m in metrics(folder, name)]


@pytest.mark.torch
def test_a_run_that_skips_equals_one_of_data_without_those_samples(trained) -> None:
    """To the last bit: losses, gradient norms, learning rates, and all that the ranks hold at the end."""
    assert steps(trained, "skipping") == steps(trained, "filtered")
    assert steps(trained, "skipping")[:4] == steps(trained, "whole")[:4]
    assert steps(trained, "skipping")[4:] != steps(trained, "whole")[6:]
    tensors = [read_digests(trained / "a", 8, "after"), read_digests(trained / "b", 6, "after")]
    assert {"weight", "exp_avg_sq", "random"} <= {line["kind"] for line in tensors[0]}
    assert between(*tensors) == []


@pytest.mark.torch
def test_iterations_and_consumed_samples_count_on_and_the_learning_rate_does_not(trained) -> None:
    counts = [(m["iteration"], m["consumed_samples"]) for m in metrics(trained, "skipping")]
    assert counts == [(1, 8), (2, 16), (3, 24), (4, 32), (7, 56), (8, 64)]
    state = files.inspect(trained / "ckpt" / "global_step8").meta["state"]
    assert (state["consumed_samples"], state["scheduled_samples"]) == (64, 48)
    assert (state["consumed_tokens"], state["scheduled_tokens"]) == (64 * 32, 48 * 32)
    said = (trained / "logs" / "rank0.log").read_text()
    assert (
        " iterations 5-6: passed over (--train.skip), 16 samples consumed without a step\n" in said
    )


@pytest.mark.torch
def test_a_run_resumed_before_them_skips_the_same(trained) -> None:
    assert metrics(trained, "resumed")[0]["iteration"] == 7
    assert steps(trained, "resumed") == steps(trained, "skipping")[4:]


def test_ranges_may_touch_and_overlap() -> None:
    over = passed_over("3-4, 5,5-7")
    assert [n for n in range(1, 10) if over.last(n)] == [3, 4, 5, 6, 7]
    assert passed_over(" ").ranges == ()


def test_the_batches_of_a_ramp_up_keep_their_samples() -> None:
    """Batches of 2, 2, 4, 4, ...: without the second iteration the third still begins at sample 4."""
    ramp = BatchSize(4, 2, 2, 4)
    order = iter(MicroBatches(ramp, 1, (0, 1), (0, 0), passed_over=passed_over("2")))
    found = [next(order) for _ in range(6)]
    assert found == [[(1, 0)], [(1, 1)], [(3, 4)], [(3, 5)], [(3, 6)], [(3, 7)]]


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--train.skip", "7-5"], "such as '6990-7010,7200', got '7-5'"),
        (["--train.skip", "0"], "got '0'"),
        (["--train.skip", "5,"], "got '5,'"),
        (["--train.skip", "90-101"], "90-101 goes beyond --train.iterations 100"),
        (["--train.skip", "5-6", "--fault", "sleep@0:6"], "'5-6' passes over this iteration"),
    ],
)
def test_what_cannot_be_meant_is_refused(flags, complaint) -> None:
    with pytest.raises(ConfigError, match=complaint):
        check(load_config(flags), Machine(1, has_gpu=False))
