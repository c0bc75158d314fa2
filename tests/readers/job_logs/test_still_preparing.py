"""Ranks that came to their time limit while another one was still making the data ready."""

from __future__ import annotations

from pathlib import Path

from tests.support.read_logs import diagnosed, named

BAR = "Running tokenizer on train set:  12%|##        | 4{0}000/350000 [29:5{0}<3:40:11, 23.1 examples/s]"
LIMIT = "[Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for 1800{0}44 milliseconds before timing out."
STORE = (
    "[rank1]:[W socket.cpp:489] [c10d] waitForInput: socket SocketImpl(fd=83) timed out after 1800000ms\n"
    '[rank1]: Traceback (most recent call last):\n[rank1]:   File "/app/train.py", line 12, in <module>\n[rank1]:     main()\n'
)


def test_the_only_rank_that_did_not_time_out_was_at_it(tmp_path: Path) -> None:
    lines = [BAR.format(1), BAR.format(2), *(LIMIT.format(rank) for rank in (2, 1, 3))]
    said = diagnosed(tmp_path, "\n".join(lines) + "\n")
    assert named(said) == [("slow", [0])] and said.status == "slow"
    assert "was still making its data ready when ranks 1-3 had waited in all_reduce #2 to" in (
        said.summary
    )
    assert "12% 42000/350000 [29:52<3:40:11" in said.summary
    assert "ddp_timeout" in said.causes[0].advice


def test_a_wait_at_the_store_and_a_traceback_that_is_cut(tmp_path: Path) -> None:
    """Who says so waited: what it raised is the end of that wait, and not the first failure."""
    said = diagnosed(tmp_path, BAR.format(1) + "\n" + STORE)
    assert named(said) == [("slow", [])]
    assert "A rank (the log does not show which) was still making its data ready when rank 1" in (
        said.summary
    )
    assert named(diagnosed(tmp_path, STORE)) == []


def test_what_was_done_or_is_no_preparation_is_none(tmp_path: Path) -> None:
    waits = "\n".join(LIMIT.format(rank) for rank in (2, 1, 3)) + "\n"
    done = "Running tokenizer on train set: 100%|##########| 350000/350000 [29:51<00:00, 23.1 examples/s]\n"
    steps = " 12%|##        | 41/350 [12:51<3:40:11, 23.1 s/it]\n"
    loads = "Loading checkpoint shards:  50%|#####     | 1/2 [12:51<3:40:11, 23.1 s/it]\n"
    for before in ("", done, steps, loads, BAR.format(1) + "\n" + steps):
        assert named(diagnosed(tmp_path, before + waits)) == []


def test_one_that_waited_itself_is_not_named(tmp_path: Path) -> None:
    lines = ["[rank2]: " + BAR.format(1), *(LIMIT.format(rank) for rank in (2, 1, 3))]
    assert named(diagnosed(tmp_path, "\n".join(lines) + "\n")) == []


def test_the_rank_that_a_monitored_barrier_names(tmp_path: Path) -> None:
    bar = "Map (num_proc=14):  70%|####    | 652383/930514 [6:39:53<4:31:33, 17.07 examples/s]"
    barrier = "[E ProcessGroupGloo.cpp:138] Rank 3 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0. Please check rank 0 logs\n"
    assert named(diagnosed(tmp_path, bar + barrier)) == [("slow", [0])]


def test_other_work_that_has_run_for_just_as_long_as_the_others_waited(tmp_path: Path) -> None:
    bar = " 87%|####    | 1582/1818 [30:0{0}<04:26,  1.13s/it]\n"
    said = diagnosed(tmp_path, bar.format(2) + LIMIT.format(1) + "\n")
    assert named(said) == [("slow", [])]
    assert (
        "was still at work when rank 1 had waited in all_reduce #2 to the time limit, and"
        in said.summary
    )
    for other in (bar.format(2).replace("30:02", "31:02"), bar.format(2).replace("1582", "1818")):
        assert named(diagnosed(tmp_path, other + LIMIT.format(1) + "\n")) == []
