"""Ends and waits that name no rank: a launcher that was asked to end, waits in Huawei's library,
pods, what stands behind a progress bar. Texts by the formats of the programs' own strings.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed, named
from tests.support.written_logs import table

BAR = " 10%|#9   | 51/525 [2:12:20<20:11:06, 153.30s/it]"
ELASTIC = "W1221 17:13:59.240000 466 torch/distributed/elastic/{} "
ASKED = (
    ELASTIC.format("agent/server/api.py:704]") + "Received {} death signal, shutting down workers\n"
)
CLOSED = ELASTIC.format("multiprocessing/api.py:900]") + "Sending process 85 closing signal {}\n"
CUT = (
    'Traceback (most recent call last):\n  File "/job/main.py", line 84, in <module>\n    main()\n'
)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (BAR + ASKED.format(1), "by SIGHUP, which it gets when its terminal closes"),
        (ASKED.format("Signals.SIGHUP"), "by SIGHUP, which"),
        (CLOSED.format("SIGHUP") + CUT, "by SIGHUP, which"),
        (ASKED.format(2) + CUT, "by SIGINT (Ctrl-C)"),
        (ASKED.format(15) + CLOSED.format("SIGTERM"), "by SIGTERM: a person, a scheduler"),
        ("torch.x.SignalException: Process 64 got signal: 1\n", "by SIGHUP, which"),
    ],
)
def test_a_launcher_that_was_asked_to_end(tmp_path: Path, text: str, says: str) -> None:
    verdict = diagnosed(tmp_path, text)
    assert (verdict.status, named(verdict)) == ("unknown", [])
    assert f"the launcher was ended from outside {says}" in verdict.summary


def test_a_failure_before_the_launcher_was_asked_to_end(tmp_path: Path) -> None:
    own = '[rank3]: Traceback (most recent call last):\n[rank3]:   File "/job/a.py", line 4, in f\n'
    verdict = diagnosed(tmp_path, own + "[rank3]: KeyError: 'x'\n" + ASKED.format(15))
    assert named(verdict) == [("error", [3])]


HCCL = (
    "EI0002: [PID: 13] 2026-06-25-10:45:23.586 The wait execution of the Notify register times out.\n",
    "EE1002: rtDeviceSynchronize execute failed, reason=[stream sync timeout]\n",
    "EH9999:   rtDeviceSynchronize execute failed, reason=[task timeout][FUNC:F]\n",
    "RuntimeError: ACL stream synchronize failed.\n",
)


@pytest.mark.parametrize("text", HCCL)
def test_a_wait_in_hccl_names_no_rank(tmp_path: Path, text: str) -> None:
    head = (
        '[rank2]: Traceback (most recent call last):\n[rank2]:   File "/job/a.py", line 4, in f\n'
    )
    verdict = diagnosed(tmp_path, f"{head}[rank2]: {text}")
    assert (verdict.status, named(verdict)) == ("unknown", []), verdict.summary
    assert "waited in HCCL to the limit" in verdict.summary


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Pod: kubeflow.llama-worker-3 exited with code 1\n", "exit code 1"),
        (
            "Error pod llama-worker-3 container pytorch exitCode: 137 terminated message:\n",
            "SIGKILL",
        ),
        (
            "manager.py:128] Got event MODIFIED, phase Failed for pod: llama-worker-3\n",
            "exit code 1",
        ),
    ],
)
def test_the_pod_that_kubernetes_says_failed(tmp_path: Path, text: str, code: str) -> None:
    verdict = diagnosed(tmp_path, text)
    assert [(c.kind, c.ranks, c.nodes) for c in verdict.causes] == [
        ("dead", [], ["llama-worker-3"])
    ]
    assert code in verdict.summary


def test_two_pods_that_failed_are_no_first_one(tmp_path: Path) -> None:
    text = "".join(f"Pod: kubeflow.llama-worker-{n} exited with code 1\n" for n in (1, 3))
    assert named(diagnosed(tmp_path, text)) == []


@pytest.mark.parametrize(
    "text",
    [
        BAR + "Killed\n",
        "[1]    143628 killed     python train.py\n",
    ],
)
def test_the_shells_word_of_a_kill(tmp_path: Path, text: str) -> None:
    verdict = diagnosed(tmp_path, text)
    assert named(verdict) == [("dead", [])] and "SIGKILL" in verdict.summary


def test_a_launchers_line_before_a_traceback_in_one_line(tmp_path: Path) -> None:
    api = "torch.distributed.elastic.multiprocessing.api:"
    text = f"{BAR}WARNING:{api}Sending process 899505 closing signal SIGTERM      "
    text += f"ERROR:{api}failed (exitcode: -9) local_rank: 4 (pid: 899509) of binary: /v/bin/python"
    verdict = diagnosed(tmp_path, text + "    Traceback (most recent call last):   File x\n")
    assert named(verdict) == [("dead", [4])]


def test_paddles_launcher_names_the_rank(tmp_path: Path) -> None:
    text = (
        "LAUNCH ERROR 2026-10-25 15:17:31,067 Container failed !!!\nContainer rank 3 status failed"
    )
    text += " cmd ['/usr/bin/python3', '-u', 'train.py'] code {} log log/default.3.log\n"
    assert named(diagnosed(tmp_path, text.format(1))) == [("dead", [3])]
    assert "SIGABRT" in diagnosed(tmp_path, text.format(-6)).summary


def entry(rank: int, code: int, second: int) -> str:
    return (
        f"  time      : 2026-09-07_13:02:{second:02d}\n  host      : n1\n"
        f"  rank      : {rank} (local_rank: {rank})\n  exitcode  : {code} (pid: {700 + rank})\n"
    )


def test_whom_torchelastic_killed_after_the_first_end(tmp_path: Path) -> None:
    first, other = entry(1, 1, 8), entry(3, 1, 8)
    verdict = diagnosed(tmp_path, table(first, other, entry(0, -9, 39), entry(2, -15, 39)))
    assert named(verdict) == [("dead", [1, 3])] and verdict.causes[0].confidence < 0.5
    assert "which of them was first does not show" in verdict.summary
    verdict = diagnosed(tmp_path, table(first, other, entry(0, -9, 8)))
    assert named(verdict) == [("dead", [0])]  # at the same moment: the launcher had not begun


def test_whom_srun_killed_after_an_abort(tmp_path: Path) -> None:
    aborts = "srun: error: n2: tasks 4-7: Aborted (core dumped)\n"
    verdict = diagnosed(tmp_path, aborts + "srun: error: n1: tasks 0-3: Killed\n")
    assert named(verdict) == []
    verdict = diagnosed(tmp_path, "srun: error: n1: task 3: Killed\n" + aborts)
    assert named(verdict) == [("dead", [3])]


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        (
            "ValueError: host not found: Name or service not known\n",
            "start_stall",
            "has no address",
        ),
        (
            "The IPv6 network addresses of (llama-master-0, 29500) cannot be retrieved (gai error: -2)\n",
            "start_stall",
            "llama-master-0",
        ),
        (
            "x.DistStoreError: Timed out after 6 seconds waiting for workers. 1/2 workers joined.\n",
            "start_stall",
            "1 of 2",
        ),
        (
            "[rank4]:[E421 02:05:38.76 ProcessGroupGloo.cpp:143] Gloo connectFullMesh failed with [x.cc:144] no error\n",
            "start_stall",
            "gloo could not connect",
        ),
        (
            "node23:12:14 [2] transport/nvls.cc:244 NCCL WARN Cuda failure 1 'x'\n",
            "error",
            "inside NCCL",
        ),
    ],
)
def test_what_keeps_a_job_from_starting(tmp_path: Path, text: str, kind: str, says: str) -> None:
    verdict = diagnosed(tmp_path, text)
    assert named(verdict) == [(kind, [])], verdict.summary
    assert says in verdict.summary


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "[rank11]:[E ProcessGroupNCCL.cpp:1537] [PG 1 Rank 11] Timeout at NCCL work: 15734, last enqueued NCCL work: 15735, last completed NCCL work: 15733.\n",
            "only rank 11 waits",
        ),
        ("[rank1]: x.DistStoreError: wait timeout after 300ms, keys: /data_ready\n", "/data_ready"),
        (
            "n1:15:91 [3] include/socket.h 398 NCCL WARN Call to recv failed : Connection reset by peer.\n",
            "lost a connection",
        ),
        ("n1:2339:2383 [3] NCCL INFO init.cc:1501 -> 1\n", "a call of NCCL failed (job.log:1)"),
        (
            "[rank 4] no step for 25s, giving up\n[rank 1] no step for 25s, giving up\n",
            "own guard saw no progress of ranks 1,4",
        ),
    ],
)
def test_why_no_rank_is_named(tmp_path: Path, text: str, says: str) -> None:
    verdict = diagnosed(tmp_path, text)
    assert (verdict.status, named(verdict)) == ("unknown", []), verdict.summary
    assert says in verdict.summary
