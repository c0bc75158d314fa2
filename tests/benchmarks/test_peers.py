"""What is taken from the peers' output, and that torch's analyzer accepts the simulated dumps."""

import sys
import textwrap
from pathlib import Path

import pytest

from benchmarks.accuracy.adapters import of_dumps
from benchmarks.accuracy.cases import Truth
from benchmarks.accuracy.peers import (
    PeerResult,
    _run,
    nvrx_analyzer,
    read_nvrx,
    read_torch,
    torch_analyzer,
)
from benchmarks.accuracy.score import Result
from benchmarks.accuracy.simulate import simulate
from benchmarks.accuracy.tools import Tool, score
from hangdoctor.model.layout import Layout


def test_the_first_report_the_most_frequent_and_all() -> None:
    output = textwrap.dedent("""\
        Not all ranks joining collective, sequence number: 7
        group info: 5:tp
        missing ranks: {3}
        expected ranks: {2, 3}
        Collective sequence number: 8 has errors
        error msg: Culprit rank 1; Error type: X, Culprit rank 3; Error type: X
        Collective sequence number: 9 has errors
        error msg: Culprit rank 4; Error type: X
        """)
    assert read_torch(output) == [[3], [3], [1, 3, 4]]
    assert read_torch("No errors found for this collective entry") == []
    assert read_torch("because we missed FR dumps from ranks ({5, 6}) so we") == [
        [5, 6],
        [5, 6],
        [5, 6],
    ]


def test_the_rows_of_the_table() -> None:
    output = textwrap.dedent("""\
        PGID   | Process Group Desc | Op Type | Size | Dtype | Missing Ranks
        12     | dp,0 | nccl:all_reduce | 1 | Float | 4,5
        3      | tp,0 | nccl:all_reduce | 1 | Float | 9
        """)
    assert read_nvrx(output) == [[4, 5], [4, 5, 9]]
    assert read_nvrx("nothing") == []


def scored(result: PeerResult, ranks: list[int], *alternatives: list[int]) -> Result:
    truth = Truth(
        "dump files",
        "simulated",
        "any",
        8,
        ranks,
        [],
        hang=bool(ranks),
        alternatives=[*alternatives],
    )
    return score(Tool(result.peer, ""), of_dumps(result), truth)


def test_any_right_reading_counts() -> None:
    result = PeerResult("torch", "ok", [[3, 4], [3]])
    assert scored(result, [3]).exact and scored(result, [1], [3, 4]).exact
    assert not scored(result, [4]).exact
    assert not scored(result, [3]).victim and scored(result, [4]).victim
    none = PeerResult("torch", "timeout")
    assert scored(none, []).exact and not scored(none, [1]).exact
    assert not scored(PeerResult("nvrx", "not measured"), []).exact


def test_an_analyzer_that_does_not_end_is_ended() -> None:
    result, _ = _run("torch", [sys.executable, "-c", "while True: pass"], 0.3, {})
    assert result.status == "timeout"


def test_a_peer_that_is_not_there_is_not_measured(tmp_path: Path) -> None:
    assert nvrx_analyzer(tmp_path, where=tmp_path).status == "not measured"


@pytest.mark.torch
def test_torchs_analyzer_reads_simulated_dumps(tmp_path: Path) -> None:
    case = simulate("not_entered", Layout(dp=2, pp=2, tp=2), 1)
    case.write(tmp_path / "dumps")
    result = torch_analyzer(tmp_path / "dumps", 90)
    if result.status == "not measured":
        pytest.skip(result.detail)
    assert result.status == "ok", result.detail
    assert scored(result, case.truth.ranks).exact
