"""`hangdoctor top` in a real terminal (tmux): what it shows, its keys, and how it leaves."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hangdoctor.train.faults import outside
from tests.support.livejob import ROOT, LiveJob
from tests.support.stage import hangdoctor, wait_until

pytestmark = pytest.mark.torch


class Top:
    """One `top` in the window of a tmux."""

    def __init__(self, tmux: Any, *flags: str) -> None:
        self.tmux = tmux
        tmux.press(
            "-l",
            f"PYTHONPATH={ROOT} {sys.executable} -m hangdoctor top {' '.join(flags)}; echo code=$?",
        )
        tmux.press("Enter")
        self.shows("RANKS  ", "moving")

    def shows(self, *words: str, seconds: float = 40) -> str:
        wait_until(
            lambda: all(w in self.tmux.screen() for w in words),
            lambda: f"{words} on:\n{self.tmux.screen()}",
            seconds,
        )
        return str(self.tmux.screen())

    def left(self, code: int) -> None:
        """It has ended, and the shell's screen, cursor and line mode are back."""
        screen = self.shows(f"code={code}")
        assert "BLOCKS" not in screen and "hangdoctor top  " not in screen, screen
        assert (self.tmux.flag("alternate_on"), self.tmux.flag("cursor_flag")) == ("0", "1")
        self.tmux.press(
            "-l", "stty -a | tr ' ' '\\n' | grep -xE -- '-?(icanon|echo|isig)' | xargs echo tty:"
        )
        self.tmux.press("Enter")
        self.shows("tty: isig icanon echo")
        self.tmux.press("-l", "clear")
        self.tmux.press("Enter")
        wait_until(lambda: "code=" not in self.tmux.screen(), "a clear screen")


def test_local_shows_which_rank_is_blocked_and_by_what_and_leaves_with_q(
    live: LiveJob, tmux: Any
) -> None:
    top = Top(tmux, "--local", "--job", live.run_id)
    top.shows("4 ranks", "iteration", "All 4 ranks move")
    assert all(len(line) <= 80 for line in tmux.screen().splitlines())
    with outside.stopped(live.pid(1)):
        screen = top.shows(
            "Rank 1", "is stopped", "have been waiting in "
        )  # all_reduce, or the broadcast before it
        rows = [line.split() for line in screen.splitlines() if line[:7].strip().isdigit()]
        assert rows[-4][0] == "1" and rows[-4][2] == "stopped", "the culprit stands first"
        tmux.press("Enter")
        top.shows(
            "RANK 1 on", "state T", "last operations", "all_reduce", "main thread, innermost first"
        )
        tmux.press("Escape")
        tmux.press("c")
        top.shows("capturing all ranks")
        top.shows("Rank 1", "is stopped (SIGSTOP)", "(hangdoctor-")
    top.shows("All 4 ranks move")
    tmux.press("/")
    tmux.press("-l", "2-3")
    tmux.press("Enter")
    screen = top.shows("filter: 2-3")
    assert [line.split()[0] for line in screen.splitlines() if line[:7].strip().isdigit()] == [
        "2",
        "3",
    ]
    tmux.press("?")
    top.shows("quit (also Ctrl-C)")
    tmux.press("Escape")
    top.shows("OPERATION")
    tmux("resize-window", "-t", "t", "-x", "60", "-y", "12")
    top.shows("c capture")
    tmux("resize-window", "-t", "t", "-x", "80", "-y", "24")
    tmux.press("q")
    top.left(0)
    assert len(list(tmux.folder.glob("hangdoctor-*/diagnosis.json"))) == 1
    live.settled()


def test_a_collector_is_shown_and_every_end_is_clean(live: LiveJob, tmux: Any) -> None:
    folder = ("--folder", str(live.folder))
    top = Top(tmux, *folder)
    top.shows("1 of 1 agents", "4 ranks")
    tmux.press("Enter")
    top.shows("RANK ", " on n1", "process")  # whoever stands first at that moment
    tmux.press("C-c")
    top.left(130)
    top = Top(tmux, "--collector", live.address, "--token-file", str(live.folder / "web.json"))
    os.kill(child_of(int(tmux.flag("pane_pid"))), signal.SIGTERM)
    top.left(130)
    top = Top(tmux, *folder)
    tmux.press("C-z")
    top.shows("Stopped")
    assert tmux.flag("alternate_on") == "0"
    tmux.press("-l", "fg")
    tmux.press("Enter")
    top.shows("RANKS  ", "moving")
    pid = child_of(int(tmux.flag("pane_pid")))
    tmux("kill-session", "-t", "t")  # the terminal is closed: it must end by itself
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "top ends with its terminal")


def child_of(shell: int) -> int:
    found = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()
    assert len(found) == 1
    return int(found[0])


def test_without_a_terminal_it_is_one_look(live: LiveJob, tmp_path: Path) -> None:
    for flags in (
        ("--local", "--job", live.run_id),
        ("--folder", str(live.folder)),
        ("--folder", str(live.folder), "--once"),
    ):
        done = hangdoctor("top", *flags, cwd=tmp_path)
        assert "4 ranks" in done.stdout and "moving" in done.stdout and "\x1b" not in done.stdout, (
            done.stdout
        )
    told = json.loads(
        hangdoctor("top", "--folder", str(live.folder), "--json", "-", cwd=tmp_path).stdout
    )
    assert [r["rank"] for r in told["rows"]] == [0, 1, 2, 3] and told["picture"]["world_size"] == 4


