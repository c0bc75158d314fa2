"""A store whose process had gone, counts beside the iterations, rings of sends, and what parents of
launchers print. Texts by the formats of the programs' own strings.
"""

from __future__ import annotations

from pathlib import Path

from hangdoctor.model.diagnosis import Diagnosis
from hangdoctor.model.log_facts import AnyFact, Progress
from tests.support.ended_boxes import column, ended, of_column
from tests.support.read_logs import diagnosed, logs_of, named
from tests.support.written_logs import caught

LOST_STORE = (
    "[rank{0}]:[W1123 09:05:14.9 TCPStore.cpp:138] [c10d] recvValue failed on SocketImpl(fd=3, addr=[n1]:44800, remote=[n0]:29772): Connection reset by peer\n"
    "Exception raised from recvBytes at Utils.hpp:787 (most recent call first):\n\n"
)
RAISED = (
    "[rank{0}]: Traceback (most recent call last):\n"
    '[rank{0}]:   File "/job/leader.py", line 30, in main\n'
    "[rank{0}]: torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown or crash?\n"
)


def of_ranks(text: str, *ranks: int) -> str:
    """The text, once for each rank."""
    return "".join(text.format(rank) for rank in ranks)


# ---------------------------------------------------------------------- the store


def test_rank_0_that_ended_while_others_still_asked_its_store(tmp_path: Path) -> None:
    left = of_ranks(LOST_STORE + RAISED, 1, 2, 3)
    found = diagnosed(tmp_path, "rank 0: finished with 96 items\n" + left)
    assert (found.status, named(found)) == ("failed", [("dead", [0])]), found.summary
    assert "raised nothing: ranks 1-3 lost the rendezvous store" in found.summary
    assert "finished with 96 items" in " ".join(e.says for e in found.causes[0].evidence)


def test_a_store_whose_end_the_log_does_not_explain(tmp_path: Path) -> None:
    unheard = diagnosed(tmp_path, of_ranks(LOST_STORE, 1))
    assert (unheard.status, named(unheard)) == ("unknown", [])
    assert "rank 1 lost the rendezvous store" in unheard.summary
    asked = "W1123 09:05:13.0 40 torch/distributed/elastic/agent/server/api.py:753] Received 15 death signal, shutting down workers\n"
    text = "rank 0: step 4\n" + asked + of_ranks(LOST_STORE + RAISED, 1, 2, 3)
    assert named(diagnosed(tmp_path, text)) == []
    own = "[rank0]: Traceback (most recent call last):\n[rank0]: KeyError: 'x'\n"
    assert named(diagnosed(tmp_path, own + of_ranks(LOST_STORE + RAISED, 1, 2, 3))) == [
        ("error", [0])
    ]


def test_a_job_that_came_to_its_end_only_warns_of_its_store(tmp_path: Path) -> None:
    dump = '[rank1]:[W1123 09:05:14.9 ProcessGroupNCCL.cpp:1662] Failed to check the "should dump" flag on TCPStore, with error: Broken pipe\n'
    warnings = of_ranks(LOST_STORE, 1, 2) + dump
    assert diagnosed(tmp_path, "step 100/100 loss 2.0\n" + warnings).status == "healthy"
    assert diagnosed(tmp_path, "step 90/100 loss 2.0\n" + warnings).status == "unknown"
    lost = "[rank1]: RuntimeError: Connection closed by peer [n1]:7\n"
    assert diagnosed(tmp_path, "step 100/100 loss 2.0\n" + warnings + lost).status == "unknown"


# ---------------------------------------------------------------------- counts


BAR = "mAP@.5:.95:  {}% {}/32 [01:04<00:28,  2.80s/it]\n"


def waits(*ranks: int) -> str:
    return "".join(caught(rank, op="BROADCAST") for rank in ranks)


def test_a_log_that_counts_on_after_the_limit_of_all_others(tmp_path: Path) -> None:
    text = BAR.format(69, 22) + waits(1, 2, 3)
    found = diagnosed(tmp_path, text + BAR.format(81, 26))
    assert (found.status, named(found)) == ("slow", [("slow", [0])]), found.summary
    assert "26/32" in found.summary
    again = diagnosed(tmp_path, text + BAR.format(69, 22))  # drawn once more at the end
    assert (again.status, named(again)) == ("unknown", []), again.summary
    assert named(diagnosed(tmp_path, waits(0, 1, 2, 3) + text + BAR.format(81, 26))) == []


