"""What a line says of who it speaks: a process, a device, an address, tasks that crashed at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed, named


def test_the_process_of_older_ray_prefixes_is_named(tmp_path: Path) -> None:
    found = diagnosed(
        tmp_path,
        "(pid=5131) starting episode 5\n"
        "(pid=5135) terminate called after throwing an instance of 'std::bad_alloc'\n",
    )
    assert found.summary.startswith("Process 5135 failed first: it did not get the memory")


def test_what_a_rule_takes_from_the_line_is_in_its_meaning(tmp_path: Path) -> None:
    line = "HW Exception by GPU node-4 (Agent handle: 0x64ff272d8ab0) reason :GPU Hang\n"
    assert "GPU node-4 hangs" in diagnosed(tmp_path, line * 3).summary


def test_a_port_that_hccl_cannot_have_is_of_its_process_and_address(tmp_path: Path) -> None:
    line = "[ERROR] HCCL(2717,python3):2025-07-23-03:47:57.070.463 [hccl_socket.cc:100] [2717][Listen] socket type[1], listen on ip[10.0.0.7] and specific port[16666] fail. Please check the port status.\n"
    wait = "[ERROR] HCCL(2717,python3):2025-07-23-03:49:57.177.194 [hccl_socket_manager.cc:778] [2734][Wait][LinkEstablish]wait socket establish timeout, role[1] rank[12] timeout[120]\n"
    found = diagnosed(tmp_path, line + wait)
    assert found.summary.startswith("Process 2717 on 10.0.0.7 failed first")
    assert "port 16666" in found.summary and "sport = :16666" in found.causes[0].advice


def test_who_cannot_be_connected_to_is_named(tmp_path: Path) -> None:
    line = "[W socket.cpp:601] [c10d] The client socket has failed to connect to [job-worker-0.default.svc]:43461 (errno: 113 - No route to host).\n"
    found = diagnosed(tmp_path, line)
    assert found.causes[0].nodes == ["job-worker-0.default.svc"], found.summary


def test_a_crash_explains_why_the_coordinator_had_not_heard_of_it(tmp_path: Path) -> None:
    crash = "srun: error: n{0}: task {1}: Segmentation fault\n"
    unheard = "2023-03-07 16:06:30.684022: E coordination_service.cc:956] /job:jax_worker/replica:0/task:15 has been set to ERROR in coordination service: UNAVAILABLE: Task /job:jax_worker/replica:0/task:15 heartbeat timeout. This indicates that the remote task has failed\n"
    text = "".join(crash.format(node, task) for node, task in ((1, 15), (2, 16), (2, 17)))
    found = diagnosed(tmp_path, text + unheard)
    assert named(found) == [("dead", [15, 16, 17])], found.summary
    assert "SIGSEGV" in found.summary


def test_who_reached_the_barrier_and_lost_its_root_is_a_victim(tmp_path: Path) -> None:
    reached = "[rank3]:[E421 04:13:43.426633564 ProcessGroupGloo.cpp:143] Rank 3 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank.\n"
    cut = '[rank3]: Traceback (most recent call last):\n[rank3]:   File "/app/serve.py", line 75, in __init__\n[rank3]:     self.runner = Runner()\n'
    found = diagnosed(tmp_path, reached + cut)
    assert (found.status, found.causes) == ("unknown", []), found.summary
    assert named(diagnosed(tmp_path, cut)) == [("error", [3])]


@pytest.mark.parametrize(
    "line",
    [
        "[WARNING] ME(162078:2815,MainProcess):2025-03-10-09:40:12.444.000 [_api.py:318] There's worker exits with exception, kill all other workers.\n",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n",
    ],
)
def test_a_launcher_alone_knows_that_a_process_failed(tmp_path: Path, line: str) -> None:
    found = diagnosed(tmp_path, "starting\n" + line)
    assert (found.status, found.causes) == ("unknown", [])
    assert "the launcher saw a process fail" in found.summary


ELASTIC = """\
E0608 19:04:45.368000 102926 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 0 (pid: 102930) of binary: python
Failures:
"""
ROW = "[{0}]:\n  time      : 2026-06-08_19:04:45\n  host      : n1\n  rank      : {1} (local_rank: {1})\n  exitcode  : 1 (pid: 10293{1})\n"
WHOLE = """\
Traceback (most recent call last):
  File "/app/train.py", line 35, in <module>
    params = Params(path)
FileNotFoundError: [Errno 2] No such file or directory: '/app/your.yaml'
"""
TORN = 'Traceback (most recent call last):\n  File "/app/train.py", line 35, in <module>\n  /x/\n'


def test_errors_that_tore_one_another_are_of_all_that_exited_with_one(tmp_path: Path) -> None:
    table = ELASTIC + "".join(ROW.format(n, rank) for n, rank in enumerate((2, 3, 0)))
    found = diagnosed(tmp_path, WHOLE + WHOLE + TORN + table)
    assert named(found) == [("error", [0, 2, 3])], found.summary
    once = diagnosed(tmp_path, WHOLE + table)
    assert named(once) == [("error", [0, 2, 3])], once.summary
    assert once.summary.startswith("One of ranks 0,2-3 on n1 (the log does not show which)")
