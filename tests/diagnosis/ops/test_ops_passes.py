"""The passes one by one."""

from __future__ import annotations

import random

from hangdoctor.diagnosis.ops import OpsEvidence
from hangdoctor.diagnosis.ops.blame import blame
from hangdoctor.diagnosis.ops.components import components, sinks
from hangdoctor.diagnosis.ops.deadlock import shortest_cycle
from hangdoctor.diagnosis.ops.divergence import compare
from hangdoctor.diagnosis.ops.frontier import device_frontier, find_frontier
from hangdoctor.diagnosis.ops.group_members import GroupTable
from hangdoctor.diagnosis.ops.history import History
from hangdoctor.diagnosis.ops.inferred_position import likely_waits
from hangdoctor.diagnosis.ops.keys import key_of
from hangdoctor.diagnosis.ops.moved import moved
from hangdoctor.diagnosis.ops.rhythm import leaves_own_rhythm
from hangdoctor.diagnosis.ops.roles import references, working_layout
from hangdoctor.diagnosis.ops.scene import Scene
from hangdoctor.diagnosis.ops.silent_ranks import needed
from hangdoctor.diagnosis.ops.waits import Instance, build_waits
from hangdoctor.diagnosis.wording import terms
from hangdoctor.model.layout import Layout
from hangdoctor.model.operations import Group, Operation, RankOps
from tests.support.ops_programs import Call, Job, training


def scene_of(evidence: OpsEvidence) -> Scene:
    return Scene(evidence, set())


def test_components_of_a_chain_longer_than_any_recursion_limit():
    n = 50_000
    edges = [[i + 1] for i in range(n - 1)] + [[]]
    assert sinks(edges, components(edges)) == [[n - 1]]
    edges[-1] = [0]
    found = sinks(edges, components(edges))
    assert len(found) == 1
    assert len(found[0]) == n


def test_components_agree_with_reachability():
    chance = random.Random(5)
    for _ in range(50):
        n = chance.randrange(1, 12)
        edges = [[chance.randrange(n) for _ in range(chance.randrange(3))] for _ in range(n)]
        reach = [{i} for i in range(n)]
        for _ in range(n):
            for i in range(n):
                for j in edges[i]:
                    reach[i] |= reach[j]
        component = components(edges)
        for i in range(n):
            for j in range(n):
                assert (component[i] == component[j]) == (j in reach[i] and i in reach[j])


def test_nodes_without_edges_are_no_sinks():
    assert sinks([[], [2], []], components([[], [2], []])) == [[2]]


def test_send_and_receive_are_one_instance():
    assert key_of(Operation("g", 4, "send", peer=7), 3) == key_of(
        Operation("g", 4, "recv", peer=3), 7
    )
    assert key_of(Operation("g", 4, "send", peer=7), 3) != key_of(
        Operation("g", 4, "recv", peer=7), 3
    )


def test_frontier_of_a_host_that_waits():
    done, open_, handle = (
        Operation("g", 1, "all_reduce", "done"),
        Operation("g", 2, "all_reduce"),
        Operation("h", 1, "x"),
    )
    handle.asynchronous = True
    frontier = find_frontier(
        RankOps(0, operations=[done, handle, open_]), [handle, open_], runs=False
    )
    assert frontier.active == [handle, open_]
    assert frontier.blocking == [open_]
    assert find_frontier(RankOps(0), [handle], runs=False).blocking == [handle]
    assert find_frontier(RankOps(0), [handle], runs=True).blocking == []


def test_frontier_of_a_device():
    first, second = Operation("g", 1, "all_reduce"), Operation("h", 1, "all_reduce")
    ops = RankOps(0, operations=[first, second], runs_ahead=True)
    assert device_frontier(ops, [first, second], False, lambda op: False).active == [first]
    assert device_frontier(ops, [first, second], False, lambda op: op is first).active == [
        first,
        second,
    ]
    assert device_frontier(ops, [first, second], True, lambda op: False).active == []
    first.state = "started"
    assert device_frontier(ops, [first, second], True, lambda op: False).active == [first]


def test_frontier_that_the_ring_has_lost():
    first = Operation("g", 9, "all_reduce")
    ops = RankOps(0, operations=[first], runs_ahead=True, overwritten=True)
    assert device_frontier(ops, [first], False, lambda op: False).lost