def test_a_count_is_told_where_the_launcher_was_ended(tmp_path: Path) -> None:
    asked = "W1123 08:52:59.2 14149 torch/distributed/elastic/agent/server/api.py:753] Received 15 death signal, shutting down workers\n"
    counts = "".join(f"eval {n}/300 score -82.25\n" for n in range(0, 60, 5))
    found = diagnosed(tmp_path, "step 50 loss 4.3\n" + counts + asked)
    assert (found.status, named(found)) == ("unknown", [])
    assert "the last progress in it is 'eval 55/300 score -82.25' (job.log:13)" in found.summary
    facts = [f for f in logs_of(tmp_path / "job.log").facts if isinstance(f, Progress)]
    assert [(f.part, f.iteration, f.total) for f in facts] == [("", 50, -1), ("eval", 55, 300)]
    complete = diagnosed(tmp_path, "step 50 loss 4.3\neval 300/300 done\n")
    assert complete.status == "unknown"  # an evaluation's end is not the job's


def behind(printed: list[AnyFact]) -> Diagnosis:
    """Ranks 1 to 3 have waited in #21 for 19 s when SIGTERM ends all."""
    ranks = [0, 1, 2, 3]
    boxes = [column(rank, 21, 1021.0, 0.0, ranks) for rank in ranks]
    boxes[0] = column(0, 20, 1020.0, 1020.01, ranks)
    for contents in boxes:
        contents.ops.heartbeat_s = contents.box.heartbeat_s = 1040.0
    return of_column(boxes, [ended(rank, -15, 1040.1) for rank in ranks], printed)


def count(at: int, times: int) -> Progress:
    return Progress(part="eval", iteration=at, total=300, times=times, line=17, says="eval")


def test_a_rank_that_counted_until_the_job_was_ended_is_slow() -> None:
    step = Progress(iteration=50, line=5, says="step 50")
    found = behind([step, count(55, 12)])
    assert (found.status, named(found)) == ("slow", [("slow", [0])]), found.summary
    assert "still at work" in found.summary
    for printed in ([step], [step, count(300, 60)], [step, count(55, 1)]):
        hung = behind(list(printed))
        assert (hung.status, named(hung)) == ("hang", [("not_entered", [0])])
        assert hung.causes[0].confidence < 0.8  # 19 s may be slow work
    later = Progress(iteration=60, line=30, says="step 60")
    assert behind([later, count(55, 12)]).status == "hang"


# ---------------------------------------------------------------------- sends, parents, halves


def test_a_ring_in_which_all_send_first(tmp_path: Path) -> None:
    api = "/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
    head = f'[rank{{0}}]: Traceback (most recent call last):\n[rank{{0}}]:   File "/job/ring.py", line 12, in step\n[rank{{0}}]:   File "{api}", line 2, in send\n'
    closed = head + "[rank{0}]: RuntimeError: [pair.cc:553] Connection closed by peer [n1]:17\n"
    limit = (
        head
        + "[rank{0}]: RuntimeError: [unbound_buffer.cc:129] Timed out waiting 25000ms for send operation to complete\n"
    )
    found = diagnosed(tmp_path, of_ranks(closed, 0, 2) + of_ranks(limit, 1, 3))
    assert (found.status, named(found)) == ("unknown", [])
    assert "ranks 0-3 all wait in send at step (ring.py:12) and none receives" in found.summary


def test_who_began_and_how_many_by_lightnings_lines(tmp_path: Path) -> None:
    begun = "".join(f"GLOBAL_RANK: {n}, MEMBER: {n + 1}/4\n" for n in range(4))
    found = diagnosed(tmp_path, begun + waits(1, 2, 3))
    assert named(found) == [("not_entered", [0])], found.summary


def test_halves_of_a_mismatch_that_each_rank_prints(tmp_path: Path) -> None:
    text = "RuntimeError: Detected mismatch between collectives on ranks. Rank {} is running inconsistent collective: CollectiveFingerPrint(OpType=ALLGATHER, TensorShape=[{}, 8], TensorDtypes=Float)\n"
    found = diagnosed(tmp_path, text.format(0, 41) + text.format(1, 40))
    assert named(found) == [("mismatch", [0, 1])], found.summary
    assert "all_gather [41, 8] Float and all_gather [40, 8] Float" in found.summary


