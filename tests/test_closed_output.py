"""Whoever reads the output may go away (`| head`): every verb then ends quietly, and its exit code
still shows the verdict.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hangdoctor.probe.calls.request import Request, encode
from tests.support.stage import hangdoctor, wait_until

ROOT = Path(__file__).parents[1]
DATA = Path(__file__).parent / "data"
STARTUP = ROOT / "hangdoctor" / "probe" / "startup"
# A rank that calls a little and then waits, as one that hangs does.
QUIET = "def step(n): return n\nfor n in range(50): step(n)\nprint('ready', flush=True)\nimport sys; sys.stdin.read()"


def unread(*words: str, cwd: Path, both: bool = False, unbuffered: bool = False) -> tuple[int, str]:
    """The command with a standard output that no one reads, with `both` its standard error too:
    exit code, what it says.
    """
    reading, writing = os.pipe()
    os.close(reading)
    env = os.environ | ({"PYTHONUNBUFFERED": "1"} if unbuffered else {})
    try:
        done = subprocess.run(
            [sys.executable, "-m", "hangdoctor", *words],
            stdout=writing,
            stderr=writing if both else subprocess.PIPE,
            cwd=cwd,
            env=env,
            text=True,
            timeout=90,
        )
    finally:
        os.close(writing)
    return done.returncode, "" if both else done.stderr


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kept")
    hangdoctor(
        "diagnose",
        str(DATA / "ras" / "dead-2.28.txt"),
        "--bundle",
        str(folder / "bundle"),
        cwd=folder,
    )
    return folder / "bundle"


@pytest.mark.parametrize("unbuffered", [False, True])
@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("--help", 0),
        ("trace tail --help", 0),
        ("--version", 0),
        ("preflight", 0),
        ("preflight --json -", 0),
        ("diagnose BUNDLE", 0),
        ("diagnose BUNDLE --exit-code", 10),
        ("diagnose BUNDLE --exit-code --json -", 10),
        ("report BUNDLE --html -", 0),
    ],
)
def test_a_closed_output_is_no_failure(
    tmp_path: Path, bundle: Path, words: str, code: int, unbuffered: bool
) -> None:
    arguments = [str(bundle) if w == "BUNDLE" else w for w in words.split()]
    got, said = unread(*arguments, cwd=tmp_path, unbuffered=unbuffered)
    assert (got, [line for line in said.splitlines() if not line.startswith("hangdoctor: ")]) == (
        code,
        [],
    )
    assert unread(*arguments, cwd=tmp_path, both=True) == (code, "")


def test_files_are_written_all_the_same(tmp_path: Path, bundle: Path) -> None:
    assert unread("diagnose", str(bundle), "--json", "d.json", cwd=tmp_path, both=True)[0] == 0
    assert (
        unread("report", str(bundle), "--text", "-", "--html", "r.html", cwd=tmp_path, both=True)[0]
        == 0
    )
    assert {p.name for p in tmp_path.iterdir()} == {"d.json", "r.html"} and all(
        p.stat().st_size for p in tmp_path.iterdir()
    )


def test_a_pipe_that_is_not_our_output_is_a_failure_as_before(tmp_path: Path) -> None:
    code = (
        "import sys; sys.argv = ['hangdoctor', 'diagnose']\n"
        "from hangdoctor.cli import diagnose, main\n"
        "def broken(*a, **k): raise BrokenPipeError(32, 'a node')\n"
        "diagnose.command.callback, diagnose.command.params = broken, []\n"
        "main.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1


def test_tail_ends_with_its_reader_also_while_the_rank_is_quiet(tmp_path: Path) -> None:
    """As in `trace tail --rank 2 | head -1` of a rank that hangs: no further line would ever tell
    that the pipe is closed.
    """
    boxes = tmp_path / "boxes"
    env = os.environ | {
        "PYTHONPATH": f"{STARTUP}{os.pathsep}{ROOT}",
        "HANGDOCTOR_DIR": str(boxes),
        "RANK": "2",
        "WORLD_SIZE": "4",
        "HANGDOCTOR_TRACE": encode(Request(1, True, ("work",))),
    }
    (tmp_path / "work.py").write_text(QUIET)
    rank = subprocess.Popen(
        [sys.executable, "work.py"],
        cwd=tmp_path,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert rank.stdout is not None and rank.stdout.readline() == "ready\n"
        command = [
            sys.executable,
            "-m",
            "hangdoctor",
            "trace",
            "tail",
            "--rank",
            "2",
            "--folder",
            str(boxes),
        ]
        tail = subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            assert tail.stdout is not None and tail.stderr is not None
            first = [tail.stdout.readline() for _ in range(3)]  # switched on, the module, a call
            assert "step (" in first[2]
            tail.stdout.close()
            wait_until(lambda: tail.poll() is not None, "tail has ended", 30)
            assert (tail.returncode, "Traceback" in tail.stderr.read()) == (0, False)
        finally:
            tail.kill()
            tail.wait(timeout=20)
    finally:
        rank.kill()
        rank.wait(timeout=20)