def test_group_axes_with_and_without_names():
    layout = Layout(dp=2, pp=1, tp=2)
    groups = [Group("a", [0, 1]), Group("b", [0, 2], "dp"), Group("w", [0, 1, 2, 3], "default_pg")]
    table = GroupTable([RankOps(0, groups=groups)], 4, layout)
    assert [table.axis(u) for u in "abw"] == ["tp", "dp", "world"]
    assert terms.group(table.ref("a")) == "TP group 0-1"
    assert terms.group(table.ref("w")) == "", "the whole job needs no name"
    assert GroupTable([RankOps(0, groups=groups)], 4, None).axis("a") == ""


def test_equal_member_sets_have_different_roles():
    table = GroupTable([RankOps(0, groups=[Group("a", [0, 1]), Group("b", [0, 1])])], 4, None)
    assert table.role("a") != table.role("b")


def test_layout_is_read_off_the_groups():
    evidence = training(Layout(dp=3, pp=2, tp=2)).run(named=False)
    evidence.layout = None
    assert working_layout(scene_of(evidence)) == Layout(dp=3, pp=2, tp=2)


def test_replicas_vote_first():
    layout = Layout(dp=4, pp=1, tp=2)
    scene = scene_of(training(layout).run())
    assert references(scene, 3, set())[:2] == [5, 7], (
        "rank 1 is the first of its group, as 3 is not"
    )
    assert 5 not in references(scene, 3, {5}), "there are enough that are not suspected"


def _histories(change: object, ring: int = 10_000) -> tuple[History, History]:
    job = training(Layout(dp=2, pp=1, tp=2), steps=3)
    calls = job.rank(3).calls
    change(calls)  # type: ignore[operator]
    scene = scene_of(job.run(ring))
    return History(scene, 3), History(scene, 1)


def _tensor_calls(calls: list[Call]) -> list[int]:
    return [i for i, c in enumerate(calls) if c.group == "tp" and c.op == "all_reduce"]


def test_compare_finds_what_was_skipped():
    mine, theirs = _histories(lambda calls: calls.pop(_tensor_calls(calls)[7]))
    found = compare(mine, theirs)
    assert found is not None
    assert found.how == "skipped"
    assert found.theirs is not None
    assert found.theirs.op == "all_reduce"


def test_compare_finds_that_several_calls_were_left_out_before_one_that_all_make():
    """Rank 4 has no tokens and goes on to the reduction of all; its like makes two calls before it."""
    job = Job(6)
    job.group("even", [0, 2, 4])
    job.group("odd", [1, 3, 5])
    for program in job.everyone():
        for step in range(3):
            if (program.number, step) != (4, 2):
                program.all_reduce(
                    "even" if program.number % 2 == 0 else "odd", site="moe (m.py:41)"
                )
                program.all_reduce(
                    "even" if program.number % 2 == 0 else "odd", site="moe (m.py:44)"
                )
            program.all_reduce("world", site="main (m.py:72)")
    scene = scene_of(job.run())
    found = compare(History(scene, 4), History(scene, 3))
    assert found is not None
    assert found.how == "skipped"
    assert found.theirs is not None
    assert found.theirs.site == "moe (m.py:41)"


def test_compare_finds_what_is_too_many():
    def twice(calls: list[Call]) -> None:
        i = next(i for i, c in enumerate(calls) if c.group == "dp")
        calls.insert(i, calls[i])

    mine, theirs = _histories(twice)
    found = compare(mine, theirs)
    assert found is not None
    assert found.how == "extra"


def test_compare_is_silent_about_a_rank_that_is_merely_behind():
    mine, theirs = _histories(lambda calls: calls.insert(20, Call("stuck")))
    assert compare(mine, theirs) is None
    assert compare(theirs, mine) is None


def test_compare_sees_numbers_that_do_not_fit_after_the_ring_was_overwritten():
    job = Job(4, Layout(dp=2, pp=1, tp=2))
    for ranks in ([0, 1], [2, 3]):
        job.group("tp", ranks)
    for program in job.everyone():
        for _ in range(6 if program.number > 1 else 5):  # one pair has done one call more, long ago
            program.all_reduce("tp")
        for _ in range(4):
            program.all_reduce("world").all_reduce("tp")
    scene = scene_of(job.run(ring=5))
    found = compare(History(scene, 2), History(scene, 0))
    assert found is not None
    assert found.how == "extra"