def test_one_sample_at_a_job_that_hangs_says_so(live: LiveJob, tmp_path: Path) -> None:
    with outside.stopped(live.pid(1)):
        wait_until(
            lambda: live.status()["status"]["counts"].get("moving", 0) == 0,
            "the collector sees that nobody moves",
        )
        told = json.loads(
            hangdoctor("top", "--local", "--job", live.run_id, "--json", "-", cwd=tmp_path).stdout
        )
        assert told["picture"]["counts"] == {"stopped": 1, "waiting": 3} and told["picture"][
            "sentence"
        ].startswith("Rank 1 (")
    live.settled()


def test_a_late_rank_stands_out(live: LiveJob, tmp_path: Path, tmux: Any) -> None:
    def lag(rank: int) -> str:
        [line] = [
            line
            for line in tmux.screen().splitlines()
            if line.split()[:1] == [str(rank)] and " moving " in line
        ] or [""]
        return line[33:41].strip()

    Top(tmux, "--local", "--job", live.run_id).shows("  LAG  ")
    (live.control / "drag").write_text("2")
    try:
        wait_until(
            lambda: lag(2)[:1] in tuple("3456789") and len(lag(2)) == 6,
            lambda: f"300 ms or more of rank 2:\n{tmux.screen()}",
        )
        told = json.loads(
            hangdoctor("top", "--folder", str(live.folder), "--json", "-", cwd=tmp_path).stdout
        )
        assert max(told["rows"], key=lambda r: r.get("lag_s", 0.0))["rank"] == 2
    finally:
        (live.control / "drag").unlink()
    live.settled()


def test_a_job_that_is_not_here_is_said_and_which_are(live: LiveJob, tmp_path: Path) -> None:
    said = hangdoctor("top", "--local", "--job", "no-such-job", cwd=tmp_path).stdout
    assert "No rank of job no-such-job on this host; jobs on this host: " in said
    # Six are named: tests beside this one may have as many jobs.
    assert live.run_id in said or re.search(r"jobs on this host: (.+, ){5}.+ and \d+ more", said)


def test_ranks_without_black_boxes_are_shown_from_proc(tmp_path: Path) -> None:
    code = "import time; print('up', flush=True); time.sleep(600)"
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            stdout=subprocess.PIPE,
            env=os.environ
            | {"RANK": str(r), "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": f"bare-{os.getpid()}"},
        )
        for r in range(2)
    ]
    try:
        assert all(r.stdout is not None and r.stdout.readline() for r in ranks)
        told = json.loads(
            hangdoctor(
                "top", "--local", "--job", f"bare-{os.getpid()}", "--json", "-", cwd=tmp_path
            ).stdout
        )
        assert [(r["rank"], r["pid"]) for r in told["rows"]] == [
            (i, p.pid) for i, p in enumerate(ranks)
        ]
        assert {r["op"] for r in told["rows"]} <= {"in clock_nanosleep", "in hrtimer_nanosleep"}, (
            "the system call that each is in, by /proc/PID/syscall or else by wchan"
        )
        assert told["picture"]["counts"] == {"still": 2}, (
            "they sleep: that is no progress, and was not seen to be any"
        )
        once = hangdoctor(
            "top", "--local", "--job", f"bare-{os.getpid()}", "--once", cwd=tmp_path
        ).stdout
        assert "No rank makes progress: 2 without progress" in once
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()


def test_a_slurm_job_is_shown_by_the_sidecar_that_it_has(live: LiveJob, tmp_path: Path) -> None:
    folder = tmp_path / ".hangdoctor" / "jobs" / "slurm-77"
    folder.mkdir(parents=True)
    (folder / "web.json").write_bytes((live.folder / "web.json").read_bytes())
    done = hangdoctor(
        "top", "--jobid", "77", "--once", cwd=tmp_path, env=os.environ | {"HOME": str(tmp_path)}
    )
    assert live.run_id in done.stdout and "1 of 1 agents, 4 ranks" in done.stdout
    none = hangdoctor(
        "top",
        "--jobid",
        "78",
        "--once",
        cwd=tmp_path,
        code=1,
        env=os.environ | {"HOME": str(tmp_path), "PATH": str(tmp_path)},
    )
    assert "the sidecar could not be started" in none.stderr and "Traceback" not in none.stderr
    assert [p.name for p in folder.parent.iterdir()] == ["slurm-77"], (
        "its folder is taken away again"
    )


def test_wrong_targets_are_said(live: LiveJob, tmp_path: Path) -> None:
    assert (
        "more than one target was given"
        in hangdoctor("top", "--local", "--jobid", "1", cwd=tmp_path, code=2).stderr
    )
    assert (
        "asks for its token"
        in hangdoctor("top", "--collector", live.address, cwd=tmp_path, code=2).stderr
    )
    (tmp_path / "token").write_text("wrong\n")
    wrong = hangdoctor(
        "top",
        "--collector",
        live.address,
        "--token-file",
        str(tmp_path / "token"),
        cwd=tmp_path,
        code=1,
    )
    assert "token is missing or wrong" in wrong.stderr and "web.json" in wrong.stderr
    assert (
        "no collector with a live page"
        in hangdoctor("top", "--folder", str(tmp_path), cwd=tmp_path, code=1).stderr
    )
    (tmp_path / "web.json").write_text('{"address": "http://127.0.0.1:9", "token": "x"}')
    assert (
        "no collector answers"
        in hangdoctor("top", "--folder", str(tmp_path), cwd=tmp_path, code=1).stderr
    )
