"""Any tool on cases as folders: what is written, what a tool is asked, and what its answers come to."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from benchmarks.accuracy import adapters, cases, majority, simulated, tools
from benchmarks.accuracy.cases import Truth
from benchmarks.accuracy.known_tools import NOT_MEASURED
from benchmarks.accuracy.tool_tables import tables
from benchmarks.accuracy.tools import Answer, SaidCause, Tool, score
from hangdoctor.model.capture import JobCapture, NodeCapture, RankCapture
from hangdoctor.storage import bundle

CULPRIT = Truth("dump files", "simulated", "skipped", 8, [3], ["order"], alternatives=[[3, 4]])
HEALTHY = Truth("logs alone", "torchrun", "healthy", 4, [], [], hang=False, status="healthy")
UNSHOWN = Truth(
    "logs alone", "torchrun", "skip", 4, [], [], alternatives=[[2]], status="any"
)  # nothing in it shows that it was rank 2
TOOL = Tool("mine", "mine {folder}")


def answer(*ranks: int, kind: str = "order", confidence: float | None = 0.9) -> Answer:
    return Answer("hang", [SaidCause(list(ranks), kind, confidence)])


@pytest.mark.parametrize(
    ("truth", "said", "exact", "victim", "kind"),
    [
        (CULPRIT, answer(3), True, False, True),
        (CULPRIT, answer(3, 4), True, False, True),
        (CULPRIT, answer(3, kind="dead"), True, False, False),
        (CULPRIT, answer(4), False, False, True),
        (CULPRIT, answer(5), False, True, True),
        (CULPRIT, Answer("unknown"), False, False, False),
        (CULPRIT, Answer(causes=[SaidCause([3])]), True, False, True),
        (CULPRIT, Answer(readings=[[5], [3]]), True, False, True),
        (CULPRIT, Answer(readings=[[5, 6], [7]]), False, True, True),
        (HEALTHY, Answer(), True, False, True),
        (HEALTHY, Answer("unknown"), False, False, True),
        (HEALTHY, answer(1), False, True, False),
        (UNSHOWN, Answer("unknown"), True, False, True),
        (UNSHOWN, answer(2), True, False, False),
        (UNSHOWN, answer(1), False, True, False),
    ],
)
def test_what_an_answer_comes_to(
    truth: Truth, said: Answer, exact: bool, victim: bool, kind: bool
) -> None:
    result = score(TOOL, said, truth)
    assert (result.exact, result.victim, result.kind_right) == (exact, victim, kind)


def test_a_confidence_that_is_not_given_is_not_counted() -> None:
    assert [s.confidence for s in score(TOOL, answer(3), CULPRIT).said] == [0.9]
    assert score(TOOL, answer(3, confidence=None), CULPRIT).said == []


def test_a_tool_of_ones_own_is_asked_once_a_case_and_counted_by_evidence(tmp_path: Path) -> None:
    cases.write_simulated(tmp_path, [7], ["dead"], layouts=simulated.LAYOUTS[:1])
    some = [c for c in cases.read(tmp_path) if c[1].evidence == "dump files"]
    assert len(some) == 1 and all(any(evidence.iterdir()) for evidence, _ in some)
    script = tmp_path / "always_three.py"
    script.write_text(
        "import sys, os, json\n"
        "folder, size = sys.argv[1:]\n"
        "assert os.listdir(folder) and 'truth.json' not in os.listdir(folder)\n"
        "print(json.dumps({'status': 'hang', 'causes': [{'ranks': [int(size) - 1]}]}))\n"
    )
    tool = Tool.named(f"last={sys.executable} {script} {{folder}} {{world_size}}")
    found = list(tools.run(tool, some, 20.0))
    assert not any(failed for _, failed in found)
    results = [result for result, _ in found]
    last = [t.ranks == [t.world_size - 1] for _, t in some]
    assert [r.exact for r in results] == last
    [head, _, row, *_] = [line for line in tables(results) if line.startswith("|")]
    assert head.startswith("| evidence | tool | cases |")
    assert row.startswith("| dump files | last | 1 | ")
    assert row.split(" | ")[6] == "-"  # it says no kind


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("print('no json')", "exit code 0: JSON is malformed"),
        ("raise SystemExit('broken')", "exit code 1: .*broken"),
        ("import time; time.sleep(60)", "no answer after 1 s"),
    ],
)
def test_a_tool_that_fails_names_no_one_and_it_is_said_why(
    tmp_path: Path, code: str, why: str
) -> None:
    tool = Tool.named(f'odd={sys.executable} -c "{code}"')
    [(result, failed)] = tools.run(tool, [(tmp_path, CULPRIT)], 1.0)
    assert not result.exact and not result.victim and not result.named
    assert re.search(why, failed)


def test_a_command_that_is_not_there_is_said(tmp_path: Path) -> None:
    [(_, failed)] = tools.run(Tool.named("odd=/nonexistent/tool"), [(tmp_path, CULPRIT)], 1.0)
    assert "No such file" in failed
    with pytest.raises(ValueError, match="no NAME=COMMAND"):
        Tool.named("nobody-knows-it")


def test_what_a_peer_cannot_read_is_not_held_against_it(tmp_path: Path) -> None:
    assert adapters.torch(tmp_path).status == adapters.torchelastic(tmp_path).status == NOT_MEASURED
    result = score(TOOL, Answer(NOT_MEASURED), CULPRIT)
    [_, _, row, *_] = [line for line in tables([result]) if line.startswith("|")]
    assert row.split(" | ")[3] == NOT_MEASURED


def test_a_known_tool_is_asked_for_evidence_that_it_reads(tmp_path: Path) -> None:
    assert Tool.named("torch").can_read(CULPRIT) and not Tool.named("torch").can_read(HEALTHY)
    assert Tool.named("hangdoctor").can_read(HEALTHY) and TOOL.can_read(HEALTHY)
    assert list(tools.run(Tool.named("torchelastic"), [(tmp_path, CULPRIT)], 1.0)) == []


def test_who_has_another_stack_than_most_is_the_baselines_answer(tmp_path: Path) -> None:
    lines = {0: 31, 1: 31, 2: 31, 3: 9, 4: 31}
    raw = {
        f"{10 + rank}.{sample}.json": json.dumps(
            [
                {"tid": 1, "name": "pool", "frames": []},
                {"tid": 2, "name": "MainThread", "frames": [_frame(line if sample else rank)]},
            ]
        )
        for rank, line in lines.items()
        for sample in (0, 1)
    }
    ranks = [RankCapture(pid=10 + rank, rank=rank, world_size=5) for rank in lines]
    saved = tmp_path / "saved"
    capture = JobCapture("job", [NodeCapture("n0", ranks=ranks, raw=raw)], world_size=5)
    cases.without_verdict(_made(saved), capture)
    assert adapters.majority(saved).readings == [[3], []]  # the same function, another line
    # what a bundle keeps in files of its own goes with it
    evidence = tmp_path / "evidence"
    cases.without_verdict(_made(evidence), cases.with_raw(bundle.load(saved), saved))
    assert adapters.majority(evidence).readings == [[3], []]
    assert majority.differing({0: (1,), 1: (2,)}) == []  # no majority


def _frame(line: int) -> dict[str, object]:
    return {"name": "step", "file": "train.py", "line": line}


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_torchelastics_first_failure_as_an_answer(tmp_path: Path) -> None:
    (tmp_path / "job.out").write_text(
        "Root Cause (first observed failure):\n[0]:\n  rank      : 2 (local_rank: 2)\n=====\n"
    )
    assert [c.ranks for c in adapters.torchelastic(tmp_path).causes] == [[2]]


def test_a_case_that_is_not_whole_is_left_out(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), cases.case(tmp_path, "one") as evidence:
        (evidence / "dump").write_text("half")
        raise RuntimeError
    assert not (tmp_path / "one").exists()
    with cases.case(tmp_path, "two") as evidence:
        assert cases.read(tmp_path) == []
        cases.finish(evidence, CULPRIT)
    assert cases.read(tmp_path) == [(tmp_path / "two" / "evidence", CULPRIT)]
    assert json.loads((tmp_path / "two" / "truth.json").read_text())["schema"] == cases.SCHEMA
