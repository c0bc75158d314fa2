"""Ranks that wait for one another: who means to go another number of rounds than all others, by a variable."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hangdoctor.model.capture import Frame, RankCapture
from hangdoctor.readers import pyspy_frames
from hangdoctor.stacks.amounts import AMOUNT, amounts, of_pipeline
from tests.support.captures import causes, judged, stack, still

C10D = "/v/torch/distributed/distributed_c10d.py"


def at(rank: int, call: str, peer: int, number: int | None, name: str = "num_micro") -> RankCapture:
    """A stage in a receive from its neighbour."""
    line = {"forward": 6, "backward": 10}[call]
    variable = "src" if peer >= 0 else "tensor"
    code = f"dist.recv(x, {variable})"
    own = Frame(call, "/app/pipe.py", line, code, {"src": peer})
    step = Frame("step", "/app/pipe.py", 13 if call == "forward" else 14)
    if number is not None:
        step.values = {AMOUNT + name: number}
    inner = Frame("recv", C10D, 2799, values={"src": peer, "group_src": peer})
    return still(rank, [inner, own, step, *stack(("main", "/app/pipe.py", 40))])


def ring(*numbers: int | None) -> list[RankCapture]:
    """Rank 1 waits for a gradient of rank 2, and that for an activation of rank 1; so does rank 3 of rank 2."""
    return [
        at(0, "backward", 1, numbers[0]),
        at(1, "backward", 2, numbers[1]),
        at(2, "forward", 1, numbers[2]),
        at(3, "forward", 2, numbers[3]),
    ]


def test_who_goes_another_number_of_rounds_is_named_alone() -> None:
    said = judged(*ring(4, 2, 4, 4))
    assert causes(said) == [("p2p_unmatched", [1])]
    assert "has num_micro=2 in step (pipe.py:14), all others in it 4" in said.summary
    assert "rank 2 waits in recv from rank 1" in said.summary
    assert "See where rank 1 takes num_micro from" in said.causes[0].advice


def test_stages_in_two_phases_of_one_file() -> None:
    """Each phase has the number for itself, and no function that all are in has it."""

    def phase(rank: int, call: str, peer: int, number: int) -> RankCapture:
        made = at(rank, call, peer, None)
        for one in made.samples:
            one.threads[0].frames[1].values[AMOUNT + "n_micro"] = number
        return made

    ranks = [phase(1, "backward", 2, 3), phase(2, "forward", 1, 4), phase(3, "forward", 2, 4)]
    said = judged(at(0, "backward", 1, None), *ranks)
    assert causes(said) == [("p2p_unmatched", [1, 2])]  # of rank 0 it is not known
    said = judged(phase(0, "backward", 1, 4), *ranks)
    assert causes(said) == [("p2p_unmatched", [1])]
    assert "has n_micro=3 in backward (pipe.py:10), all others in it 4" in said.summary


@pytest.mark.parametrize(
    "numbers",
    [(4, 4, 4, 4), (4, 2, 2, 4), (5, 2, 4, 4), (4, 4, 4, 2), (4, None, 4, 4)],
    ids=["all alike", "two of them", "two apart", "one outside of the ring", "it is not known"],
)
def test_else_it_is_left_open_between_the_two(numbers: tuple[int | None, ...]) -> None:
    assert causes(judged(*ring(*numbers))) == [("p2p_unmatched", [1, 2])]


@pytest.mark.parametrize(
    "name",
    "n num_microbatches n_micro num_micros n_micro_batches micro_batches num_steps n_chunks max_steps total_rounds batch_count steps_per_epoch count inner_sweeps rounds eval_batches n_samples".split(),
)
def test_names_of_amounts(name: str) -> None:
    loop = ["def step(self, some):", f"    for k in range({name} - 1):", "        send(k)"]
    assert amounts({name: 4}, loop, 3) == {AMOUNT + name: 4}
    until = ["def step(self, some):", f"    while sent < {name}:", "        sent += 1"]
    assert amounts({name: 4}, until, 3) == {AMOUNT + name: 4}
    assert amounts({name: 4}, ["def step(self):", f"    rows = local[:{name}]"], 2) == {}


@pytest.mark.parametrize(
    "name",
    "shards samples local_size rank world_size num_layers n_heads hidden port seed step i batch_size device_count pid".split(),
)
def test_other_numbers_are_none(name: str) -> None:
    assert amounts({name: 4}, [f"for k in range({name}):", "    send(k)"], 2) == {}


def test_they_are_kept_of_the_users_own_frames_alone(tmp_path: Path) -> None:
    source = str(tmp_path / "pipe.py")
    Path(source).write_text("def step(num_steps):\n    [run(n) for n in range(num_steps)]\n")
    frame = {
        "name": "step",
        "filename": source,
        "line": 2,
        "locals": [{"name": "num_steps", "repr": "4"}],
    }
    other = {**frame, "filename": "/usr/lib/python3.11/threading.py"}
    threads = [
        {"thread_id": 1, "os_thread_id": 1, "thread_name": "MainThread", "frames": [frame, other]}
    ]
    [thread] = pyspy_frames.parse_json(json.dumps(threads).encode())
    assert thread.frames[0].values == {AMOUNT + "num_steps": 4}
    assert thread.frames[1].values == {}


def calls(rank: int, call: str, sweeps: int) -> RankCapture:
    """A rank of MPI in an exchange with a rank that does not show, or in a reduction."""
    code = "comm.Sendrecv(a, right, 0, b, left)" if call == "Sendrecv" else "comm.Allreduce(a, b)"
    step = Frame("step", "/app/rod.py", 31, code, {AMOUNT + "sweeps": sweeps})
    return still(rank, [step, *stack(("main", "/app/rod.py", 60))])


def test_where_all_wait_in_several_calls_and_nothing_else_shows_who_is_wrong() -> None:
    ranks = [
        calls(0, "Allreduce", 2),
        calls(1, "Sendrecv", 3),
        calls(2, "Allreduce", 2),
        calls(3, "Allreduce", 2),
    ]
    ranks[1].samples[-1].threads[0].frames[0].line = 29
    said = judged(*ranks)
    assert causes(said) == [("order", [1])]
    assert "has sweeps=3 in step (rod.py:29), all others in it 2" in said.summary
    assert said.causes[0].confidence <= 0.6
    for rank in ranks:
        rank.samples[-1].threads[0].frames[0].values = {}
    assert causes(judged(*ranks)) == []


SCHEDULES = "/v/torch/distributed/pipelining/schedules.py"


def in_schedule(rank: int, number: int | None) -> RankCapture:
    """A stage of torch's pipelining in a transfer of its schedule."""
    step = Frame("Schedule1F1B._step_microbatches", SCHEDULES, 1105)
    if number is not None:
        step.values = {AMOUNT + "n_microbatches": number}
    return still(
        rank, [Frame("_wait_batch_p2p", SCHEDULES, 683), step, *stack(("main", "/app/t.py", 9))]
    )


