"""What torch's analyzer of recorder dumps prints, where the dumps themselves are gone: the analyzer
itself runs, on dumps as NCCL's ranks write them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.accuracy.simulate import simulate
from hangdoctor.diagnosis import diagnose
from hangdoctor.model.diagnosis import Diagnosis
from hangdoctor.model.layout import Layout
from hangdoctor.readers.offline import read

HEAD = """Not all ranks joining collective, sequence number: 81
internal record id: 400
group info: 0:default_pg
collective: nccl:all_reduce
missing ranks: {missing}
input sizes: [[4, 8]]
output sizes: [[4, 8]]
world size: 4
expected ranks: {expected}
collective state: scheduled
collective stack trace:
 step at train.py:31
"""
PIPELINE = """Not all ranks joining collective, sequence number: 7
internal record id: 399
group info: 5:pp
collective: nccl:all_gather
missing ranks: {2}
input sizes: [[4]]
output sizes: [[8]]
world size: 2
expected ranks: {2, 3}
collective state: scheduled
collective stack trace:
 forward at model.py:9
"""


def of(tmp_path: Path, text: str) -> Diagnosis:
    file = tmp_path / "analysis.txt"
    file.write_text(text)
    return diagnose(read([file]))


@pytest.mark.torch
@pytest.mark.parametrize("kind", ["not_entered", "wrong_op", "wrong_shape"])
def test_the_analyzers_own_output(tmp_path: Path, kind: str) -> None:
    case = simulate(kind, Layout(dp=4, pp=1, tp=1), 3)
    files = case.write(tmp_path / "dumps")
    prefix = files[0].name.rstrip("0123456789")
    command = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace"]
    command += [str(tmp_path / "dumps"), "--prefix", prefix]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    found = of(tmp_path, done.stderr + done.stdout)
    assert found.status == "hang", done.stderr
    assert [c.ranks for c in found.causes] == [case.truth.ranks], done.stderr


def test_a_rank_that_is_missing_because_it_waits_elsewhere_is_no_culprit(tmp_path: Path) -> None:
    text = HEAD.format(missing="{2, 3}", expected="{0, 1, 2, 3}") + PIPELINE
    found = of(tmp_path, text)
    assert [(c.kind, c.ranks) for c in found.causes] == [("not_entered", [2])]
    assert {tuple(w.ranks) for w in found.waits} == {(0, 1), (3,)}


def test_the_first_rank_may_be_the_one_that_differs(tmp_path: Path) -> None:
    """The analyzer compares with the first rank and calls all others culprits."""
    errors = ", ".join(
        f"Culprit rank {rank}; Error type: SIZE_OR_SYNTAX_MISMATCH, Expected input sizes: "
        "'[[9, 8]]' does not match found input sizes: '[[4, 8]]'"
        for rank in (1, 2, 3)
    )
    text = HEAD.format(missing="{9}", expected="{0, 1, 2, 3}")
    text = text.replace(
        "Not all ranks joining collective, sequence number: 81",
        "Collective sequence number: 81 has errors",
    )
    text = text.replace("missing ranks: {9}\n", "").replace("[[4, 8]]", "[[9, 8]]")
    text = text.replace("collective stack", f"error msg: {errors}\ncollective stack")
    found = of(tmp_path, text)
    assert [(c.kind, c.ranks) for c in found.causes] == [("mismatch", [0])]


def test_the_head_of_a_mismatch_in_older_versions(tmp_path: Path) -> None:
    text = (
        "Collective 39 at entry 38 errors\ngroup info: 0:default_pg\ncollective: nccl:all_reduce\n"
        "input sizes: [[10]]\noutput sizes: [[10]]\nworld size: 4\nexpected ranks: {0, 1, 2, 3}\n"
        "collective state: scheduled\nerror msg: Culprit rank 2; Error type: SIZE_OR_SYNTAX_MISMATCH, "
        "Expected input sizes: '[[10]]' does not match found input sizes: '[[26]]'\n"
    )
    found = of(tmp_path, text)
    assert [(c.kind, c.ranks) for c in found.causes] == [("mismatch", [2])]
    assert "all_reduce #39 with shapes [[26]]" in found.summary


def test_before_torch_2_7_only_the_number_of_members_is_printed(tmp_path: Path) -> None:
    text = HEAD.format(missing="{2}", expected="4").replace("world size: 4\n", "")
    text = text.replace(", sequence number: 81", " 81 at entry 400")
    found = of(tmp_path, text)
    assert [(c.kind, c.ranks) for c in found.causes] == [("not_entered", [2])]


def test_dumps_beside_it_come_first(tmp_path: Path) -> None:
    case = simulate("not_entered", Layout(dp=4, pp=1, tp=1), 3)
    files = case.write(tmp_path / "dumps")
    text = tmp_path / "analysis.txt"
    text.write_text(HEAD.format(missing="{0}", expected="{0, 1, 2, 3}"))
    found = diagnose(read([*files, text]))
    assert [c.ranks for c in found.causes] == [case.truth.ranks]
    assert any("the dumps themselves are there" in note for note in found.notes)
