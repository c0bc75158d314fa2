"""Digests of tensors: what differs is named, nothing else is, and what cannot be compared says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hangdoctor.train.config import load_config  # noqa: E402
from hangdoctor.train.digests import Place, write  # noqa: E402
from hangdoctor.train.digests.__main__ import main  # noqa: E402
from hangdoctor.train.digests.compare import where  # noqa: E402
from hangdoctor.train.digests.fingerprint import fingerprints  # noqa: E402
from hangdoctor.train.options import ConfigError  # noqa: E402
from hangdoctor.train.validate import Machine, check  # noqa: E402

LAYOUT = {"pp": 2, "dp": 2, "tp": 2}


class Stage(torch.nn.Module):
    """One rank's part: the tied embedding, a norm that no group splits, a slice of a matrix."""

    def __init__(self, pp: int, tp: int) -> None:
        super().__init__()
        torch.manual_seed(tp)
        tied = torch.nn.Embedding(4, 3)
        tied.weight.tensor_model_parallel = True
        self.tied_modules = torch.nn.ModuleDict({"word_embedding": tied})
        layer = torch.nn.Module()
        layer.norm = torch.nn.LayerNorm(3)
        layer.up = torch.nn.Linear(3, 2, bias=False)
        layer.up.weight.tensor_model_parallel = True
        self.add_module(str(pp + 1), layer)


def job(folder: Path, spoil: Any = None, iteration: int = 805, when: str = "after") -> Path:
    """The digests of 2 x 2 x 2 ranks; `spoil(pp, dp, tp, stage)` may change one of them."""
    rank = 0
    for pp in range(2):
        for dp in range(2):
            for tp in range(2):
                stage, at = Stage(pp, tp), {"pp": pp, "dp": dp, "tp": tp}
                if spoil is not None:
                    with torch.no_grad():
                        spoil(pp, dp, tp, stage)
                write(folder, Place(iteration, when, rank, at), stage)
                rank += 1
    return folder


def said_of(capsys: Any, *words: Any) -> tuple[int, list[str]]:
    """Exit code and lines of the command."""
    code = main([str(word) for word in words])
    return code, capsys.readouterr().out.splitlines()


def tied_of_one(pp: int, dp: int, tp: int, stage: Any) -> None:
    """One element of the tied embedding on one rank."""
    if (pp, dp, tp) == (1, 0, 1):
        stage.tied_modules["word_embedding"].weight[3, 2] += 1e-6


def norm_of_one(pp: int, dp: int, tp: int, stage: Any) -> None:
    """The norm of one replica's tensor parallel rank."""
    if (pp, dp, tp) == (0, 1, 0):
        stage.get_submodule("1").norm.weight[0] = 1.5


def test_the_same_twice_is_equal(tmp_path: Path, capsys: Any) -> None:
    job(tmp_path), job(tmp_path, None, 806, "before")
    words = ("compare", tmp_path, tmp_path, "--after", 805, "--before", 806)
    assert said_of(capsys, *words) == (0, ["32 tensors compared: equal"])
    assert said_of(capsys, "replicas", tmp_path, "--after", 805)[0] == 0


@pytest.mark.parametrize(
    ("spoil", "place", "name"),
    [
        (tied_of_one, "pp 1, dp 0, tp 1", "tied_modules.word_embedding.weight"),
        (norm_of_one, "pp 0, dp 1, tp 0", "1.norm.weight"),
    ],
)
def test_what_changed_on_one_rank_is_named_and_nothing_else(
    tmp_path: Path, capsys: Any, spoil: Any, place: str, name: str
) -> None:
    one, other = job(tmp_path / "a"), job(tmp_path / "b", spoil, 806, "before")
    words = (one, other, "--after", 805, "--before", 806, "--json", tmp_path / "found.json")
    code, lines = said_of(capsys, "compare", *words)
    assert (code, len(lines)) == (10, 2)
    assert f"{place}: {name} (weight), norm " in lines[0]
    found = json.loads((tmp_path / "found.json").read_text())
    assert (found["equal"], len(found["mismatches"])) == (False, 1)
    assert found["mismatches"][0]["names"] == [name]
    # The same without another run: its replicas say which one it is.
    code, lines = said_of(capsys, "replicas", other, "--before", 806)
    assert (code, len(lines)) == (10, 2)
    assert f"{place}: {name} (weight), norm " in lines[0]


def test_what_changed_on_a_whole_stage_is_one_line(tmp_path: Path, capsys: Any) -> None:
    """As in the 176B model: the embedding of the last stage, on all of its ranks."""

    def last_stage(pp: int, dp: int, tp: int, stage: Any) -> None:
        if pp == 1:
            stage.tied_modules["word_embedding"].weight.mul_(1.001)

    one, other = job(tmp_path / "a"), job(tmp_path / "b", last_stage)
    code, lines = said_of(capsys, "compare", one, other, "--after", 805)
    assert code == 10
    assert (
        lines[0]
        == "pp 1, all dp, all tp: tied_modules.word_embedding.weight (weight), norm "
        + (lines[0].rpartition(", norm ")[2])
    )
    assert len(lines) == 2
    # Two stages against two: no one knows which.
    code, lines = said_of(capsys, "replicas", other, "--after", 805)
    assert lines[0].endswith("(weight): no majority") and lines[0].startswith("all pp, all dp, all")