def test_what_a_parent_repeats_and_says_of_its_launcher(tmp_path: Path) -> None:
    error = 'stderr: Traceback (most recent call last):\nstderr:   File "/job/a.py", line 5, in f\nstderr: AssertionError: other model\n'
    ends = "stderr: ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) local_rank: 0 (pid: 82) of binary: python\nstderr: torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
    own = "Traceback (most recent call last):\n  File \"/v/bin/accelerate\", line 8, in <module>\nRuntimeError: 'accelerate-launch a.py' failed with returncode 1\n"
    found = diagnosed(tmp_path, error + ends + own)
    assert found.status == "failed" and "AssertionError in f (a.py:5)" in found.summary


def test_a_workers_death_that_ray_tells_as_a_warning(tmp_path: Path) -> None:
    text = "2023-01-17 17:21:35,472\tWARNING worker.py:1829 -- A worker died or was killed while executing a task by an unexpected system error. Worker IP address: 10.0.0.4 Worker port: 10016 Worker PID: 1942 Worker exit type: SYSTEM_ERROR\n"
    after = 'ray.exceptions.RayTaskError(RuntimeError): ray::TrainTrainable.train() (pid=1876, ip=10.0.0.4, repr=T)\n  File "/v/ray/train/x.py", line 5, in f\nRuntimeError: worker group failed\n'
    found = diagnosed(tmp_path, text + after)
    assert found.causes[0].kind == "dead" and "Process 1942 on 10.0.0.4" in found.summary


# ---------------------------------------------------------------------- Ctrl-C


def interrupted(rank: int, line: int, function: str) -> str:
    head = f'[rank{rank}]: Traceback (most recent call last):\n[rank{rank}]:   File "/job/a.py", line {line}, in {function}\n'
    return f"{head}[rank{rank}]: KeyboardInterrupt\n"


def test_where_ctrl_c_met_ranks_that_poll_for_one_that_works(tmp_path: Path) -> None:
    """In no collective, so that nobody is named; the places say where to look."""
    text = "".join(interrupted(rank, 12, "wait_for_file") for rank in (0, 1, 3))
    found = diagnosed(tmp_path, text + interrupted(2, 44, "save"))
    assert (found.status, named(found)) == ("unknown", [])
    met = "It met ranks 0-1,3 in wait_for_file (a.py:12) and rank 2 in save (a.py:44)"
    assert met in found.summary


def test_ctrl_c_that_lightning_caught(tmp_path: Path) -> None:
    found = diagnosed(
        tmp_path, "step 31\nDetected KeyboardInterrupt, attempting graceful shutdown ...\n"
    )
    assert "SIGINT (Ctrl-C)" in found.summary and "'step 31' (job.log:1)" in found.summary


# ---------------------------------------------------------------------- others


def test_the_process_that_the_kernel_names_beside_an_xid(tmp_path: Path) -> None:
    text = "kernel: NVRM: Xid (PCI:0000:dc:00): 149, pid=1818990, name=python3, NETIR_LINK_EVT\n"
    later = "kernel: NVRM: Xid (PCI:0000:ba:00): 45, pid=1818989, name=python3, Ch 2\n"
    found = diagnosed(tmp_path, text + later)
    assert (
        "Process 1818990 failed first: the GPU 0000:dc:00 reports an NVLink error" in found.summary
    )


def test_a_wait_in_the_store_is_no_lost_connection(tmp_path: Path) -> None:
    text = 'Traceback (most recent call last):\n  File "/job/a.py", line 8, in mapping\nRuntimeError: Socket Timeout\n'
    found = diagnosed(tmp_path, text)
    assert (found.status, named(found)) == ("unknown", [])
    assert "waited in the rendezvous store to the limit" in found.summary


def test_a_launchers_line_that_was_broken_in_two(tmp_path: Path) -> None:
    text = "E0424 01:17:26.9 521 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -9) local_rank: 6 (pid\n: 541332) of binary: python\n"
    assert named(diagnosed(tmp_path, text)) == [("dead", [6])]


def test_a_checkpoint_that_could_not_be_written(tmp_path: Path) -> None:
    text = '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/job/a.py", line 8, in save\n[rank0]: RuntimeError: [enforce fail at inline_container.cc:778] . PytorchStreamWriter failed writing file data.pkl: file write failed\n'
    assert "could not be written" in diagnosed(tmp_path, text).summary
