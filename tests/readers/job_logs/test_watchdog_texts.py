"""Verdicts on logs of NCCL's watchdog, in torch's own formats: who is behind, and who only waits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed, named
from tests.support.written_logs import (
    DEFAULT,
    aborted,
    caught,
    counters,
    counters_of_2_4,
    failed,
    observed,
    table,
    told,
    traceback,
)

EIGHT = range(8)


def waiting(ranks: list[int], form: str = "new") -> str:
    """These ranks time out in all_reduce #81, having enqueued 83."""
    text = ""
    for rank in ranks:
        text += caught(rank)
        if form == "new":
            text += counters(rank, 83, 80)
        if form == "2.4":
            text += counters_of_2_4(rank, 83, 80)
    return text


@pytest.mark.parametrize("form", ["new", "2.4"])
def test_a_smaller_counter_in_the_same_group_is_the_cause(tmp_path: Path, form: str) -> None:
    others = [r for r in EIGHT if r != 5]
    idle = told(5, 0, 80, 80) if form == "new" else counters_of_2_4(5, 80, 80, 80)
    verdict = diagnosed(tmp_path, waiting(others, form) + idle)
    assert named(verdict) == [("not_entered", [5])]
    assert (verdict.causes[0].where.op, verdict.causes[0].where.seq) == ("all_reduce", 81)
    assert "600 s" in verdict.summary or "10 min" in verdict.summary


def test_counters_of_another_group_accuse_nobody(tmp_path: Path) -> None:
    tensor = "[PG ID 5 PG GUID 37(TENSOR_MODEL_PARALLEL_GROUP) Rank {}]"
    text = caught(2, own=0) + counters(2, 90, 80, group=tensor, own=0)
    text += caught(3, own=1) + counters(3, 90, 80, group=tensor, own=1)
    text += told(0, 2, 12, 12) + told(1, 2, 12, 12)
    assert named(diagnosed(tmp_path, text)) == []


def test_groups_with_one_name_are_told_apart(tmp_path: Path) -> None:
    # [PG 1 Rank 0] is the first of ranks 0-1 and of ranks 2-3: rank 3 is behind in its own group.
    pair = "[PG 1 Rank {}]"
    text = "".join(caught(r, own=r) + counters(r, 83, 80, group=pair, own=r) for r in (0, 1))
    text += caught(2, own=0, second=7) + counters(2, 83, 80, group=pair, own=0)
    text += counters(3, 80, 80, work=80, group=pair, own=1)
    assert named(diagnosed(tmp_path, text)) == [("not_entered", [3])]


def test_equal_counters_name_nobody_and_say_what_would_decide(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, waiting([0, 1, 2, 3]))
    assert (verdict.status, named(verdict)) == ("unknown", [])
    assert "TORCH_NCCL_TRACE_BUFFER_SIZE" in verdict.summary
    assert "hangdoctor run" in verdict.summary


def test_a_lone_waiter_is_no_culprit(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, waiting([7]))
    assert named(verdict) == [] and "rank 7" in verdict.summary


def test_all_ranks_of_a_known_job_in_one_operation_is_communication(tmp_path: Path) -> None:
    ended = table(failed(2, -6), *[failed(r, -6) for r in (0, 1, 3)])
    verdict = diagnosed(tmp_path, waiting([0, 1, 2, 3]) + ended)
    assert named(verdict) == [("in_communication", [])]
    assert verdict.causes[0].confidence <= 0.5 and "All ranks (ranks 0-3)" in verdict.summary


def test_the_launchers_first_failure_is_a_victim_after_a_timeout(tmp_path: Path) -> None:
    text = waiting([0, 1, 2, 4, 5, 6, 7]) + told(3, 0, 80, 80) + aborted(7)
    text += table(failed(7, -6), *[failed(r, -15) for r in range(7)])
    verdict = diagnosed(tmp_path, text)
    assert named(verdict) == [("not_entered", [3])]
    roles = [(h.role, h.ranks) for h in verdict.chain]
    assert ("end", [7]) in roles and len(verdict.chain) <= 10