def test_moments_of_an_optimizer_are_compared_too(tmp_path: Path, capsys: Any) -> None:
    for folder, beta in (("a", 0.9), ("b", 0.8)):
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2)
        optimizer = torch.optim.AdamW(
            model.parameters(), betas=(beta, 0.95), lr=0.0, weight_decay=0
        )
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        place = Place(1, "after", 0, {"dp": 0})
        write(
            tmp_path / folder, place, model, optimizer, {"cpu": torch.zeros(4, dtype=torch.uint8)}
        )
    code, lines = said_of(capsys, "compare", tmp_path / "a", tmp_path / "b", "--after", 1)
    assert code == 10
    assert lines == [
        "the only rank: bias, weight (exp_avg)",
        "7 tensors compared: they differ",
    ]


def test_a_tensor_or_rank_of_one_side_alone_is_named(tmp_path: Path, capsys: Any) -> None:
    one, other = job(tmp_path / "a"), job(tmp_path / "b")
    (other / "iteration_0000805_after.rank00000.jsonl").unlink()
    code, lines = said_of(capsys, "compare", one, other, "--after", 805)
    assert code == 10
    assert lines[0].startswith("pp 0, dp 0, tp 0: ") and lines[0].endswith(": only in A")


def test_no_digests_of_a_moment_is_an_error_that_says_which_there_are(
    tmp_path: Path, capsys: Any
) -> None:
    job(tmp_path)
    assert main(["replicas", str(tmp_path), "--before", "7"]) == 1
    assert "has no digests before iteration 7; it has: after 805" in capsys.readouterr().err
    (tmp_path / "iteration_0000805_after.rank00003.jsonl").write_text("{")
    assert main(["replicas", str(tmp_path), "--after", "805"]) == 1
    assert "rank00003.jsonl cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["compare", "a", "b"], ["replicas", "a", "b"], []])
def test_wrong_usage_is_exit_code_2(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2


# ---------------------------------------------------------------------- the hash


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "int64", "uint8"])
def test_one_element_in_its_last_bit_changes_the_hash(dtype: str) -> None:
    values = (torch.arange(3_000_000) % 251).to(getattr(torch, dtype))
    bits = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}[values.element_size()]
    changed, swapped = values.clone(), values.clone()
    changed.view(bits)[2_999_999] += 1
    swapped[[7, 2_500_000]] = swapped[[2_500_000, 7]]
    first, second, third, again = (f.hash for f in fingerprints([values, changed, swapped, values]))
    assert first == again
    assert len({first, second, third}) == 3


def test_a_view_and_its_copy_are_equal_and_nothing_is_changed() -> None:
    whole = torch.randn(6, 4)
    before = whole.clone()
    view = fingerprints([whole.t()[1:3]])
    assert view == fingerprints([whole.t()[1:3].contiguous()])
    assert torch.equal(whole, before)


def test_tensors_without_elements_and_without_finite_values() -> None:
    empty, nan, count = fingerprints(
        [torch.zeros(0), torch.tensor([1.0, float("nan")]), torch.tensor(3)]
    )
    assert (empty.norm, empty.largest, count.norm) == (None, None, None)
    assert nan.norm != nan.norm


def test_the_same_on_every_run_and_machine() -> None:
    """Files of one run are compared with those of another."""
    assert fingerprints([torch.arange(5, dtype=torch.float32)])[0].hash == "791260ff7fb15451"


# ---------------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ([(1, 0, 0), (1, 0, 1), (1, 1, 0), (1, 1, 1)], "pp 1, all dp, all tp"),
        ([(0, 0, 1), (1, 0, 1)], "all pp, dp 0, tp 1"),
        ([(0, 0, 0), (1, 1, 1)], "pp 0, dp 0, tp 0; pp 1, dp 1, tp 1"),
    ],
)
def test_ranks_in_words(at: list[tuple[int, ...]], expected: str) -> None:
    def named(places: Any) -> list[Any]:
        return [tuple(zip(("pp", "dp", "tp"), place, strict=True)) for place in places]

    every = named((p, d, t) for p in range(2) for d in range(2) for t in range(2))
    assert where(named(at), every, ["pp", "dp", "tp"]) == expected


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ("--log.digest_iterations 3", "--log.digest_iterations needs --log.digests FOLDER"),
        (
            "--log.digests d --log.digest_iterations 3,x",
            "takes numbers, such as '805,806', got '3,x'",
        ),
    ],
)
def test_flags_that_do_not_fit_are_refused(flags: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        check(load_config(flags.split()), Machine(1, has_gpu=False))
