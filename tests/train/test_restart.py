"""Saving and resuming for real: bit-exact, nothing reset on the last stage, other topologies,
async, refusals.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("deepspeed")

from hangdoctor.train.checkpoint import files, universal  # noqa: E402
from hangdoctor.train.digests.__main__ import main as digests  # noqa: E402
from hangdoctor.train.digests.files import read as read_digests  # noqa: E402
from tests.support.trainer_ranks import ROOT, SMALL, metrics, observed, run_cases  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]

ITERATIONS = 6
MODEL = [
    *SMALL,
    "--train.iterations",
    str(ITERATIONS),
    "--model.embedding_norm",
    "true",
    "--optimizer.lr",
    "5e-3",
]
# Dropout everywhere and recomputation: every random stream must come back.
WHOLE = [
    *MODEL,
    *"--parallel.tp 2 --parallel.pp 2 --model.hidden_dropout 0.1 --model.attention_dropout 0.1".split(),
]
WHOLE += ["--model.recompute", "true", "--parallel.sequence_parallel", "true"]
PLAIN = [*MODEL, *"--parallel.tp 2 --parallel.pp 2".split()]


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    """fp32 with dropout, saved in the background at 3, run on to 6, then resumed from 3; bf16; and
    one for other topologies.
    """
    folder = tmp_path_factory.mktemp("restart")
    there = [
        "--checkpoint.dir",
        str(folder / "dropout"),
        "--checkpoint.interval",
        "3",
        "--checkpoint.asynchronous",
        "true",
    ]
    at3 = ["--checkpoint.load", str(folder / "dropout" / "global_step3")]
    bf16 = [*PLAIN, "--train.precision", "bf16", "--checkpoint.dir", str(folder / "bf16")]

    def digested(name: str, iterations: str) -> list[str]:
        where = str(folder / "digests" / name)
        return ["--log.digests", where, "--log.digest_iterations", iterations]

    run_cases(
        4,
        {
            "whole": [*WHOLE, *there, *digested("whole", "3,4")],
            "resumed": [*WHOLE, *at3, *digested("resumed", "4")],
            "bf16_first": [*bf16, "--train.exit_after", "3", *digested("bf16", "3")],
            "bf16_resumed": [*bf16, *digested("bf16", "4")],
            "bf16_overridden": [
                *bf16,
                *"--checkpoint.override true --optimizer.beta2 0.9 --optimizer.eps 1e-6".split(),
                *"--optimizer.weight_decay 0.25 --train.clip_grad 0.5".split(),
            ],
            "bf16_whole": [*PLAIN, "--train.precision", "bf16"],
            "plain": [
                *PLAIN,
                "--checkpoint.dir",
                str(folder / "plain"),
                "--checkpoint.interval",
                "3",
                "--checkpoint.keep",
                "2",
            ],
        },
        folder,
        timeout=200,
    )
    return folder


NUMBERS = ("iteration", "consumed_samples", "loss", "grad_norm", "learning_rate", "batch_size")


def numbers(folder: Path, name: str) -> list[tuple[float, ...]]:
    return [tuple(m[n] for n in NUMBERS) for m in metrics(folder, name)]


def test_resume_is_bit_exact_with_dropout_in_fp32(saved) -> None:
    assert numbers(saved, "resumed") == numbers(saved, "whole")[3:]


def test_no_spike_on_restart_in_bf16(saved) -> None:
    assert numbers(saved, "bf16_first") + numbers(saved, "bf16_resumed") == numbers(
        saved, "bf16_whole"
    )


def test_with_override_the_configurations_settings_are_in_force(saved) -> None:
    [before, *_] = observed(saved, "bf16_resumed", 0)
    assert before["settings"] == [[0.9, 0.95, 1e-8, 0.1], [0.9, 0.95, 1e-8, 0.0]]
    [after, *_] = observed(saved, "bf16_overridden", 0)
    assert after["settings"] == [[0.9, 0.9, 1e-6, 0.25], [0.9, 0.9, 1e-6, 0.0]]
    assert (before["clip"], after["clip"]) == (1.0, 0.5)


@pytest.mark.parametrize("rank", range(4))
def test_tied_weights_and_embedding_norm_come_back_on_every_stage(rank, saved) -> None:
    before = observed(saved, "whole", rank)[3]  # after step 3
    after = observed(saved, "resumed", rank)[0]  # before step 4
    assert after == before
    assert before["prints"]  # first and last stage: each holds the tied weight
    if rank < 2:
        assert (
            before["norm_moved"] > 1e-4
        )  # the norm is not at its initial ones, which a lost one would be
        assert "1.norm.weight" in before["prints"]
    else:
        assert not any(
            n.startswith("1.norm") for n in before["prints"]
        )  # no second copy that could go stale


def test_tied_weights_are_equal_on_first_and_last_stage_after_resume(saved) -> None:
    for first, last in ((0, 2), (1, 3)):
        ends = [observed(saved, "resumed", r) for r in (first, last)]
        name = "tied_modules.word_embedding.weight"
        assert [s["prints"][name] for s in ends[0]] == [s["prints"][name] for s in ends[1]]


def test_folders_are_complete_and_latest_points_at_the_newest(saved) -> None:
    found = files.saved_in(saved / "dropout")
    assert [(s.iteration, s.fault) for s in found] == [(6, ""), (3, "")]
    assert (saved / "dropout" / "latest").read_text() == "global_step6"
    assert not list((saved / "dropout").glob("*.partial"))


def loading(target: Path) -> list[str]:
    """Flags that load a universal checkpoint."""
    return ["--checkpoint.load", str(target), "--checkpoint.universal", "true"]


def converted(source: Path) -> list[str]:
    """Flags that load the universal form of `source`, made by the command."""
    target = source.with_name(f"{source.name}_universal")
    command = [
        sys.executable,
        "-m",
        "hangdoctor.train.checkpoint.universal",
        "--input",
        str(source),
        "--output",
        str(target),
    ]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=100)
    return loading(target)


def test_another_topology_resumes_through_the_universal_format(saved) -> None:
    """From 2x2 to 1x2, 2x1 and Ulysses, and from those on to 2x1, with the losses of the
    uninterrupted run.
    """
    folder, load = saved / "universal", converted(saved / "plain" / "global_step3")
    tp, ulysses = ["--parallel.tp", "2"], ["--parallel.tp", "2", "--parallel.ulysses", "true"]

    def saving(name: str) -> list[str]:
        return ["--checkpoint.dir", str(folder / name), "--checkpoint.interval", "5"]

    first = {
        "pp": [*MODEL, "--parallel.pp", "2", *load, *saving("from_pp")],
        "ulysses": [*MODEL, *ulysses, *load, *saving("from_ulysses")],
        "tp": [*MODEL, *tp, *load],
    }
    run_cases(2, first, folder)
    again = {}
    for name in ("from_pp", "from_ulysses"):
        target = folder / name / "universal"
        universal.convert(folder / name / "global_step5", target)
        again[name] = [*MODEL, *tp, *loading(target)]
    run_cases(2, again, folder)
    for name in [*first, *again]:
        got = metrics(folder, name)
        want = metrics(saved, "plain")[-len(got) :]
        assert [g["iteration"] for g in got] == ([4, 5, 6] if name in first else [6])
        for g, w in zip(got, want, strict=True):
            assert g["loss"] == pytest.approx(w["loss"], abs=2e-5)
            assert g["grad_norm"] == pytest.approx(w["grad_norm"], rel=2e-5)


def digest(line: str, capsys) -> tuple[int, str]:
    """Exit code and output of `train.digests`."""
    code = digests(line.split())
    return code, capsys.readouterr().out


def test_digests_are_equal_over_a_restart_and_between_replicas(saved, capsys) -> None:
    whole, resumed, bf16 = (saved / "digests" / name for name in ("whole", "resumed", "bf16"))
    code, said = digest(f"compare {whole} {resumed} --after 3 --before 4", capsys)
    assert (code, said.endswith(" tensors compared: equal\n")) == (0, True), said
    kinds = {line["kind"] for line in read_digests(whole, 3, "after")}
    assert kinds == {"weight", "master", "exp_avg", "exp_avg_sq", "random"}
    assert digest(f"compare {whole} {resumed} --after 4", capsys)[0] == 0
    code, said = digest(f"compare {bf16} {bf16} --after 3 --before 4", capsys)
    assert (code, said.endswith("equal\n")) == (0, True), said
    for folder in (whole, bf16):
        assert digest(f"replicas {folder} --before 4", capsys)[0] == 0
    # A step changes every weight, master and moment, and the streams that dropout draws from.
    code, said = digest(f"compare {whole} {whole} --before 4 --after 4", capsys)
    assert code == 10 and "all pp, all tp: " in said


def test_a_digest_of_one_rank_that_differs_names_that_rank_and_tensor(
    saved, tmp_path, capsys
) -> None:
    spoilt = tmp_path / "spoilt"
    shutil.copytree(saved / "digests" / "whole", spoilt)
    file = spoilt / "iteration_0000003_after.rank00002.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    changed = [x for x in lines if x["kind"] == "weight" and "word_embedding.weight" in x["name"]]
    assert len(changed) == 1
    changed[0]["hash"] = "0" * 16
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = f"compare {saved / 'digests' / 'whole'} {spoilt} --after 3"
    code, said = digest(words, capsys)
    assert code == 10 and len(said.splitlines()) == 2, said
    assert said.startswith("pp 1, tp 0: tied_modules.word_embedding.")
    code, said = digest(f"replicas {spoilt} --after 3", capsys)
    assert code == 10 and "no majority" in said and said.startswith("all pp, tp 0: tied"), said
