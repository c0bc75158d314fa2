"""The lines around the one that a verdict rests on are shown with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from hangdoctor.cli.diagnose import load
from hangdoctor.diagnosis import diagnose
from hangdoctor.model.diagnosis import Around
from hangdoctor.readers.job_logs import source
from hangdoctor.report.html import as_bytes
from hangdoctor.report.terminal_report import plain
from hangdoctor.storage import bundle
from tests.support.read_logs import diagnosed

STEP = "step {n} loss 2.31\n"
ROTTEN = "lakes: level of the sea is 812 mm\nFATAL: the shore gave way\nheld by pier 7\n"


def around(found: Around | None) -> list[tuple[int, str]]:
    assert found is not None
    return [(one.line, one.says) for one in found.lines]


def test_the_line_and_its_neighbours(tmp_path: Path) -> None:
    text = "".join(STEP.format(n=n) for n in range(1, 9)) + "\n" + "-" * 40 + "\n" + ROTTEN
    found = diagnosed(tmp_path, text)
    assert found.around is not None and found.around.line == 12
    told = around(found.around)
    assert told[-2:] == [(12, "FATAL: the shore gave way"), (13, "held by pier 7")]
    assert told[0] == (6, "step 6 loss 2.31")  # rulers and empty lines are no lines of it
    said = plain(found)
    assert "around job.log:12" in said and "> 12  FATAL: the shore gave way" in said


def test_above_a_traceback_and_below_it(tmp_path: Path) -> None:
    text = (
        "lakes: level of the sea is 812 mm\n"
        "Traceback (most recent call last):\n"
        + "".join(f'  File "/w/sea.py", line {n}, in wave\n    wave()\n' for n in range(1, 20))
        + "ValueError: too high\nheld by pier 7\n"
    )
    told = around(diagnosed(tmp_path, text).around)
    assert [says for _, says in told] == [
        "lakes: level of the sea is 812 mm",
        *['  File "/w/sea.py", line 18, in wave', "    wave()"],
        *['  File "/w/sea.py", line 19, in wave', "    wave()"],
        "ValueError: too high",
        "held by pier 7",
    ]
    assert [line for line, _ in told] == [1, 37, 38, 39, 40, 41, 42]


def test_in_the_middle_of_a_long_log(tmp_path: Path) -> None:
    """Where most blocks are searched and not read."""
    many = "".join(STEP.format(n=n) for n in range(1, 60_000))
    error = "[rank3]: RuntimeError: CUDA error: an illegal memory access was encountered\n"
    text = many + "lakes: the sea rises\n" + error + "held by pier 7\n" + "waiting\n" * 60_000
    assert len(text) > 5 * source.BLOCK
    told = around(diagnosed(tmp_path, text).around)
    assert (60_000, "lakes: the sea rises") in told and (60_002, "held by pier 7") in told
    assert told[told.index((60_000, "lakes: the sea rises")) + 1][1] == error.strip()


def test_the_last_lines_of_a_log_of_which_nothing_is_known(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, "".join(f"tide {n}\n" for n in range(1, 20)))
    assert found.status == "unknown" and found.around is not None and found.around.line == 0
    assert [line for line, _ in around(found.around)] == [14, 15, 16, 17, 18, 19]
    assert "last lines of job.log" in plain(found)


def test_colours_of_a_terminal_are_left_out(tmp_path: Path) -> None:
    coloured = "\x1b[1;31m" + ROTTEN.replace("\nheld", "\n\x1b[0mheld") + "\x1b[0m\n"
    told = [says for _, says in around(diagnosed(tmp_path, coloured).around)]
    assert "held by pier 7" in told and not any("1b" in says or "\x1b" in says for says in told)


def test_credentials_are_not_shown(tmp_path: Path) -> None:
    secret = "hf_" + "Ab3" * 12
    found = diagnosed(tmp_path, f"login with HF_TOKEN={secret}\n" + ROTTEN)
    assert secret not in plain(found) and "login with" in plain(found)


def test_a_bundle_keeps_them_and_the_page_shows_them(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text(ROTTEN.replace("shore", "<b>shore</b>"))
    capture = load([log])
    first = diagnose(capture)
    saved = bundle.save(tmp_path / "b", capture, first, plain(first), ["hangdoctor"])
    again = diagnose(bundle.load(saved))
    assert again.around == first.around is not None
    page = as_bytes(bundle.load(saved), again, saved).decode()
    assert "Around job.log:2" in page and "held by pier 7" in page and "<b>shore" not in page


def test_of_standard_input_too(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hangdoctor", "diagnose", "-"],
        cwd=tmp_path,
        input=ROTTEN,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "held by pier 7" in done.stdout, done.stderr


def test_the_lines_of_one_speakers_failure_rather_than_the_nearest(tmp_path: Path) -> None:
    """Others print steps between those of the failure."""
    step = "[rank0]: step {} loss 2.1\n"
    steps = "".join(step.format(n) for n in range(6))
    text = f"{steps}[rank3]: ERROR the shore gave way\n{step.format(6) * 5}[rank3]: FATAL: cannot go on without a shore\n{steps}"
    told = around(diagnosed(tmp_path, text).around)
    says = [says for _, says in told]
    assert "[rank3]: ERROR the shore gave way" in says
    assert "[rank3]: FATAL: cannot go on without a shore" in says
    assert len(says) <= 9


def test_never_more_than_nine_lines(tmp_path: Path) -> None:
    text = "".join(f"rank 4: ERROR tile {n} is torn\n" for n in range(40))
    assert len(around(diagnosed(tmp_path, text).around)) <= 9
