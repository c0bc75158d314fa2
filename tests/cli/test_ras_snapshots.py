"""What one snapshot of NCCL RAS decides, and what only two do: made by the format of `ncclras -v`."""

from __future__ import annotations

import os
from pathlib import Path

from hangdoctor.diagnosis import diagnose
from hangdoctor.model.capture import JobCapture
from hangdoctor.model.diagnosis import Cause, Diagnosis
from hangdoctor.readers.offline import read

HEAD = """Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2         4         8         8   RUNNING  MISMATCH

Warnings
========

#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different AllReduce operation counts
"""
OK = """Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2         4         8         8   RUNNING      OK
"""
DEAD = (
    OK
    + """
Errors
======

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 3487984 on node 10.1.0.9 managing GPU 5
"""
)


def bucket(number: int, launched: int, ranks: range | list[int]) -> str:
    lines = [f"  {number} ranks have launched up to operation {launched}"]
    lines += [
        f"  Rank {r} -- GPU {r % 4} managed by process {480 + r} on node 10.1.0.{1 + r // 4}"
        for r in ranks
    ]
    return "\n".join(lines) + "\n"


def capture(folder: Path, *texts: str, apart_s: float = 30.0) -> JobCapture:
    files = []
    for n, text in enumerate(texts):
        files.append(folder / f"ras-{n}.txt")
        files[-1].write_text(text)
        os.utime(files[-1], (1_780_000_000 + n * apart_s,) * 2)
    return read(files)


def of(folder: Path, *texts: str, apart_s: float = 30.0) -> Diagnosis:
    return diagnose(capture(folder, *texts, apart_s=apart_s))


def one_cause(found: Diagnosis) -> Cause:
    [cause] = found.causes
    return cause


def behind(launched: int) -> str:
    return HEAD + bucket(6, 6650, []) + bucket(2, launched, [2, 3])


def test_a_gap_of_one_operation_in_one_snapshot_accuses_no_rank(tmp_path: Path) -> None:
    found = of(tmp_path, behind(6649))
    assert (found.status, found.causes) == ("unknown", [])
    assert "2-3" in found.summary and "repeat" in found.summary


def test_the_same_gap_in_a_second_snapshot_names_those_behind(tmp_path: Path) -> None:
    cause = one_cause(of(tmp_path, behind(6649), behind(6649)))
    assert (cause.kind, cause.ranks) == ("not_entered", [2, 3])


def test_two_answers_of_one_moment_are_one_snapshot(tmp_path: Path) -> None:
    assert not of(tmp_path, behind(6649), behind(6649), apart_s=0.0).causes


def test_ranks_behind_that_have_moved_are_not_stuck(tmp_path: Path) -> None:
    assert not of(tmp_path, behind(6600), behind(6649)).causes


def test_a_wide_gap_needs_no_second_snapshot(tmp_path: Path) -> None:
    assert one_cause(of(tmp_path, behind(6640))).ranks == [2, 3]


def test_a_majority_behind_is_named_as_behind_and_the_few_as_ahead(tmp_path: Path) -> None:
    text = HEAD + bucket(6, 6640, []) + bucket(2, 6650, [6, 7])
    cause = one_cause(of(tmp_path, text))
    assert cause.ranks == [0, 1, 2, 3, 4, 5]
    assert "6-7 are ahead with 6650" in cause.summary and cause.confidence < 0.5


def test_a_dead_process_without_communicators_is_named_with_its_node_and_gpu(
    tmp_path: Path,
) -> None:
    cause = one_cause(of(tmp_path, DEAD))
    assert (cause.kind, cause.ranks, cause.nodes) == ("unreachable", [], ["10.1.0.9"])
    assert "process 3487984 (GPU 5) on 10.1.0.9" in cause.summary


def test_an_answer_that_finds_nothing_wrong_says_what_that_excludes(tmp_path: Path) -> None:
    found = of(tmp_path, OK)
    assert (found.status, found.causes) == ("unknown", [])
    assert "all 8 ranks" in found.summary


def test_snapshots_that_moved_are_not_called_one(tmp_path: Path) -> None:
    found = of(tmp_path, behind(6600), behind(6649))
    assert "one snapshot" not in found.summary
    assert "ranks 2-3, and more than in the snapshot before" in found.summary


SUB = HEAD.partition("Warnings")[0].replace("MISMATCH", "OK")
SUB += "    1         4         1         2         2         8   RUNNING  MISMATCH\n"
SUB += """
Warnings
========

#1-3 (99a079b828ff1a99) MISMATCH
  Communicator ranks have different AllReduce operation counts
  1 ranks have launched up to operation 777
  Rank 1 has launched up to operation 700 -- GPU 3 managed by process 4807 on node 10.1.0.2
"""


def test_ranks_of_a_smaller_communicator_are_not_taken_for_the_jobs(tmp_path: Path) -> None:
    cause = one_cause(of(tmp_path, SUB))
    assert cause.ranks == [] and cause.nodes == ["10.1.0.2"]
    assert "process 4807 (GPU 3) on 10.1.0.2" in cause.summary
    assert "rank 1 of communicator 99a079b828ff1a99" in cause.summary.lower()


def test_a_usual_gap_in_a_smaller_communicator_speaks_of_no_rank(tmp_path: Path) -> None:
    found = of(tmp_path, SUB.replace("operation 700", "operation 776"))
    assert not found.causes and "members of communicator 99a079b828ff1a99" in found.summary


