"""Ranks that call one another by torch's RPC: who serves a call that does not end."""

from __future__ import annotations

from hangdoctor.model.capture import Frame, RankCapture
from tests.support.captures import MAIN, captured, causes, judged, sample, stack, still, thread

RPC = "/site-packages/torch/distributed/rpc/"
EVENT = ("Event.wait", "/usr/lib/python3.11/threading.py", 622)
SHUTDOWN = stack(
    EVENT, ("_all_gather", RPC + "api.py", 257), ("shutdown", RPC + "api.py", 382), MAIN
)
CALL = stack(("rpc_sync", RPC + "api.py", 842), ("train", "/app/train.py", 26), MAIN)
SERVED = ("_run_function", RPC + "internal.py", 209)
LOOKUP = stack(EVENT, ("lookup", "/app/table.py", 18), SERVED)
NESTED = stack(("rpc_sync", RPC + "api.py", 842), ("relay", "/app/table.py", 30), SERVED)


def serving(rank: int, main: list[Frame], served: list[Frame]) -> RankCapture:
    both = thread(main), thread(served, tid=21, name="")
    return captured(rank, [sample(0.0, *both), sample(1.0, *both)])


def test_the_rank_that_serves_a_call_without_end_is_named() -> None:
    for main in (SHUTDOWN, CALL):
        said = judged(serving(2, main, LOOKUP), still(0, SHUTDOWN), *map(calls, (1, 3)))
        assert [ranks for _, ranks in causes(said)] == [[2]], said.summary
        assert "lookup (table.py:18)" in said.summary


def test_a_rank_that_only_waits_for_calls_is_not() -> None:
    # Rank 2 passes the call on to rank 3, which serves it
    passes_on, serves = serving(2, SHUTDOWN, NESTED), serving(3, SHUTDOWN, LOOKUP)
    said = judged(still(0, SHUTDOWN), calls(1), passes_on, serves)
    assert [ranks for _, ranks in causes(said)] == [[3]], said.summary
    # No rank is seen to serve: who should is not known
    said = judged(still(0, SHUTDOWN), calls(1), *[still(rank, SHUTDOWN) for rank in (2, 3)])
    assert 1 not in {rank for cause in said.causes for rank in cause.ranks}, said.summary


def calls(rank: int) -> RankCapture:
    return still(rank, CALL)


def trains(rank: int, condition: str = "rank") -> RankCapture:
    """In a call that all but one rank come to."""
    frames = [Frame(f.name, f.file, f.line) for f in CALL]
    frames[-1].only = condition
    return still(rank, frames)


def test_a_worker_that_has_left_is_named_and_not_the_server_which_serves_from_there() -> None:
    said = judged(still(0, SHUTDOWN), still(1, SHUTDOWN), trains(2), trains(3))
    assert causes(said) == [("end_stall", [1])], said.summary
    assert "Rank 1 (n1, pid 10) has gone on to rpc.shutdown" in said.summary
    assert "ranks 2-3 are in rpc_sync" in said.summary
    as_many = judged(still(0, SHUTDOWN), *[still(r, SHUTDOWN) for r in (1, 2)], trains(3))
    of_any = judged(still(0, SHUTDOWN), still(1, SHUTDOWN), *(trains(r, "ready") for r in (2, 3)))
    whole = judged(still(0, SHUTDOWN), *map(trains, (1, 2, 3)))
    for undecided in (as_many, of_any, whole):
        assert all(kind != "end_stall" for kind, _ in causes(undecided)), undecided.summary


def test_a_server_that_waits_for_one_more_call_is_not_blamed_for_who_does_not_call() -> None:
    """Rank 0 holds the calls of ranks 2 and 3 until all have called; rank 1 never does."""
    condition = ("Condition.wait", "/usr/lib/python3.11/threading.py", 320)
    rounds = stack(condition, ("Server.exchange", "/app/server.py", 30), SERVED)
    takes = still(1, stack(condition, ("Feeder.take", "/app/train.py", 57), MAIN))
    said = judged(serving(0, SHUTDOWN, rounds), takes, calls(2), calls(3))
    assert [ranks for _, ranks in causes(said)] == [[1]], said.summary
    # Where all others have called, it is the server that does not answer.
    said = judged(serving(0, SHUTDOWN, rounds), calls(1), calls(2), calls(3))
    assert [ranks for _, ranks in causes(said)] == [[0]], said.summary