def test_other_sizes_at_one_number_are_a_mismatch(tmp_path: Path) -> None:
    text = "".join(caught(r) for r in (0, 1, 2)) + caught(3, size=999)
    verdict = diagnosed(tmp_path, text)
    assert named(verdict) == [("mismatch", [3])]
    assert "999" in verdict.summary


def test_two_that_differ_are_named_as_a_pair(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, caught(0) + caught(1, op="BROADCAST"))
    assert named(verdict) == [("mismatch", [0, 1])]
    assert verdict.causes[0].confidence <= 0.6


def test_uneven_splits_of_all_to_all_are_no_mismatch(tmp_path: Path) -> None:
    text = "".join(caught(r, op="ALLTOALL_BASE", size=100 + r) for r in range(4))
    assert named(diagnosed(tmp_path, text)) == []


def test_one_that_did_not_time_out_in_a_job_of_known_size(tmp_path: Path) -> None:
    text = "initializing torch distributed ... world_size=4\n"
    text += "".join(caught(r) for r in (0, 1, 3)) + observed(2)
    verdict = diagnosed(tmp_path, text)
    assert named(verdict) == [("not_entered", [2])]


def test_one_that_is_never_heard_of_is_weak(tmp_path: Path) -> None:
    text = "world_size=8\n" + "".join(caught(r) for r in EIGHT if r != 6)
    verdict = diagnosed(tmp_path, text)
    assert named(verdict) == [("not_entered", [6])]
    assert verdict.causes[0].confidence < 0.5


def test_an_own_exception_before_the_timeouts_is_the_cause(tmp_path: Path) -> None:
    text = traceback(3, "ValueError: bad sample") + waiting([0, 1, 2]) + aborted(0)
    verdict = diagnosed(tmp_path, text)
    assert named(verdict) == [("error", [3])]
    assert verdict.causes[0].where.frame == "load_batch (/job/data.py:40)"


def test_an_exception_after_the_timeouts_is_a_consequence(tmp_path: Path) -> None:
    text = waiting([0, 1, 2, 3]) + traceback(2, "RuntimeError: inconsistent 0 params")
    assert ("error", [2]) not in named(diagnosed(tmp_path, text))


def test_an_error_that_the_job_survived_is_not_the_cause(tmp_path: Path) -> None:
    lines = "".join(f" iteration {i:6d}/ 1000 | loss: 1.0\n" for i in range(10, 20))
    text = " iteration      9/ 1000 | loss: 1\n" + traceback(1, "ValueError: retried") + lines
    verdict = diagnosed(tmp_path, text + waiting([0, 1, 2, 3]) + told(4, 0, 80, 80))
    assert named(verdict) == [("not_entered", [4])]


def test_a_desync_report_names_who_did_not_join(tmp_path: Path) -> None:
    text = (
        caught(0)
        + "\n\t - [0] Timeout at collective: ALLREDUCE, #81\n"
        + "\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:\n"
        + "\t     [4, 5] finished collective #80, but didn't join collective #81 (count from 1)\n"
        + "\t - Snapshot of ranks' latest states:\n"
    )
    assert named(diagnosed(tmp_path, text)) == [("not_entered", [4, 5])]


def test_a_store_that_counts_who_came(tmp_path: Path) -> None:
    text = "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 6/8 clients joined.\n"
    verdict = diagnosed(tmp_path, text)
    assert named(verdict) == [("start_stall", [])] and verdict.summary.startswith("2 of 8")


def test_counters_that_were_never_set_are_no_progress(tmp_path: Path) -> None:
    text = caught(7, seq=1) + counters(7, 1, 3452013982, work=1, group=DEFAULT)
    assert named(diagnosed(tmp_path, text)) == []


def test_a_root_that_ran_ahead_in_a_reduce_is_not_accused(tmp_path: Path) -> None:
    text = "".join(caught(r, op="REDUCE") + counters(r, 81, 80) for r in (1, 2, 3))
    text += counters(0, 95, 81, work=95)
    assert ("not_entered", [0]) not in named(diagnosed(tmp_path, text))
