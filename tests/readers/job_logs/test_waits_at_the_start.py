"""Ranks that wait for others at the start, as their logs show it before any limit is reached, and
barriers of JAX's coordinator.

Texts by the formats of torch's, Lightning's, JAX's, LightGBM's and Neuron's own strings.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.read_logs import diagnosed, named


def waits(rank: int, world: int, workers: int, stamp: str = "10:00:00") -> str:
    return (
        f"2026-03-04 {stamp} - INFO - torch.distributed.distributed_c10d - Waiting in store based barrier to "
        f"initialize process group for rank: {rank}, key: store_based_barrier_key:2 "
        f"(world_size={world}, worker_count={workers}, timeout=0:30:00)\n"
    )


def completed(rank: int) -> str:
    return (
        f"2026-03-04 10:01:00 - INFO - torch.distributed.distributed_c10d - Rank {rank}: Completed "
        "store-based barrier for key:store_based_barrier_key:2 with 4 nodes.\n"
    )


def test_who_has_not_come_where_the_log_ends(tmp_path: Path) -> None:
    text = waits(0, 4, 1) + waits(2, 4, 2, "10:00:10") + waits(0, 4, 2, "10:00:20")
    verdict = diagnosed(tmp_path, text)
    assert named(verdict) == [("start_stall", [1, 3])]
    assert "have not come to the rendezvous where the log ends" in verdict.summary


def test_not_all_who_came_are_in_the_log(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, waits(0, 8, 3))
    assert named(verdict) == [("start_stall", [])]
    assert "5 of 8 processes" in verdict.summary and "rank 0 did" in verdict.summary


def test_a_barrier_that_was_completed_or_that_a_run_went_on_from(tmp_path: Path) -> None:
    assert diagnosed(tmp_path, waits(0, 4, 2) + completed(0)).causes == []
    steps = "".join(f"step {n} loss 0.5\n" for n in (1, 2, 3))
    assert diagnosed(tmp_path, waits(0, 4, 2) + steps).causes == []


def test_a_rank_beyond_the_size_of_the_job(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, waits(0, 2, 3) + waits(2, 2, 3))
    assert named(verdict) == [("start_stall", [])]
    assert "rank 2 is among them" in verdict.summary and "WORLD_SIZE" in verdict.summary


def begins(*ranks: int, world: int = 4) -> str:
    return "".join(
        f"Initializing distributed: GLOBAL_RANK: {r}, MEMBER: {r + 1}/{world}\n" for r in ranks
    )


CUT = (
    'Traceback (most recent call last):\n  File "/job/fit.py", line 74, in <module>\n'
    '    trainer.fit(model)\n  File "/opt/lightning/trainer.py", line 552, in fit\n'
)


def test_lightnings_ranks_that_did_not_begin(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, begins(1, 0, 3) + CUT)
    assert named(verdict) == [("start_stall", [])]
    assert "it shows ranks 0-1,3, and not rank 2" in verdict.summary


def test_lightnings_start_that_was_complete_or_that_rank_0_tells_elsewhere(tmp_path: Path) -> None:
    whole = "All distributed processes registered. Starting with 4 processes\n"
    for text in (begins(0, 1, 3) + whole, begins(0, 1, 2, 3), begins(1, 3)):
        verdict = diagnosed(tmp_path, text + "GPU available: True\n" + CUT)
        assert all(cause.kind != "start_stall" for cause in verdict.causes), verdict.summary


def barrier(name: str, *lines: str) -> str:
    return (
        'Traceback (most recent call last):\n  File "/job/train.py", line 9, in main\n'
        "    client.wait_at_barrier(name)\n"
        f"jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. {name}"
        + "".join(f"\n{line}" for line in lines)
        + "\n\nAdditional GRPC error information from remote target\n"
    )


def task(number: int) -> str:
    return f"/job:jax_worker/replica:0/task:{number}"


def test_who_did_not_come_to_a_barrier_of_jax(tmp_path: Path) -> None:
    older = barrier("Barrier_id: sync_3. Timed out task names:", task(3), task(0))
    verdict = diagnosed(tmp_path, older)
    assert named(verdict) == [("not_entered", [0, 3])] and verdict.status == "hang"
    assert "never joined the barrier sync_3" in verdict.summary
    assert "failed first" not in verdict.summary, "who raises is who waited"
    newer = barrier(
        "Id: sync:ckpt::0. This usually happens because a task triggered the barrier too early.",
        "# of tasks that reached the barrier: 6/8.",
        f"The first task at the barrier: {task(4)}. Some timed out task names:",
        task(1),
    )
    verdict = diagnosed(tmp_path, newer)
    assert named(verdict) == [("not_entered", [1])] and "sync:ckpt" in verdict.summary
    numbers = barrier(
        "Id: epoch-3::0. This usually happens because a task triggered the barrier too early.",
        "# of tasks that reached the barrier: 5/7.",
        "The first task at the barrier: 1. Some timed out task names:",
        "2",
        "4",
    )
    verdict = diagnosed(tmp_path, numbers)
    assert named(verdict) == [("not_entered", [2, 4])] and "epoch-3" in verdict.summary


def test_who_is_alone_at_jaxs_shutdown_had_the_error(tmp_path: Path) -> None:
    """The others wait in a collective for it, and are not there by right."""
    error = (
        'Traceback (most recent call last):\n  File "/job/feed.py", line 35, in check_block\n'
        "AssertionError: block 31: checksum differs\n"
    )
    lines = (
        "# of tasks that reached the barrier: {}/3.",
        "The first task at the barrier: 2. Some timed out task names:",
        "0",
        "1",
    )
    down = "Id: Shutdown::7355096746079330084::0. This usually happens because of much."
    text = error + barrier(down, *(line.format(1) for line in lines))
    assert named(diagnosed(tmp_path, text)) == [("error", [2])]
    text = error + barrier(down, *(line.format(2) for line in lines))
    found = diagnosed(tmp_path, text)
    assert named(found) == [("error", [])], found.summary


def test_who_waited_for_a_key_of_jax_to_the_limit_did_not_fail_first(tmp_path: Path) -> None:
    """Each rank waits for another key; who was to set the first of them may print nothing."""
    text = "".join(
        f'Traceback (most recent call last):\n  File "/job/play.py", line {line}, in fetch\n'
        "    client.blocking_key_value_get(key, 20_000)\njax.errors.JaxRuntimeError: DEADLINE_EXCEEDED: "
        f"GetKeyValue() timed out with key: {key} and duration: 20s\n"
        for line, key in ((12, "weights/5"), (40, "grads/4/2"))
    )
    verdict = diagnosed(tmp_path, text)
    assert (verdict.status, verdict.causes) == ("unknown", []), verdict.summary
    assert "waited" in verdict.summary and "failed first" not in verdict.summary


def test_tasks_that_never_registered_with_jax(tmp_path: Path) -> None:
    text = barrier("Barrier_id: PjRT_Client_Connect. Timed out task names:", task(2), task(1))
    verdict = diagnosed(tmp_path, text)
    assert named(verdict) == [("start_stall", [1, 2])]
    assert "never registered with JAX's coordinator" in verdict.summary


def test_who_does_not_answer_in_lightgbms_network(tmp_path: Path) -> None:
    tries = "".join(
        f"[LightGBM] [Warning] Connecting to rank 3 failed, waiting for {ms} milliseconds\n"
        for ms in (200, 260, 338)
    )
    assert named(diagnosed(tmp_path, tries)) == [("start_stall", [3])]
    there = "[LightGBM] [Info] Connected to rank 3\n"
    assert diagnosed(tmp_path, tries + there).causes == []


def test_who_waits_while_neurons_collectives_are_set_up(tmp_path: Path) -> None:
    text = "".join(
        f"2026-May-21 16:16:20.0{r} 58:{r} [{r}] include/socket.h:541 CCOM WARN Timeout waiting for RX "
        f"(waited 120 sec) - retrying, [bootstrapInit, rank: {r}/8/-1]\n"
        for r in (0, 1)
    )
    verdict = diagnosed(tmp_path, text)
    assert verdict.causes == [] and "ranks 0-1 waited in the set-up of Neuron's" in verdict.summary
    assert "did not come" in verdict.summary
