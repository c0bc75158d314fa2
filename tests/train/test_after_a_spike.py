"""The 104B chronicle on one small job: a spike, back to the checkpoint before it, its data passed over,
charts renamed. What caused this spike is known: samples of another script in a blend.
"""

from __future__ import annotations

import json
import random
import socket
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("deepspeed")
pytest.importorskip("tensorboard")

from hangdoctor.train.checkpoint import training  # noqa: E402
from hangdoctor.train.data import prepare  # noqa: E402
from hangdoctor.train.digests.files import read as read_digests  # noqa: E402
from hangdoctor.train.rollback.__main__ import main as rollback  # noqa: E402
from hangdoctor.train.spikes.__main__ import main as spikes  # noqa: E402
from hangdoctor.train.tb.__main__ import main as tb  # noqa: E402
from tests.support.event_files import LOSS, charts  # noqa: E402
from tests.support.trainer_ranks import SMALL, metrics, run_cases  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.timeout(420)]

VARIANCE = ["--log.adam_variance", "true"]
# Eight parts of a blend with a sample each in a thousand: all are due in the middle, after 496 others,
# which is the whole batch of iteration 63.
BAD, SPIKE, GOOD, LAST = 8, 63, 60, 68


def flags(folder: Path) -> list[str]:
    """A job of two replicas; both starts have the same."""
    data = f"0.992 {folder / 'text'}" + f" 0.001 {folder / 'bad'}" * BAD
    where = {"checkpoint.dir": "ckpt", "log.tensorboard": "tb"}
    words = [*SMALL, "--data.path", data, *VARIANCE]
    words += f"--train.iterations {LAST} --checkpoint.interval 20 --log.spikes true".split()
    words += "--optimizer.warmup_samples 160 --optimizer.lr 5e-3".split()
    mark = folder / "ckpt" / training.NAME
    words += ["--log.on_spike", f"cp {mark} {folder}/paged-at-{{iteration}}"]
    return [*words, *(w for k, v in where.items() for w in (f"--{k}", str(folder / v)))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Path:
    """Trained with the spike."""
    folder = tmp_path_factory.mktemp("spike")
    noise = random.Random(0)
    text = "".join(chr(noise.randrange(0x4E00, 0x9FA5)) for _ in range(2000))
    (folder / "bad.txt").write_text(text)
    sources = sorted(Path(json.__file__).parent.glob("*.py"))
    for name, inputs in (("text", sources), ("bad", [folder / "bad.txt"])):
        words = ["--input", *map(str, inputs), "--output", str(folder / name), "--workers", "1"]
        assert prepare.main(words) == 0
    digests = ["--log.digests", str(folder / "digests"), "--log.digest_iterations", str(LAST)]
    sizes = {
        axis: [*SMALL, *VARIANCE, f"--parallel.{axis}", "2", "--train.iterations", "2"]
        for axis in ("tp", "pp", "dp")
    }
    run_cases(2, {"first": [*flags(folder), *digests], **sizes}, folder / "first", timeout=200)
    return folder


@pytest.mark.full
def test_adams_variance_is_that_of_all_weights_in_any_layout(folder) -> None:
    """Tied weights, norms and replicas count once; the digests of both ranks say the same."""
    names = ("variance_l1", "variance_l2", "variance_max")
    logged = {a: [metrics(folder / "first", a)[-1][n] for n in names] for a in ("tp", "pp", "dp")}
    assert min(logged["dp"]) > 0
    for axis in ("tp", "pp"):
        assert logged[axis] == pytest.approx(logged["dp"], rel=1e-4)
    lines = read_digests(folder / "digests", LAST, "after")
    moments = [line for line in lines if line["kind"] == "exp_avg_sq"]
    _, norm, largest = (metrics(folder / "first", "first")[-1][n] for n in names)
    assert norm == pytest.approx(sum(m["norm"] ** 2 for m in moments) ** 0.5, rel=1e-5)
    assert largest == pytest.approx(max(m["largest"] for m in moments), rel=1e-5)


@pytest.mark.full
def test_the_story(folder, capsys) -> None:
    """Found live and afterwards, rolled back, passed over, and not there again."""
    log = (folder / "first" / "logs" / "rank0.log").read_text()
    assert f" spike at iteration {SPIKE}: lm loss " in log
    # The command ran while the job trained, and found it marked as such.
    assert json.loads((folder / f"paged-at-{SPIKE}").read_text())["host"] == socket.gethostname()
    assert "variance max: " in log and "variance-max/variance-max" in charts(folder / "tb")
    code = spikes([str(folder / "tb"), "--json", str(folder / "found.json")])
    found = json.loads((folder / "found.json").read_text())
    assert code == 10 and found["warm_up_end"] == 21
    assert [s["first"] for s in found["spikes"] if s["what"] == "lm loss"] == [SPIKE]
    assert training.who(folder / "ckpt") == "" and not (folder / "ckpt" / training.NAME).exists()

    assert rollback([str(folder / "ckpt"), "--to", str(GOOD)]) == 0
    assert charts(folder / "tb")[LOSS] == list(range(1, GOOD + 1))
    again = [*flags(folder), "--train.skip", str(SPIKE)]
    run_cases(2, {"again": again}, folder / "second", timeout=200)
    before, after = metrics(folder / "first", "first"), metrics(folder / "second", "again")
    assert [m["iteration"] for m in after] == [61, 62, 64, 65, 66, 67, 68]
    assert [m["loss"] for m in after[:2]] == [m["loss"] for m in before[GOOD : GOOD + 2]]

    wanted = [n for n in range(1, LAST + 1) if n != SPIKE]
    assert charts(folder / "tb")[LOSS] == wanted
    assert charts(folder / "tb")[f"{LOSS} vs samples"] == [8 * n for n in wanted]
    assert spikes([str(folder / "tb")]) == 0

    (folder / "names").write_text(
        f'"{LOSS}" "loss/train"\n"{LOSS} vs samples" "loss/train vs samples"\n'
    )
    one, shared = str(folder / "tb-one"), str(folder / "tb-shared")
    assert tb(["merge", str(folder / "tb"), "--to", one]) == 0
    assert tb(["rename", one, "--to", shared, "--map", str(folder / "names")]) == 0
    assert charts(Path(shared))["loss/train"] == wanted
    capsys.readouterr()
