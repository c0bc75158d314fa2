"""`benchmarks.gpu` loses nothing but what goes wrong: crashes, hangs, memory, Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.gpu.children import run_section
from benchmarks.gpu.options import Options
from benchmarks.gpu.plan import SECTIONS, Section, budget, selected
from benchmarks.gpu.results import Results, read
from tests.support.stage import wait_until

SECTION = Section("fake", "tests.support.gpu_section", weight=1, least_s=1, unit_s=60)
ROOT = Path(__file__).parents[2]


def measured(
    tmp_path: Path, units: list[str], section: Section = SECTION, seconds: float = 100
) -> dict[str, Any]:
    """What gpu.json says of the section."""
    results = Results(tmp_path / "gpu.json", {}, {})
    run_section(section, units, Options("cpu", True), seconds, results)
    found: dict[str, Any] = read(tmp_path / "gpu.json")["sections"]["fake"]
    return found


def test_what_goes_wrong_costs_its_own_unit_alone(tmp_path: Path) -> None:
    wrong = ["raises", "out of memory", "crashes", "poisoned"]
    found = measured(tmp_path, ["fine", *wrong, "last"])
    assert [row["unit"] for row in found["rows"]] == ["fine", *wrong, "last"]
    assert list(found["seconds"]) == ["fine", "last"]
    failed = found["failed"]
    assert failed["raises"] == "ValueError: no such kernel"
    assert failed["out of memory"].startswith("out of memory: CUDA out of memory. Tried")
    assert failed["crashes"] == "its process ended (ended by SIGKILL): free(): invalid pointer"
    assert "illegal memory access" in failed["poisoned"]
    assert (found["state"], found["not_reached"]) == ("partly", [])
    pids = {row["unit"]: row["pid"] for row in found["rows"]}
    assert pids["fine"] == pids["raises"] == pids["out of memory"]  # it goes on where it can
    # After an error that spoils the GPU's context, and after memory ran out, a fresh process.
    assert len({pids["out of memory"], pids["crashes"], pids["poisoned"], pids["last"]}) == 4


def test_a_unit_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    short = Section("fake", SECTION.module, weight=1, least_s=1, unit_s=4)
    found = measured(tmp_path, ["hangs", "last"], short)
    rows = {row["unit"]: row for row in found["rows"]}
    assert found["failed"] == {"hangs": "ended: no result within 4 s"}
    assert list(found["seconds"]) == ["last"]
    gone = [rows["hangs"]["pid"], rows["hangs"]["child"]]
    wait_until(lambda: not any(map(runs, gone)), "the end of what hung")


def runs(pid: int) -> bool:
    """Whether it is more than an entry that its parent has not collected."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_at_its_deadline_a_section_ends_and_names_what_it_did_not_reach(tmp_path: Path) -> None:
    found = measured(tmp_path, ["hangs", "last"], seconds=4)
    assert "last" in found["not_reached"]
    assert "time is over" in found["why"]
    assert found["state"] == "partly"


def test_a_section_that_cannot_be_imported_says_so(tmp_path: Path) -> None:
    absent = Section("fake", "benchmarks.gpu.absent", weight=1, least_s=1, unit_s=60)
    found = measured(tmp_path, ["one", "two"], absent)
    assert found["not_reached"] == ["one", "two"]
    assert "ended before a unit began (exit code 1)" in found["why"]
    assert "No module named 'benchmarks.gpu.absent'" in found["why"]


PROGRAM = """
import sys
from benchmarks.gpu import __main__ as command
from benchmarks.gpu.plan import Section
made = {"module": "tests.support.gpu_section", "weight": 1, "least_s": 1, "unit_s": 600}
command.SECTIONS = (Section("fake", **made), Section("behind", **made))
sys.exit(command.main(["--device", "cpu", "--minutes", "9", "--out", sys.argv[1], *sys.argv[2:]]))
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_leaves_whole_results_and_no_process(tmp_path: Path, how: int) -> None:
    out = tmp_path / "gpu.json"
    command = [sys.executable, "-c", PROGRAM, str(out)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: len(rows_of(out)) == 2, "the unit that hangs")
        process.send_signal(how)
        assert process.wait(60) == 130
    finally:
        process.kill()
        process.wait(20)
    sections = read(out)["sections"]
    assert sections["fake"]["why"] == "interrupted"
    assert sections["fake"]["not_reached"] == ["hangs", "last"]
    assert sections["behind"]["not_reached"] == ["fine", "hangs", "last"]
    assert sections["behind"]["state"] == "not reached"
    pids = [row["pid"] for row in rows_of(out)]
    wait_until(lambda: not any(map(runs, pids)), "the end of the section's process")


def rows_of(out: Path) -> list[dict[str, Any]]:
    """The rows of the fake section so far."""
    if not out.exists():
        return []
    rows: list[dict[str, Any]] = read(out)["sections"].get("fake", {}).get("rows", [])
    return rows


def test_add_measures_only_what_is_missing(tmp_path: Path) -> None:
    out = tmp_path / "gpu.json"
    old = {"unit": "fine", "pid": 1}
    made = Results(out, {}, {})
    made.begin("fake", 1, ["fine", "last"])
    made.row("fake", "fine", {"pid": 1})
    made.ended("fake", "fine", 1.0)
    made.failed("fake", "last", "out of memory")
    words = ["--add", "--only", "fake:fine", "fake:last"]
    program = PROGRAM.replace(', Section("behind", **made)', ",")
    done = subprocess.run(
        [sys.executable, "-c", program, str(out), *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = read(out)["sections"]["fake"]
    assert found["rows"][0] == old
    assert [row["unit"] for row in found["rows"]] == ["fine", "last"]
    assert (found["failed"], list(found["seconds"])) == ({}, ["fine", "last"])


def test_time_left_over_goes_to_the_sections_behind() -> None:
    one, two = (Section(n, "", weight=w, least_s=20, unit_s=9) for n, w in (("a", 1), ("b", 3)))
    assert budget([one, two], 400) == 100
    assert budget([two], 390) == 390
    assert budget([one, two], 40) == 20  # its least, though its share is less
    assert budget([one, two], 19) == 0


def test_seven_minutes_reach_every_section() -> None:
    left, given = 420.0, []
    for place, _ in enumerate(SECTIONS):
        given.append(budget(SECTIONS[place:], left))
        left -= given[-1]
    assert all(seconds >= s.least_s for seconds, s in zip(given, SECTIONS, strict=True))
    assert sum(given) <= 420.1


def test_only_takes_sections_and_parts_of_them() -> None:
    units = ["softmax a torch", "softmax a triton", "adam a torch"]
    assert selected(units, [], "kernels") == units
    assert selected(units, ["model"], "kernels") == []
    assert selected(units, ["model", "kernels"], "kernels") == units
    assert selected(units, ["kernels:softmax"], "kernels") == units[:2]


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text(json.dumps({"rows": []}))
    with pytest.raises(ValueError, match=r"has not been written by `python -m benchmarks\.gpu`"):
        read(tmp_path / "other.json")
