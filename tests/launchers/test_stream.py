"""One command whose lines are handed on as they come: real processes, among them one that must be
killed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hangdoctor.errors import LauncherError
from hangdoctor.launchers.line_stream import Line, Stream
from hangdoctor.launchers.remote import Command


def stream(code: str, *more: str) -> Stream:
    return Stream(Command("n1", [sys.executable, "-uc", code, *more]), os.environ)


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def test_lines_come_while_it_runs_and_the_last_without_its_end(tmp_path: Path) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    code = "import sys; print('one'); open(sys.argv[1]).read(); print('two\\n\\xe9', end=''); print('odd', file=sys.stderr); sys.exit(4)"
    lines: list[Line] = []
    with stream(code, str(go)) as told:
        for line in told:
            if line is None and lines == [Line("one", True)] and go.exists():
                subprocess.run(
                    ["sh", "-c", f": > {go}"], check=True, timeout=20
                )  # it came before the process went on
                go.unlink()
            elif line is not None:
                lines.append(line)
    assert [x.text for x in lines if x.is_output] == ["one", "two", "é"] and Line(
        "odd", False
    ) in lines
    assert told.code == 4


def test_a_line_without_end_does_not_pile_up() -> None:
    with stream("import sys; sys.stdout.write('x' * 1_000_000)") as told:
        lengths = [len(line.text) for line in told if line is not None]
    assert sum(lengths) == 1_000_000 and max(lengths) < 200_000


def test_leaving_it_ends_the_command_also_one_that_does_not_obey() -> None:
    code = "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(os.getpid()); time.sleep(3600)"
    begin = time.monotonic()
    with stream(code) as told:
        first = next(line for line in told if line is not None)
    assert gone(int(first.text)) and told.code is None and time.monotonic() - begin < 60


def test_what_cannot_be_started_is_said() -> None:
    with pytest.raises(LauncherError, match="no-such-command"):
        Stream(Command("n1", ["no-such-command"]), os.environ)
