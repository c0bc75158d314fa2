"""Beside a verdict with little evidence, the lines of the log that speak of a failure are shown."""

from __future__ import annotations

from pathlib import Path

from hangdoctor.cli.diagnose import load
from hangdoctor.diagnosis import diagnose
from hangdoctor.model.diagnosis import Diagnosis
from hangdoctor.report.html import as_bytes
from hangdoctor.report.terminal_report import plain
from hangdoctor.storage import bundle
from tests.support.read_logs import diagnosed

STEP = "step {n} loss 2.31\n"
SRUN = "srun: error: n4: task 3: Exited with exit code 9\n"
CANCELLED = "slurmstepd: error: *** STEP 7.0 ON n4 CANCELLED AT 2031-01-04T10:00:00 ***\n"


def pointed(found: Diagnosis) -> list[int]:
    return [one.line for part in found.pointed for one in part.lines]


def test_the_lines_above_a_launchers_notice(tmp_path: Path) -> None:
    text = (
        "lakes: reading the shore\n"
        "lakes: cannot open the gate of basin 4\n"
        + "lakes: closing a pump\n" * 12
        + "lakes: the sluice is stuck\n"
        + "lakes: closing a pump\n" * 12
        + SRUN
    )
    found = diagnosed(tmp_path, text)
    assert "cannot open the gate" in found.summary and pointed(found) == [15]
    assert "lines of job.log that speak of a failure" in plain(found)


def test_at_most_nine_and_each_kind_once(tmp_path: Path) -> None:
    text = "".join(f"pump {n}: the gate is stuck\n" for n in range(40))
    text += (
        "".join(f"{'abcdefghijklmnop'[n]}: gate is stuck there\n" for n in range(16)) + CANCELLED
    )
    found = diagnosed(tmp_path, text)
    assert found.status == "unknown"
    lines = pointed(found)
    assert len(lines) == 9 and lines[:2] == [1, 41] and lines == sorted(lines)


def test_what_the_job_survived_is_no_more_than_three_of_them(tmp_path: Path) -> None:
    early = "".join(f"{name}: the gate is stuck\n" for name in ("ab", "cd", "ef", "gh", "ij"))
    text = early + "".join(STEP.format(n=n) for n in range(1, 30)) + CANCELLED
    assert len(pointed(diagnosed(tmp_path, text))) <= 3


def test_none_beside_a_sure_verdict_or_a_clean_end(tmp_path: Path) -> None:
    sure = "lake 4: the gate is stuck\n[rank3]: RuntimeError: CUDA error: an illegal memory access was encountered\n"
    assert not diagnosed(tmp_path, sure).pointed
    clean = "lake 4: the gate is stuck\n" + "".join(f"step {n}/9\n" for n in range(1, 10))
    assert not diagnosed(tmp_path, clean + "training finished\n").pointed


def test_notices_settings_and_commands_are_none_of_them(tmp_path: Path) -> None:
    text = (
        "WARNING the gate is stuck\nINFO no hang was seen\n$ lakes --on-hang abort\nkill_timeout = 9\n"
        "if the gate is stuck, see the guide\n" + CANCELLED
    )
    assert not set(pointed(diagnosed(tmp_path, text))) & {1, 2, 3, 4, 5}


def test_where_a_stack_without_a_heading_was(tmp_path: Path) -> None:
    frames = (
        "lakes.x            0000000000411C62  abort                 Unknown  Unknown\n"
        "lakes.x            0000000000EFE112  open_gate_                250  gate.f90\n"
        "lakes.x            0000000000A953A0  fill_basin_                46  basin.f90\n"
    )
    found = diagnosed(tmp_path, frames + "lakes: waiting\n" * 12 + SRUN)
    shown = [one.says for part in found.pointed for one in part.lines]
    assert any("open_gate_" in says for says in shown)
    assert not any("abort" in says for says in shown)


def test_a_bundle_keeps_them_and_the_page_shows_them(tmp_path: Path) -> None:
    text = "lakes: the gate is stuck\n" + "lakes: waiting\n" * 12 + CANCELLED
    (tmp_path / "job.log").write_text(text.replace("gate", "<b>gate</b>"))
    capture = load([tmp_path / "job.log"])
    first = diagnose(capture)
    saved = bundle.save(tmp_path / "b", capture, first, plain(first), ["hangdoctor"])
    again = diagnose(bundle.load(saved))
    assert again.pointed == first.pointed != []
    page = as_bytes(bundle.load(saved), again, saved).decode()
    assert "Lines that speak of a failure" in page and "<b>gate" not in page
