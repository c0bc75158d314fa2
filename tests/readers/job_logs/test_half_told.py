"""Lines that say half of it: broken in the middle, without their group, of an exception that ended
nothing, or of a bar's end alone.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.read_logs import diagnosed, named

CHECK = (
    "RuntimeError: Detected mismatch between collectives on ranks. Rank {0} is running inconsistent"
    " collective: CollectiveFingerPrint(OpType=ALLGATHER, TensorShape{1}=[{2}, 8], TensorDtypes=Float,"
    " TensorDeviceTypes=TensorOptions(dtype=float (default), device=cuda)\n"
)
LATE = (
    "[rank{0}]:[E516 06:09:16.295666043 ProcessGroupNCCL.cpp:629] [Rank {0}] Watchdog caught collective operation timeout:"
    " WorkNCCL(SeqNum={1}, OpType=_ALLGATHER_BASE, NumelIn=64, NumelOut={2}, Timeout(ms)=1800000)"
    " ran for 1800004 milliseconds before timing out.\n"
)
OF_GROUP = (
    "[rank{0}]:[E516 06:09:16.295666043 ProcessGroupNCCL.cpp:2168] [PG ID 0 PG GUID 0(default_pg) Rank {0}]  failure detected"
    " by watchdog at work sequence id: {1} PG status: last enqueued work: {1}, last completed work: 40\n"
)
RAISED = """Traceback (most recent call last):
  File "/home/me/train.py", line 58, in load
    model = read(path)
RuntimeError: unable to open file </models/a.safetensors>
"""


def test_a_check_whose_lines_the_terminal_broke_in_two_gives_both_sizes(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, CHECK.format(0, "\n", 41) + CHECK.format(1, "\n", 40))
    assert named(found) == [("mismatch", [0, 1])], found.summary
    assert "[41, 8] Float and all_gather [40, 8] Float" in found.summary


def test_no_parameters_are_what_an_aborted_gathering_leaves(tmp_path: Path) -> None:
    waits = "".join(LATE.format(r, 1, 128) + OF_GROUP.format(r, 1) for r in range(2))
    line = "RuntimeError: DDP expects same model across all ranks, but Rank {} has 26 params, while rank {} has inconsistent {} params.\n"
    gone = diagnosed(tmp_path, waits + line.format(0, 1, 0))
    assert "mismatch" not in dict(named(gone)), gone.summary
    real = diagnosed(tmp_path, waits + line.format(0, 1, 24))
    assert "mismatch" in dict(named(real)), real.summary


def test_the_size_of_a_gathering_tells_who_is_not_in_the_log(tmp_path: Path) -> None:
    """Only one of the two who waited says in which group; the line of the other was cut away."""
    waits = LATE.format(1, 41, 192) + LATE.format(2, 41, 192) + OF_GROUP.format(1, 41)
    found = diagnosed(tmp_path, waits)
    assert named(found) == [("not_entered", [0])], found.summary
    cut = diagnosed(tmp_path, waits + "[ra")
    assert not named(cut), cut.summary
    both = diagnosed(tmp_path, waits.replace("NumelOut=192", "NumelOut=128"))
    assert 0 not in [rank for _, ranks in named(both) for rank in ranks], both.summary


def test_an_error_without_a_rank_is_of_the_one_that_did_not_wait(tmp_path: Path) -> None:
    """Unless nobody could take the exception: then it ended nothing."""
    waits = "".join(LATE.format(r, 41, 192) + OF_GROUP.format(r, 41) for r in (1, 2))
    raised = diagnosed(tmp_path, RAISED + waits)
    assert named(raised) == [("error", [0])], raised.summary
    assert "unable to open file" in raised.summary and raised.causes[0].confidence < 0.8
    ignored = diagnosed(
        tmp_path, "Exception ignored in: <finalize object; dead>\n" + RAISED + waits
    )
    assert named(ignored) == [("not_entered", [0])], ignored.summary


def test_a_bars_end_alone_is_no_progress_after_an_error(tmp_path: Path) -> None:
    """Where it was seen before, the job went on."""
    bar = "Loading checkpoint shards: {}%|####| {}/4 [00:09<00:00]\n"
    found = diagnosed(tmp_path, RAISED + bar.format(100, 4))
    assert named(found) == [("error", [])], found.summary
    steps = "".join(f"step {step} loss 1.0\n" for step in range(10, 40, 10))
    moved = diagnosed(tmp_path, RAISED + bar.format(25, 1) + bar.format(100, 4) + steps)
    assert not named(moved), moved.summary


def test_a_crash_that_abseil_reports_is_of_its_process(tmp_path: Path) -> None:
    text = "*** SIGSEGV (@(nil)), see go/it received by PID 11743 (TID 12350) on cpu 17; stack trace: ***\n"
    found = diagnosed(tmp_path, text + "PC: @ 0x7facba4a8de2 (unknown) (unknown)\n")
    assert named(found)[0][0] == "dead" and "11743" in found.summary, found.summary


def test_the_helper_of_hccl_that_did_not_start_is_of_the_rank_in_the_next_line(
    tmp_path: Path,
) -> None:
    raised = 'Traceback (most recent call last):\n  File "/home/me/train.py", line 9, in main\n    barrier()\n'
    text = (
        raised + "RuntimeError: [ERROR] HCCL error in: torch_npu/csrc/ProcessGroupHCCL.cpp:64\n"
        "[ERROR] 2024-05-21-11:57:54 (PID:927000, Device:3, RankID:3) ERR02200 DIST call hccl api failed.\n"
        "EJ0001: 2024-05-21-11:57:54.167.645 Failed to initialize the HCCP process. Reason: Maybe the"
        " last training process is running.\n"
    )
    found = diagnosed(tmp_path, text)
    assert named(found)[0] == ("error", [3]), found.summary
    assert "HCCP" in found.summary
