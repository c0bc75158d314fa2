"""Commands under a deadline, reports that arrive whole or not, and what silence is put down to."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hangdoctor.errors import LauncherError, NoRanksFound, WireError
from hangdoctor.launchers import gather
from hangdoctor.launchers.remote import Command, Outcome, query, run_all
from hangdoctor.model.capture import NodeCapture, ProcessSample, RankCapture
from hangdoctor.model.log_facts import JobLogs
from hangdoctor.readers.node import CaptureOptions
from hangdoctor.transport.capture_codec import pack_capture, unpack_capture
from hangdoctor.transport.stdout_frame import NodeReply, pack, unpack
from tests.support.lab import wait_until

OPTIONS = CaptureOptions()
ENV = dict(os.environ)


def reply(node: str, ranks: list[int], world: int = 8, job: str = "slurm:7.0") -> str:
    captured = [RankCapture(pid=100 + r, rank=r, node=node, world_size=world) for r in ranks]
    return pack(NodeReply(node, pack_capture(NodeCapture(node, job, captured))))


def shell(node: str, script: str) -> Command:
    return Command(node, ["sh", "-c", script])


# ------------------------------------------------------------------- processes


def test_output_errors_and_exit_code_come_back() -> None:
    outcomes = run_all(
        [shell("a", "echo out; echo err >&2; exit 3"), shell("b", "cat")],
        time.monotonic() + 30,
        ENV,
    )
    assert [(o.node, o.output, o.errors, o.code) for o in outcomes] == [
        ("a", "out\n", "err\n", 3),
        ("b", "", "", 0),
    ]


def test_a_report_counts_although_its_command_never_ends(tmp_path: Path) -> None:
    """As mpiexec does with a dead node; its grandchildren go with it."""
    (tmp_path / "report").write_text(reply("a", [0, 1]))
    script = f"cat {tmp_path}/report; sleep 1000 & echo $! >{tmp_path}/pid; wait"
    (outcome,) = run_all([shell("a", script)], time.monotonic() + 60, ENV)
    assert outcome.code is None
    assert outcome.reported
    assert gather.sort_out([outcome]).captures["a"].ranks[1].rank == 1
    pid = int((tmp_path / "pid").read_text())
    wait_until(
        lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text(),
        "the grandchild ends",
    )


def test_a_grandchild_in_a_session_of_its_own_goes_with_it(tmp_path: Path) -> None:
    """As pdsh starts its ssh: no signal to a group reaches it."""
    (tmp_path / "report").write_text(reply("a", [0, 1]))
    own = f"setsid sh -c 'echo $$ >{tmp_path}/pid; cat {tmp_path}/report; exec sleep 1000'"
    (outcome,) = run_all([shell("a", f"{own} & wait")], time.monotonic() + 60, ENV)
    assert outcome.reported
    pid = int((tmp_path / "pid").read_text())
    wait_until(
        lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text(),
        "the grandchild ends",
    )


def test_a_command_that_ignores_sigterm_is_killed_at_the_deadline() -> None:
    outcomes = run_all(
        [shell("a", "trap '' TERM INT; sleep 1000"), shell("b", "echo b")],
        time.monotonic() + 1.0,
        ENV,
    )
    assert [o.code for o in outcomes] == [None, 0]


def test_more_nodes_than_may_run_at_one_time() -> None:
    commands = [shell(f"n{i}", f"echo {i}") for i in range(150)]
    outcomes = run_all(commands, time.monotonic() + 60, ENV)
    assert [o.output for o in outcomes] == [f"{i}\n" for i in range(150)]


def test_silent_nodes_do_not_keep_the_others_waiting_for_their_turn() -> None:
    silent = [shell(f"s{i}", "sleep 1000") for i in range(64)]
    outcomes = run_all([*silent, shell("last", "echo here")], time.monotonic() + 25, ENV)
    assert outcomes[-1].output == "here\n"


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(LauncherError, match="/nonexistent/srun cannot be started: No such file"):
        query(["/nonexistent/srun"], 5, ENV)


@pytest.mark.parametrize("how", ["KeyboardInterrupt", "Cancelled"])
def test_nothing_is_left_when_it_is_interrupted(tmp_path: Path, how: str) -> None:
    number, name = ("2", "INT") if how == "KeyboardInterrupt" else ("15", "TERM")
    program = (
        "import os, time, signal\nfrom hangdoctor.cli.main import _terminated\nfrom hangdoctor.launchers.remote import *\n"
        "signal.signal(signal.SIGTERM, _terminated); signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"commands = [Command(str(i), ['sh', '-c', f'echo $$ >{tmp_path}/pid.{{i}}; exec sleep 1000']) for i in range(5)]\n"
        "run_all(commands, time.monotonic() + 1000, os.environ)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            files = [tmp_path / f"pid.{i}" for i in range(5)]
            wait_until(
                lambda: all(f.exists() and f.read_text().strip() for f in files),
                "five commands run",
            )
            process.send_signal(int(number))
            _, err = process.communicate(timeout=20)
        finally:
            process.kill()
    assert how in err, name
    assert not [f for f in files if Path(f"/proc/{int(f.read_text())}").exists()]


# ------------------------------------------------------------------- the wire


def test_a_report_between_the_noise_of_a_login_shell() -> None:
    lines = reply("n1", [0]).splitlines()
    noisy = [
        "Welcome to the cluster!",
        *lines[:1],
        "*** disk quota: 93 % ***",
        *lines[1:],
        "logout",
    ]
    assert unpack("\r\n".join(noisy)).node == "n1"


def damaged(kind: str) -> str:
    begin, *body, end = reply("n1", list(range(200))).splitlines()
    first = body[0]
    return {
        "empty": "",
        "noise only": "srun: error: Node failure on n3\n",
        "cut before its end": "\n".join([begin, *body]),
        "cut in the body": "\n".join([begin, first[:40]]),
        "a letter changed": "\n".join(
            [begin, ("B" if first[0] != "B" else "C") + first[1:], *body[1:], end]
        ),
        "a letter lost": "\n".join([begin, first[1:], *body[1:], end]),
        "no sizes": "\n".join([begin.split()[0], *body, end]),
        "two reports mixed": "\n".join([begin, first, begin, *body, end]),
        "another length": pack(NodeReply("n1")).replace("REPORT/2 ", "REPORT/2 9"),
        "another version": pack(NodeReply("n1")).replace("REPORT/2 ", "REPORT/1 "),
        "no capture": pack(NodeReply("n1", b"x")),
    }[kind]


@pytest.mark.parametrize(
    "kind",
    [
        "empty",
        "noise only",
        "cut before its end",
        "cut in the body",
        "a letter changed",
        "a letter lost",
        "no sizes",
        "two reports mixed",
        "another length",
        "another version",
        "no capture",
    ],
)
def test_a_damaged_report_is_an_error_and_never_a_capture(kind: str) -> None:
    with pytest.raises(WireError):
        unpack_capture(unpack(damaged(kind)).body)
    gathered = gather.sort_out([Outcome("n1", damaged(kind), "", 0)])
    assert list(gathered.silent) == ["n1"]
    assert not gathered.captures


# ------------------------------------------------------------------- joining


def joined(outcomes: list[Outcome], order: list[str]):  # type: ignore[no-untyped-def]
    gathered = gather.sort_out(outcomes)
    whys = {
        n: gather.why_silent(o, gathered.damaged.get(n, ""), 20) for n, o in gathered.silent.items()
    }
    return gather.join(gathered, order, whys, OPTIONS)


def test_exit_codes_prove_nothing() -> None:
    """A whole report counts with a failed command, and no report counts as silence with a command
    that says 0.
    """
    capture = joined(
        [
            Outcome("n1", reply("n1", [0, 1, 2, 3]), "", 233),
            Outcome("n2", "", "srun: error: Node failure on n2", 0),
        ],
        ["n1", "n2"],
    )
    assert [r.rank for r in capture.ranks()] == [0, 1, 2, 3]
    assert [(s.node, s.ranks, s.why) for s in capture.silent] == [
        ("n2", [4, 5, 6, 7], "Node failure on n2")
    ]


def test_ranks_behind_silent_nodes() -> None:
    order = ["n1", "n2", "n3", "n4"]
    block = {"n1": [0, 1], "n4": [6, 7]}
    assert gather.ranks_behind(order, block, ["n2", "n3"], 8) == {"n2": [2, 3], "n3": [4, 5]}
    cyclic = {"n1": [0, 4], "n4": [3, 7]}
    assert gather.ranks_behind(order, cyclic, ["n2", "n3"], 8) == {"n2": [1, 5], "n3": [2, 6]}
    assert gather.ranks_behind(order, {"n1": [0, 7], "n4": [1, 3]}, ["n2", "n3"], 8) == {}
    assert gather.ranks_behind(order, {"n1": [0, 7], "n4": [1, 3], "n2": [2, 4]}, ["n3"], 8) == {
        "n3": [5, 6]
    }
    assert gather.ranks_behind(order, {}, order, 0) == {}
    assert gather.ranks_behind(["n1", "n2", "n3"], {"n1": [0, 1, 2]}, ["n2", "n3"], 8) == {}


def test_ranks_that_cannot_be_placed_are_behind_the_silent_nodes_together() -> None:
    outcomes = [
        Outcome("n1", reply("n1", [0, 5]), "", 0),
        Outcome("n2", reply("n2", [1, 7]), "", 0),
        Outcome("n3"),
        Outcome("n4"),
    ]
    capture = joined(outcomes, ["n1", "n2", "n3", "n4"])
    assert [(s.node, s.ranks) for s in capture.silent] == [("n[3-4]", [2, 3, 4, 6])]


def test_a_node_that_answers_without_its_ranks_has_lost_them() -> None:
    outcomes = [
        Outcome("n1", reply("n1", [0, 1], 4), "", 0),
        Outcome("n2", pack(NodeReply("n2", error="no rank processes found")), "", 0),
    ]
    capture = joined(outcomes, ["n1", "n2"])
    assert [(r.rank, r.node, r.gone) for r in capture.ranks()] == [
        (0, "n1", False),
        (1, "n1", False),
        (2, "n2", True),
        (3, "n2", True),
    ]
    assert capture.silent == []


def over(node: str, rank: int) -> Outcome:
    """The answer of a node whose rank ended while it was captured."""
    ended = RankCapture(pid=rank + 1, rank=rank, node=node, world_size=2, gone=True, exit_code=0)
    ended.samples = [ProcessSample(0.0)]
    capture = NodeCapture(node, "slurm:7.0", [ended], ended=JobLogs())
    return Outcome(node, pack(NodeReply(node, pack_capture(capture))), "", 0)


def test_a_job_that_ended_on_all_nodes_meanwhile_is_over() -> None:
    whole = joined([over("n1", 0), over("n2", 1)], ["n1", "n2"])
    assert whole.over and whole.ended_meanwhile
    half = joined([over("n1", 0), Outcome("n2")], ["n1", "n2"])
    assert not half.over and half.silent
    one = joined([over("n1", 0), Outcome("n2", reply("n2", [1], 2), code=0)], ["n1", "n2"])
    assert not one.over and [r.gone for r in one.ranks()] == [True, False]


def test_a_node_outside_the_job_is_a_note() -> None:
    outcomes = [
        Outcome("n1", reply("n1", [0, 1], 2), "", 0),
        Outcome("n2", pack(NodeReply("n2", error="no rank processes found")), "", 0),
    ]
    capture = joined(outcomes, ["n1", "n2"])
    assert [n.node for n in capture.nodes] == ["n1"]
    assert capture.notes == ["n2 answered but have no rank of the job: no rank processes found"]


def test_ranks_of_another_job_are_left_out() -> None:
    outcomes = [
        Outcome("n1", reply("n1", [0, 1], 6, "10.0.0.1:29500"), "", 0),
        Outcome("n2", reply("n2", [2, 3], 6, "10.0.0.1:29500/812"), "", 0),
        Outcome("n3", reply("n3", [0, 1], 2, "10.0.0.3:29500"), "", 0),
    ]
    capture = joined(outcomes, ["n1", "n2", "n3"])
    assert [r.rank for r in capture.ranks()] == [0, 1, 2, 3]
    assert "n3 runs another job (10.0.0.3:29500)" in capture.notes[0]


def test_no_rank_anywhere_and_no_agent_anywhere_are_errors() -> None:
    empty = [
        Outcome(n, pack(NodeReply(n, error="no rank processes found", help="look again")), "", 0)
        for n in ("n1", "n2")
    ]
    with pytest.raises(
        NoRanksFound, match=r"all 2 nodes answered \(n\[1-2\]\), and none has a rank of the job"
    ):
        joined(empty, ["n1", "n2"])
    missing = [
        Outcome(n, "", "slurmstepd-n1: error: execve(): /x/python: No such file or directory", 2)
        for n in ("n1", "n2")
    ]
    with pytest.raises(LauncherError, match="the agent could not start on"):
        joined(missing, ["n1", "n2"])


def test_progress_names_ranks_only_where_there_are_some() -> None:
    none = gather.Gathered()
    assert gather.summary(none, 2) == "0 of 2 nodes reported"
    empty = gather.Gathered({"n1": NodeCapture("n1", "slurm:7.0")})
    assert gather.summary(empty, 2) == "1 of 2 nodes reported, none has a rank"
    some = gather.sort_out([Outcome("n1", reply("n1", [0, 1]), "", 0)])
    assert gather.summary(some, 2) == "1 of 2 nodes reported, ranks 0-1"