def reduces(rank: int) -> RankCapture:
    """A stage of the other replica, which waits for its like."""
    inner = Frame("all_reduce", C10D, 3252)
    return still(
        rank, [inner, *stack(("reduce_gradients", "/app/t.py", 30), ("main", "/app/t.py", 10))]
    )


def test_of_one_pipeline_whatever_the_other_replica_waits_in() -> None:
    ranks = [
        reduces(0),
        in_schedule(1, 6),
        reduces(2),
        in_schedule(3, 4),
        reduces(4),
        in_schedule(5, 6),
    ]
    said = judged(*ranks)
    assert causes(said) == [("order", [3])]
    assert "has n_microbatches=4 in Schedule1F1B._step_microbatches" in said.summary
    assert "all others in it 6" in said.summary


@pytest.mark.parametrize("numbers", [(6, 4), (6, 6), (6, None), (4, 6)])
def test_of_two_stages_none_is_apart(numbers: tuple[int, int | None]) -> None:
    said = judged(reduces(0), in_schedule(1, numbers[0]), reduces(2), in_schedule(3, numbers[1]))
    assert not said.causes


SHOWN = {
    "six empty ones": ({"kwarg_mbs": "[{}, {}, {}, {}, {}, {}]"}, 6),
    "the first stage's": (
        {"kwarg_mbs": "[{}, {}]", "arg_mbs": "[(<Tensor at 0x7f>, 3), (<Tensor at 0x7f>, 4)]"},
        2,
    ),
    "one": ({"kwarg_mbs": "[{}]"}, 1),
    "too long to be shown": ({"kwarg_mbs": "[{}, {}, ...]", "arg_mbs": "[(), (), ...]"}, 0),
    "one of them is": ({"kwarg_mbs": "[{}, {}, {}]", "arg_mbs": "[(<Tensor at 0x7f>), ...]"}, 3),
    "none": ({"kwarg_mbs": "[]", "arg_mbs": "None"}, 0),
}


@pytest.mark.parametrize(("shown", "number"), SHOWN.values(), ids=SHOWN)
def test_micro_batches_of_torchs_pipelining(shown: dict[str, str], number: int) -> None:
    there = {AMOUNT + "n_microbatches": number} if number else {}
    assert of_pipeline(SCHEDULES, "ScheduleGPipe._step_microbatches", shown) == there
    assert of_pipeline(SCHEDULES, "ScheduleGPipe.step", shown) == {}
    assert of_pipeline("/app/schedules.py", "_step_microbatches", shown) == {}


def test_micro_batches_of_megatrons_schedules() -> None:
    file = "/m/megatron/core/pipeline_parallel/schedules.py"
    name = "forward_backward_pipelining_without_interleaving"
    there = {AMOUNT + "num_microbatches": 8}
    assert of_pipeline(file, name, {"num_microbatches": "8"}) == there
    assert of_pipeline(file, name, {"num_microbatches": "self"}) == {}
    assert of_pipeline(file, "forward_step", {"num_microbatches": "8"}) == {}
