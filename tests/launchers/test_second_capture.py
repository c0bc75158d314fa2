"""Two captures of one job joined to one: what each rank did between the first sample and the last."""

from __future__ import annotations

from hangdoctor.launchers.second_capture import join_captures
from hangdoctor.model.capture import JobCapture, NodeCapture, ProcessSample, RankCapture, SilentNode
from hangdoctor.model.operations import Operation, RankOps


def rank(
    number: int, pid: int, started: float, cpu_s: tuple[float, float], seq: int, node: str = "n1"
) -> RankCapture:
    samples = [ProcessSample(float(i), cpu_s=cpu) for i, cpu in enumerate(cpu_s)]
    ops = RankOps(number, 4, operations=[Operation("g", seq, "all_reduce")])
    return RankCapture(pid=pid, rank=number, node=node, started=started, samples=samples, ops=ops)


def capture(
    ranks: list[RankCapture], raw: dict[str, str], taken: float, **more: list[SilentNode]
) -> JobCapture:
    nodes = {
        r.node: NodeCapture(r.node, "job", [x for x in ranks if x.node == r.node], raw=dict(raw))
        for r in ranks
    }
    return JobCapture(
        "job", list(nodes.values()), world_size=4, settle_s=1.0, taken=taken, took_s=1.5, **more
    )


def test_a_rank_keeps_the_samples_of_both() -> None:
    first = capture([rank(0, 10, 5.0, (1.0, 1.1), 7)], {"10.1.json": "a", "10.2.json": "b"}, 1000.0)
    later = capture(
        [rank(0, 10, 5.02, (2.0, 2.1), 9)], {"10.1.json": "c", "10.2.json": "d"}, 1010.0
    )
    joined = join_captures(first, later, 10.0)
    [only] = joined.ranks()
    assert [(s.at_s, s.cpu_s) for s in only.samples] == [
        (0.0, 1.0),
        (1.0, 1.1),
        (10.0, 2.0),
        (11.0, 2.1),
    ]
    assert only.ops_before is not None and only.ops_before.operations[-1].seq == 7
    assert only.ops is not None and only.ops.operations[-1].seq == 9
    assert joined.nodes[0].raw == {
        "10.1.json": "a",
        "10.2.json": "b",
        "10.3.json": "c",
        "10.4.json": "d",
    }
    assert (joined.settle_s, joined.taken, joined.took_s) == (11.0, 1010.0, 11.5)


def test_who_ended_between_the_looks_is_gone_and_who_is_behind_a_silent_node_is_not() -> None:
    ranks = [
        rank(0, 10, 5.0, (1, 1), 7),
        rank(1, 11, 5.0, (1, 1), 7),
        rank(2, 12, 5.0, (1, 1), 7, "n2"),
    ]
    first = capture(ranks, {}, 1000.0)
    restarted = rank(
        0, 10, 900.0, (0.0, 0.1), 1
    )  # the number of the process was given to a new one
    later = capture([restarted], {}, 1010.0, silent=[SilentNode("n2", "no answer", [2])])
    joined = {r.rank: r for r in join_captures(first, later, 10.0).ranks()}
    assert sorted(joined) == [0, 1] and joined[1].gone and not joined[0].gone
    assert joined[0].ops_before is None and len(joined[0].samples) == 2
