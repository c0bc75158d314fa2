"""Gloo's limit reached by all ranks: the stacks of their errors are those of the hang."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangdoctor.model.log_facts import PythonError
from tests.support.read_logs import diagnosed, logs_of, named

RECV = "RuntimeError: [/x/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 9000ms for recv operation to complete"
SEND = RECV.replace("recv", "send")
LOST = "RuntimeError: [/x/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:1."
DIST = "/venv/site-packages/torch/distributed"


def met(rank: int, error: str, *frames: tuple[str, int, str, str]) -> str:
    """A rank's traceback; frames outermost first: file, line, function, source."""
    lines = ["Traceback (most recent call last):"]
    for file, line, name, source in frames:
        lines += [f'  File "{file}", line {line}, in {name}', f"    {source}"]
    return "".join(f"[rank{rank}]: {text}\n" for text in [*lines, error])


def stage(rank: int, line: int, error: str = SEND) -> str:
    steps = (f"{DIST}/pipelining/schedules.py", 785, "step", "self._step_microbatches(")
    waits = (f"{DIST}/pipelining/schedules.py", 683, "_wait_batch_p2p", "w.wait()")
    return met(rank, error, ("/home/me/pipe.py", line, "main", "sched.step(x)"), steps, waits)


def at_the_end(rank: int, error: str = RECV) -> str:
    barrier = (f"{DIST}/distributed_c10d.py", 5356, "barrier", "work.wait()")
    return met(rank, error, ("/home/me/pipe.py", 86, "main", "dist.barrier()"), barrier)


def of_four(text: str) -> str:
    return "world_size: 4\n" + text


def test_the_stage_that_left_the_schedule_is_named_by_its_stack(tmp_path: Path) -> None:
    found = diagnosed(
        tmp_path, of_four(stage(0, 72) + stage(1, 76, LOST) + stage(2, 76) + at_the_end(3))
    )
    assert named(found) == [("order", [3])], found.summary
    assert "Rank 3 is in barrier (pipe.py:86)" in found.summary
    assert found.causes[0].confidence <= 0.6


@pytest.mark.parametrize(
    "text",
    [
        stage(0, 72) + stage(1, 76) + stage(2, 76),
        stage(0, 72) + stage(1, 76) + stage(2, 76) + stage(3, 76),
        stage(0, 72, LOST) + stage(1, 76, LOST) + stage(2, 76, LOST) + at_the_end(3, LOST),
    ],
    ids=["one is silent", "all in the schedule", "none reached a limit"],
)
def test_where_some_wait_is_missing_no_rank_is(tmp_path: Path, text: str) -> None:
    found = diagnosed(tmp_path, of_four(text))
    assert not [c for c in found.causes if c.kind == "order"], found.summary


def test_ranks_whose_wait_for_the_store_ended_wait_for_who_is_elsewhere(tmp_path: Path) -> None:
    key = "torch.distributed.DistStoreError: wait timeout after 80000ms, keys: /default_pg/0//round3/open"
    waits = ("/home/me/fit.py", 19, "__call__", "self.store.wait([name], self.limit)")
    text = "".join(
        met(r, key, ("/home/me/fit.py", 63, "main", "barrier(n)"), waits) for r in (0, 1, 3)
    )
    text += met(2, LOST, ("/home/me/fit.py", 57, "main", "loss.backward()"), INSIDE)
    found = diagnosed(tmp_path, of_four(text))
    assert named(found) == [("order", [2])], found.summary


INSIDE = (
    "/venv/site-packages/torch/autograd/graph.py",
    979,
    "_engine_run_backward",
    "return run_backward(",
)