def test_the_largest_communicator_need_not_span_the_job(tmp_path: Path) -> None:
    """The job has ten GPUs; in one of two members a number 1 is no rank of it."""
    summary = """Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          5            1         10       10
"""
    lost = SUB.partition("#1-3")[0].replace("         8         8", "         2         2")
    lost += """#1-3 (99a079b828ff1a99) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 1 -- GPU 3 managed by process 4807 on node 10.1.0.2
"""
    found = of(tmp_path, summary + lost)
    assert (found.status, found.causes) == ("unknown", []) and found.job.world_size == 10
    assert (
        "process 4807 (GPU 3) on 10.1.0.2" in found.summary and "its own numbering" in found.summary
    )


def test_lines_of_the_log_below_an_answer_are_read_too(tmp_path: Path) -> None:
    """People paste both into one text."""
    wait = (
        "[rank{0}]:[E603 17:48:01.005271 ProcessGroupNCCL.cpp:632] [Rank {0}] Watchdog caught "
        "collective operation timeout: WorkNCCL(SeqNum=1984, OpType=ALLREDUCE, NumelIn=8, "
        "NumelOut=8, Timeout(ms)=600000) ran for 600068 milliseconds before timing out.\n"
    )
    error = '[rank2]: Traceback (most recent call last):\n[rank2]:   File "/app/t.py", line 5, in main\n[rank2]: ValueError: bad shard\n'
    found = of(tmp_path, OK + "\n" + error + wait.format(1))
    assert [(c.kind, c.ranks) for c in found.causes] == [("error", [2])]
    (tmp_path / "two").mkdir()
    alone = of(tmp_path / "two", OK + "\n" + wait.format(1))
    assert alone.causes == [] and "rank 1" in alone.summary
    assert "NCCL RAS reaches all 8 ranks" in alone.summary


def test_its_process_names_the_rank_where_a_communicator_of_the_job_does(tmp_path: Path) -> None:
    world = """
#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different status
  7 ranks have status RUNNING
  Rank 7 has status FINALIZE -- GPU 3 managed by process 4807 on node 10.1.0.2
"""
    assert one_cause(of(tmp_path, SUB + world)).ranks == [7]


def test_a_lost_rank_of_a_smaller_communicator_is_a_process(tmp_path: Path) -> None:
    lost = SUB.partition("#1-3")[0]
    lost += """#1-3 (99a079b828ff1a99) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 1 -- GPU 3 managed by process 4807 on node 10.1.0.2
"""
    found = of(tmp_path, lost)
    assert (found.status, found.causes) == ("unknown", []), "no data alone is no hang"
    assert "process 4807 (GPU 3) on 10.1.0.2" in found.summary


FAILED = """
Errors
======

#0-0 (cf264af53edbe986) ERROR
  Rank 5 reported unhandled cuda error -- GPU 1 managed by process 485 on node 10.1.0.2
  7 ranks reported remote process exited or there was a network error
"""


def test_a_rank_whose_own_error_ras_reports_is_named(tmp_path: Path) -> None:
    cause = one_cause(of(tmp_path, OK + FAILED))
    assert (cause.kind, cause.ranks, cause.nodes) == ("error", [5], ["10.1.0.2"])
    assert "unhandled cuda error" in cause.summary


def test_errors_about_another_process_accuse_no_rank(tmp_path: Path) -> None:
    text = FAILED.replace("unhandled cuda error", "remote process exited or network error")
    found = of(tmp_path, OK + text)
    assert (found.status, found.causes) == ("unknown", [])
    assert "equal counts" not in found.summary and "remote process" in found.summary


def test_requests_that_timed_out_are_not_an_answer_of_all_ranks(tmp_path: Path) -> None:
    late = OK + "\nTIMEOUT\n  Encountered 3 communication timeouts while gathering data\n"
    found = of(tmp_path, late)
    assert found.status == "unknown" and "reaches all" not in found.summary
    assert "3 of its requests timed out" in found.summary


def test_ranks_in_different_states_are_not_called_equal(tmp_path: Path) -> None:
    states = """
#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different status
  7 ranks have status INIT
  Rank 6 has status RUNNING -- GPU 2 managed by process 486 on node 10.1.0.2
"""
    found = of(tmp_path, OK + states)
    assert not found.causes and "equal counts" not in found.summary
    assert "different states" in found.summary and "rank 6 running" in found.summary


def test_the_section_of_the_dead_alone_is_read(tmp_path: Path) -> None:
    cause = one_cause(of(tmp_path, DEAD.removeprefix(OK)))
    assert (cause.kind, cause.nodes) == ("unreachable", ["10.1.0.9"])


def test_ras_without_complaint_supports_a_fault_beyond_the_hosts(tmp_path: Path) -> None:
    stack = "    all_reduce (torch/distributed/distributed_c10d.py:2696)\n    step (train.py:31)\n"
    blocks = [
        f'Process {700 + n}: python train.py --local_rank={n}\nThread {700 + n} (idle): "MainThread"\n'
        + stack
        for n in range(8)
    ]
    job = capture(tmp_path, OK)
    stacks = tmp_path / "trace-n1.out"
    stacks.write_text("\n".join(blocks))
    together = read([tmp_path / "ras-0.txt", stacks])
    assert job.world_size == 8
    cause = one_cause(diagnose(together))
    assert cause.kind == "in_communication"
    assert "ras" in {e.source for e in cause.evidence}
