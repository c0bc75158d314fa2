"""docs/ACCURACY.md: what was measured is written anew, with its date; the other sections stay."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from benchmarks.accuracy import document, findings
from benchmarks.accuracy.findings import Findings, Made
from benchmarks.accuracy.known_tools import NOT_MEASURED
from benchmarks.accuracy.score import Result, Said

TODAY = Made("2026-02-03", "hangdoctor 9, Python 3", "5000", 60.0)


def result(part: str, mode: str, exact: bool = True, victim: bool = False) -> Result:
    found = Result(part, mode, "skipped", 5000, "rank 3", "hang", [("order", [3])], [3])
    found.exact, found.victim, found.kind_right = exact, victim, True
    found.said = [Said("order", 0.9, exact)]
    return found


REAL = Findings([result("real", "black box")], made={"real": TODAY})
TOOLS = Findings(
    tools=[
        result("hangdoctor", "stacks (fsdp2)"),
        result("hangdoctor", "stacks (ray)", exact=False),
        result("majority", "stacks (fsdp2)", exact=False, victim=True),
        result("majority", "stacks (ray)"),
        result("nvrx-logs", "logs alone (torchrun)"),
    ],
    made={"tools": TODAY},
)
TOOLS.tools[-1].status = NOT_MEASURED


def written(found: Findings, before: str = "") -> str:
    return "\n".join(document.lines(found, before)) + "\n"


def section(text: str, part: str) -> str:
    return text.partition(f"## {document.TITLES[part]}\n")[2].partition("\n## ")[0]


def test_a_part_that_was_not_measured_again_stays_with_its_own_date() -> None:
    later = msgspec.structs.replace(TODAY, date="2026-11-30")
    first = written(REAL)
    both = written(Findings(tools=TOOLS.tools, made={"tools": later}), first)
    assert section(both, "real") == section(first, "real")
    assert "Measured 2026-02-03" in section(both, "real")
    assert "Measured 2026-11-30" in section(both, "tools")
    assert written(Findings(), both) == both
    again = written(
        Findings([result("real", "dumps only", exact=False)], made={"real": later}), both
    )
    assert "black box" not in section(again, "real") and "| dumps only | 1 | 0.0 % |" in again
    assert section(again, "tools") == section(both, "tools")


def test_tools_have_a_row_for_each_evidence_and_a_column_for_each_framework() -> None:
    text = section(written(TOOLS), "tools")
    assert "| stacks | hangdoctor | 2 | 50.0 % | 0.0 % | 0.0 % |" in text
    assert "| stacks | majority | 2 | 50.0 % | 50.0 % |" in text
    assert "| stacks (ray) | 1 | 0.0 % / 0.0 % | 100.0 % / 0.0 % | - |" in text
    assert f"| logs alone (torchrun) | 1 | - | - | {NOT_MEASURED} |" in text
    assert "- majority: a baseline" in text and "- torch: " not in text


@pytest.mark.parametrize("seeds", ["5000", "5001-5002"])
def test_runs_of_one_part_are_joined(tmp_path: Path, seeds: str) -> None:
    other = msgspec.structs.replace(TODAY, seeds=seeds, took_s=30.0)
    for name, made in (("one", TODAY), ("other", other)):
        one = Findings([result("real", "black box")], made={"real": made})
        (tmp_path / name).write_bytes(msgspec.json.encode(one))
    joined = findings.join([findings.read(tmp_path / name) for name in ("one", "other")])
    assert len(joined.results) == 2 and joined.made["real"].took_s == 90.0
    assert joined.made["real"].seeds == ("5000" if seeds == "5000" else "5000,5001-5002")
    assert joined.made["real"].date == TODAY.date
