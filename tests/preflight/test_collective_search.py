"""The search for a bad node or link, driven by a network that exists only as a rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hangdoctor.preflight.collectives.pairs import rounds_of
from hangdoctor.preflight.collectives.search import Culprit, Found, Search
from hangdoctor.preflight.collectives.trial import Judge, Result, Trial, bus_bandwidth

Rule = Callable[[Sequence[str]], float | None]  # GB/s of a group; None where it does not finish
SIZE = 1 << 20


def search(count: int, rule: Rule, rounds: int = 7) -> Found:
    """Run a search over n1..nCOUNT; every batch must be of groups that can run at the same time."""
    own = Search([f"n{i}" for i in range(1, count + 1)], Judge(0.5), rounds)
    steps = own.run()
    results: list[Result] | None = None
    for _ in range(1000):
        try:
            batch = next(steps) if results is None else steps.send(results)
        except StopIteration:
            return own.found
        units = [unit for trial in batch for unit in trial.units]
        assert batch and len(units) == len(set(units))
        results = [measured(trial, rule) for trial in batch]
    raise AssertionError("the search does not end")


def measured(trial: Trial, rule: Rule) -> Result:
    speed = rule(trial.units)
    speeds = {} if speed is None else {SIZE: speed}
    return Result(list(trial.units), trial.stage, speed is not None, speeds)


def dead(*units: str) -> Rule:
    """One node: no group with it finishes. Two: no group with both."""
    return lambda group: None if set(units) <= set(group) else 10.0


def slow(*units: str, speed: float = 1.0) -> Rule:
    return lambda group: speed if set(units) <= set(group) else 10.0


def both(one: Rule, other: Rule) -> Rule:
    def rule(group: Sequence[str]) -> float | None:
        speeds = [one(group), other(group)]
        return None if None in speeds else min(s for s in speeds if s is not None)

    return rule


def named(found: Found) -> list[tuple[str, list[str], str]]:
    return [(c.kind, c.units, c.status) for c in found.culprits]


def test_a_good_network_is_tried_in_pairs_halves_and_all() -> None:
    found = search(5, lambda group: 10.0)
    assert found.culprits == [] and found.links == found.of_links == 10
    stages = [r.stage for r in found.results]
    assert stages == ["pairs"] * 10 + ["halves"] * 2 + ["all"]
    assert found.results[-1].units == ["n1", "n2", "n3", "n4", "n5"]


@given(st.integers(3, 40), st.data())
@settings(max_examples=60, deadline=None)
def test_one_bad_node_is_named(count: int, data: st.DataObject) -> None:
    node = f"n{data.draw(st.integers(1, count))}"
    rule = data.draw(st.sampled_from([dead(node), slow(node)]))
    status = "failed" if rule([node]) is None else "slow"
    found = search(count, rule, rounds=data.draw(st.integers(2, 5)))
    assert named(found) == [("node", [node], status)]
    assert found.culprits[0].bad == found.culprits[0].tried >= 2
    last = found.results[-1]
    if count == 3:  # two are left, and they were a pair
        return
    assert not last.bad and set(last.units) == {f"n{i}" for i in range(1, count + 1)} - {node}


@given(st.integers(3, 40), st.data())
@settings(max_examples=60, deadline=None)
def test_one_bad_link_is_named_also_where_no_round_had_it(count: int, data: st.DataObject) -> None:
    ends = data.draw(st.lists(st.integers(1, count), min_size=2, max_size=2, unique=True))
    link = [f"n{i}" for i in sorted(ends)]
    # With few rounds the pair may be met inside a group only, with speeds of groups.
    rule = data.draw(st.sampled_from([dead(*link), slow(*link)]))
    found = search(count, rule, rounds=data.draw(st.integers(2, 5)))
    assert [(c.kind, sorted(c.units, key=lambda u: int(u[1:]))) for c in found.culprits] == [
        ("link", link)
    ]


def test_two_culprits_are_two_findings() -> None:
    found = search(8, both(dead("n3"), slow("n6", "n8")))
    assert named(found) == [("node", ["n3"], "failed"), ("link", ["n6", "n8"], "slow")]


def test_of_two_nodes_neither_is_accused_alone() -> None:
    assert named(search(2, dead("n2"))) == [("undecided", ["n1", "n2"], "failed")]


def test_where_nothing_works_no_node_is_accused_alone() -> None:
    found = search(6, lambda group: None)
    assert {c.kind for c in found.culprits} == {"undecided"}


def test_one_slow_measurement_is_not_a_finding() -> None:
    calls: list[Sequence[str]] = []

    def rule(group: Sequence[str]) -> float:
        calls.append(group)
        return 1.0 if tuple(group) == ("n1", "n4") and calls.count(group) == 1 else 10.0

    found = search(4, rule)
    assert found.culprits == []
    assert [r.stage for r in found.results if r.units == ["n1", "n4"]] == ["pairs", "again"]


def test_what_fails_only_all_together_is_said_as_that() -> None:
    found = search(8, lambda group: None if len(group) == 8 else 10.0)
    [culprit] = found.culprits
    assert culprit.kind == "together" and len(culprit.units) == 8


def test_a_hopeless_node_costs_no_further_rounds() -> None:
    found = search(8, dead("n5"))
    assert sum("n5" in r.units for r in found.results) == 2


@pytest.mark.parametrize("count", [2, 3, 4, 7, 8])
def test_rounds_cover_every_link_once(count: int) -> None:
    units = [f"n{i}" for i in range(count)]
    rounds = list(rounds_of(units))
    pairs = [tuple(pair) for pairs in rounds for pair in pairs]
    assert len(set(pairs)) == len(pairs) == count * (count - 1) // 2
    assert all(a < b for a, b in pairs)
    for pairs_now in rounds:
        busy = [unit for pair in pairs_now for unit in pair]
        assert len(busy) == len(set(busy))


def test_speed_is_bus_bandwidth() -> None:
    assert bus_bandwidth(10**9, 0.5, 2) == 2.0
    assert bus_bandwidth(10**9, 0.5, 4) == 3.0
    assert bus_bandwidth(10**9, 0.0, 4) == bus_bandwidth(10**9, 1.0, 1) == 0.0


def test_slow_is_judged_at_the_largest_size_and_what_was_late_is_slow() -> None:
    judge = Judge(0.5)
    good = [Result([f"a{i}", f"b{i}"], "pairs", True, {8: 1.0, 64: 10.0}) for i in range(4)]
    judge.learn(good)
    late = Result(["n1", "n2"], "pairs", False, {8: 0.9})
    small = Result(["n1", "n2"], "pairs", True, {8: 0.1, 64: 9.0})
    large = Result(["n1", "n2"], "pairs", True, {8: 1.0, 64: 4.9})
    four = Result(["n1", "n2", "n3", "n4"], "halves", True, {64: 4.9})
    never = Result(["n1", "n2"], "pairs", False)
    judge.mark([late, small, large, four, never])
    statuses = [r.status for r in (late, small, large, four, never)]
    assert statuses == ["slow", "ok", "slow", "ok", "failed"]


def test_a_culprit_keeps_its_evidence() -> None:
    def rule(group: Sequence[str]) -> float | None:
        return dead("n2")(group)

    [culprit] = search(4, rule).culprits
    assert isinstance(culprit, Culprit) and "n2" in culprit.evidence.units
    assert not culprit.evidence.complete