@pytest.mark.parametrize(
    ("line", "call", "culprits"),
    [
        (70, "dist.all_reduce(x, group=pair)", [("order", [3])]),
        (50, "dist.all_reduce(x, group=pair)", []),
        (50, "dist.all_reduce(x)", [("order", [3])]),
    ],
    ids=["past the backward", "before it", "before it, of all ranks"],
)
def test_a_call_of_a_group_beside_gradients(
    tmp_path: Path, line: int, call: str, culprits: list[tuple[str, list[int]]]
) -> None:
    """Another member of a small group may have left it out, and be at the gradients by now."""
    text = "".join(
        met(r, RECV, ("/home/me/fit.py", 60, "main", "loss.backward()"), INSIDE) for r in range(3)
    )
    reduces = (f"{DIST}/distributed_c10d.py", 3252, "all_reduce", "work.wait()")
    text += met(3, RECV, ("/home/me/fit.py", line, "main", call), reduces)
    found = diagnosed(tmp_path, of_four(text))
    assert named(found) == culprits, found.summary


def test_a_call_of_a_group_beside_stages_names_nobody(tmp_path: Path) -> None:
    """The first and the last stage share a weight, and the last left its reduction out."""
    reduces = (f"{DIST}/distributed_c10d.py", 3252, "all_reduce", "work.wait()")
    call = ("/home/me/pipe.py", 100, "main", "dist.all_reduce(shared.grad, group=tie)")
    text = met(0, LOST, call, reduces) + stage(1, 90) + stage(2, 90) + stage(3, 88)
    found = diagnosed(tmp_path, of_four(text))
    assert named(found) == [], found.summary
    assert "ranks 1-3 waited" in found.summary


def test_the_source_below_a_frame_is_kept_with_it(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(at_the_end(3))
    [error] = [f for f in logs_of(tmp_path / "job.log").facts if isinstance(f, PythonError)]
    assert [frame.code for frame in error.frames] == ["work.wait()", "dist.barrier()"]


# ---------------------------------------------------------------------- who printed nothing

BEGINS = "rank {0} of 4: reading vocabulary\n"
STORE = "torch.distributed.DistStoreError: Timed out after 91 seconds waiting for clients. 3/4 clients joined.\n"


def test_the_rank_of_which_no_line_is_did_not_come_to_the_rendezvous(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, "".join(map(BEGINS.format, (0, 3, 1))) + STORE)
    assert named(found) == [("start_stall", [2])], found.summary
    assert "it printed nothing, all others did" in found.summary
    two = diagnosed(tmp_path, "".join(map(BEGINS.format, (0, 3))) + STORE)
    assert named(two) == [("start_stall", [])], two.summary
    assert "the log does not show which" in two.summary


def test_lightnings_word_of_a_sigterm_is_an_end_from_outside(tmp_path: Path) -> None:
    words = "".join(f"[rank: {rank}] Received SIGTERM: 15\n" for rank in range(3))
    found = diagnosed(tmp_path, "step 5 loss 2.24\nstep 10 loss 2.27\n" + words)
    assert (found.status, found.causes) == ("unknown", []), found.summary
    assert "ended from outside by SIGTERM" in found.summary and "step 10" in found.summary


def test_jaxs_word_of_a_sigterm_is_one_too(tmp_path: Path) -> None:
    line = "W1123 15:31:16.434744    5810 preemption_notifier.cc:90] SIGTERM caught at 2026-11-23T15:31:16.434741956+00:00\n"
    found = diagnosed(tmp_path, "step 10 loss 2.27\n" + line)
    assert "ended from outside by SIGTERM" in found.summary


def test_ray_trains_word_on_who_keeps_the_others_waiting(tmp_path: Path) -> None:
    late = "(SynchronizationActor pid=1751) The workers have been waiting for 60.10 s for the following ranks to join the `ray.train.report` call: [2].\n"
    found = diagnosed(tmp_path, "step 60 loss 0.2\n" + late)
    assert named(found) == [("not_entered", [2])], found.summary
    assert "never joined report" in found.summary
    came = diagnosed(tmp_path, "step 60 loss 0.2\n" + late + "step 70 loss 0.1\n")
    assert came.causes == [], "it was late, and came"