def test_blame_leaves_innocent_ranks_alone():
    job = training(Layout(dp=3, pp=1, tp=2), steps=3)
    del job.rank(2).calls[_tensor_calls(job.rank(2).calls)[3]]
    scene = scene_of(job.run())
    assert set(blame(scene, range(6))) == {2}
    assert blame(scene, [0, 1, 3, 4, 5]) == {}


def test_own_rhythm():
    def history(steps: list[list[str]], numbered: bool) -> History:
        calls = [(i, op) for i, step in enumerate(steps) for op in step]
        ops = [
            Operation(op[0], n, op, "done", iteration=i if numbered else -1)
            for n, (i, op) in enumerate(calls)
        ]
        groups = [Group("t", [0, 1]), Group("d", [0, 2]), Group("w", [0, 1, 2, 3])]
        evidence = OpsEvidence({0: RankOps(0, 4, groups=groups, operations=ops)}, world_size=4)
        return History(scene_of(evidence), 0)

    step = ["tensor", "tensor", "data", "world"]
    for numbered in (True, False):
        assert not leaves_own_rhythm(history([step, step, step, step[:2]], numbered))
        assert leaves_own_rhythm(history([step, step, step, ["tensor", "data"]], numbered))
    assert not leaves_own_rhythm(history([["tensor"] * 9 + ["data"]], False))


def test_moved():
    one = RankOps(0, operations=[Operation("g", 1, "all_reduce")])
    assert not moved(one, RankOps(0, operations=[Operation("g", 1, "all_reduce")]))
    assert moved(one, RankOps(0, operations=[Operation("g", 1, "all_reduce", "done")]))
    assert moved(one, RankOps(0, operations=[Operation("g", 2, "all_reduce")]))


def test_the_ring_of_waits_is_a_shortest_one():
    job = Job(4)
    job.group("a", [0, 1])
    job.group("b", [1, 2])
    job.group("c", [0, 2])
    for rank, group in ((0, "a"), (1, "b"), (2, "c"), (3, "world")):
        job.rank(rank).all_reduce(group)
    graph = build_waits(scene_of(job.run()))
    cycle = shortest_cycle(graph, [0, 1, 2])
    assert [(link.rank, link.whom) for link in cycle] == [(0, 1), (1, 2), (2, 0)]


def test_the_ring_through_a_rank_is_a_shortest_one():
    """0 waits for 1, that for 2, and that for both: through each of them there is a ring of two."""
    job = Job(3)
    for name, ranks in (("a", [0, 1]), ("b", [1, 2]), ("c", [0, 2])):
        job.group(name, ranks)
    job.rank(0).all_reduce("a")
    job.rank(1).all_reduce("b")
    job.rank(2).all_reduce()
    graph = build_waits(scene_of(job.run()))
    rings = {
        through: [(link.rank, link.whom) for link in shortest_cycle(graph, [0, 1, 2], through)]
        for through in range(3)
    }
    assert rings == {
        0: [(0, 1), (1, 2), (2, 0)],
        1: [(1, 2), (2, 1)],
        2: [(2, 1), (1, 2)],
    }


def test_a_silent_rank_is_placed_by_its_peers():
    layout = Layout(dp=2, pp=2, tp=2)
    job = training(layout, steps=2)
    calls = job.rank(1).calls
    calls.insert(
        _tensor_calls(calls)[1], Call("stuck")
    )  # in the forward; rank 5 waits for it in the next stage
    for silent, waits in ((1, set()), (5, {1})):
        evidence = job.run()
        del evidence.ops[silent]
        evidence.silent[silent] = "its node does not answer"
        scene = scene_of(evidence)
        graph = build_waits(scene)
        present = {i.key: i.present for i in graph.instances}
        lacking = [i for i in graph.instances if silent in i.absent + i.unknown]
        held = likely_waits(scene, silent, lacking, present)
        assert held is not None and held.ranks == waits


def test_the_fewest_silent_ranks():
    def lacks(*ranks: int) -> Instance:
        instance = Instance(("g", 1), Operation("g", 1, "all_reduce"))
        instance.unknown = list(ranks)
        return instance

    one, both = lacks(1), lacks(1, 2)
    assert needed({1: [one, both], 2: [both]}, {1, 2}) == [1]
    assert needed({1: [both], 2: [both]}, {1, 2}) == [1, 2]
    assert needed({2: [both]}, {2}) == []  # the other one waits for someone: that explains it
