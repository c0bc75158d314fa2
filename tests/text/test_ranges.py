"""Ranks, members and hosts as texts: what is written comes back, and each limit is where it says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangdoctor.errors import BadInput, UsageError
from hangdoctor.model import number_checks as checks
from hangdoctor.model.capture import JobCapture, NodeCapture, RankCapture
from hangdoctor.model.layout import Layout
from hangdoctor.model.operations import RankOps
from hangdoctor.model.ras_report import RasCommunicator, RasReport
from hangdoctor.text import ranges
from hangdoctor.text.ranges import MAX_HOSTS, MAX_RANKS


def test_numbers_are_plain_digits_that_fit_64_bits() -> None:
    assert [ranges.number_in(t) for t in ("0", "07", "9" * 18)] == [0, 7, 10**18 - 1]
    assert [ranges.number_in(t) for t in ("", "-1", " 1", "1.0", "\u0663", "\u00b2", "9" * 19)] == [
        -1
    ] * 7
    assert ranges.number_in("x", 5) == 5


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([], ""),
        ([0], "0"),
        ([5, 5, 4], "4-5"),
        ([0, 2], "0,2"),
        ([3, 1, 2, 0, 8], "0-3,8"),
        ([7, 0, 8], "0,7-8"),
    ],
)
def test_ranks_come_back_as_they_were(ranks: list[int], text: str) -> None:
    assert ranges.format_ranks(ranks) == text
    assert ranges.parse_ranks(text) == sorted(set(ranks))


def test_a_list_of_ranks_may_have_spaces_and_say_a_rank_twice() -> None:
    assert ranges.parse_ranks(" 3 , 0-1,,1-3") == [0, 1, 2, 3]
    assert list(ranges.parse_runs("4-4,2")) == [(4, 4), (2, 2)]


@pytest.mark.parametrize("text", ["x", "1-", "-1", "3-1", "1-2-3", "1:2", "0-10000001"])
def test_what_is_no_list_of_ranks(text: str) -> None:
    with pytest.raises(UsageError):
        list(ranges.parse_runs(text))


def test_as_many_ranks_as_a_job_can_have_and_no_more() -> None:
    assert len(ranges.parse_ranks(f"1-{MAX_RANKS}")) == MAX_RANKS
    for text in (f"0-{MAX_RANKS}", f"0-{MAX_RANKS - 1},7"):
        with pytest.raises(UsageError, match="more than 2,000,000 ranks"):
            ranges.parse_ranks(text)
    assert list(ranges.parse_runs("0-10000000")) == [(0, 10_000_000)]


def test_members_of_a_group() -> None:
    assert ranges.member_runs("0-3,8-20:4,5") == [range(4), range(8, 21, 4), range(5, 6)]
    assert ranges.member_runs("") == []
    top = MAX_RANKS - 1
    assert ranges.member_runs(f"{top}") == [range(top, MAX_RANKS)]
    for text in (f"{MAX_RANKS}", f"0-{MAX_RANKS}", f"{MAX_RANKS}-1", "0-4:0", "a", "1-", "1:2"):
        assert ranges.member_runs(text) is None, text


@pytest.mark.parametrize(
    ("hosts", "text"),
    [
        (["n2", "n1", "n3", "login"], "login,n[1-3]"),
        (["n1"], "n1"),
        (["n1", "n3"], "n[1,3]"),
        (["n08", "n09", "n10"], "n[08-10]"),
        (["n9", "n10"], "n[9-10]"),
        (["n01", "n1"], "n01,n1"),
        (["10.0.0.1", "10.0.0.2"], "10.0.0.1,10.0.0.2"),
        (["7", "8"], "7,8"),
        (["n08", "n9", "n10", "n100"], "n[08,10],n[9,100]"),
        (["n0", "n1", "n10"], "n[0-1,10]"),
        (["n00", "n0"], "n0,n00"),
        (["a" + "1" * 18, "a" + "1" * 19], "a111111111111111111,a1111111111111111111"),
        ([], ""),
    ],
)
def test_hosts_come_back_as_they_were(hosts: list[str], text: str) -> None:
    assert ranges.format_hosts(hosts) == text
    assert sorted(ranges.parse_hosts(text)) == sorted(hosts)


def test_a_list_of_hosts_is_expanded_in_the_order_written() -> None:
    assert ranges.parse_hosts("b2,a[3,1], ,,x[08-10]y[1-2], ") == [
        "b2",
        "a3",
        "a1",
        "x08y1",
        "x08y2",
        "x09y1",
        "x09y2",
        "x10y1",
        "x10y2",
    ]
    assert ranges.parse_hosts("n[ 1 , 2 ]") == ["n1", "n2"]


@pytest.mark.parametrize("text", ["n[1-2", "n1]", "n[a]", "n[1-2-3]", "n[]", "n[-1]"])
def test_what_is_no_list_of_hosts_is_named(text: str) -> None:
    with pytest.raises(UsageError, match="is not a host list"):
        ranges.parse_hosts(text)


def test_as_many_hosts_as_are_allowed_and_no_more() -> None:
    assert len(ranges.parse_hosts(f"n[1-{MAX_HOSTS}]")) == MAX_HOSTS
    assert len(ranges.parse_hosts(f"n[2-{MAX_HOSTS}],x")) == MAX_HOSTS
    for text in (f"n[0-{MAX_HOSTS}]", f"n[1-{MAX_HOSTS}],x", "n[1-1000]m[1-101]"):
        with pytest.raises(UsageError, match="has more than 100,000 hosts"):
            ranges.parse_hosts(text)


def test_a_long_text_is_cut_where_it_is_quoted() -> None:
    for length, shown in ((80, "x" * 80), (81, "x" * 77 + "...")):
        with pytest.raises(UsageError) as error:
            ranges.parse_ranks("x" * length)
        assert f"'{shown}'" in str(error.value)


# --------------------------------------------------------------------------- what was decoded


def of_rank(**fields: object) -> JobCapture:
    return JobCapture(
        "j", [NodeCapture("n1", ranks=[RankCapture(**({"pid": 1, "rank": 0} | fields))])]
    )  # type: ignore[arg-type]


def ras_of(size: int) -> JobCapture:
    return JobCapture(
        "j", [NodeCapture("n1", ras=RasReport(communicators=[RasCommunicator("ab", size)]))]
    )


@pytest.mark.parametrize(
    "capture",
    [
        JobCapture("j", world_size=MAX_RANKS),
        of_rank(rank=MAX_RANKS),
        of_rank(rank=-1),
        of_rank(world_size=MAX_RANKS),
        of_rank(ops=RankOps(0, MAX_RANKS)),
        ras_of(MAX_RANKS),
        JobCapture("j", layout=Layout(MAX_RANKS, 1, 1)),
        JobCapture("j", [NodeCapture("n1", layout=Layout(1, 1, 1))]),
    ],
)
def test_numbers_that_a_job_can_have(capture: JobCapture) -> None:
    checks.check_job(capture)


@pytest.mark.parametrize(
    "capture",
    [
        JobCapture("j", world_size=MAX_RANKS + 1),
        JobCapture("j", world_size=-2),
        of_rank(rank=MAX_RANKS + 1),
        of_rank(rank=-2),
        of_rank(world_size=MAX_RANKS + 1),
        of_rank(ops=RankOps(0, MAX_RANKS + 1)),
        of_rank(ops=RankOps(MAX_RANKS + 1, 1)),
        of_rank(ops_before=RankOps(0, MAX_RANKS + 1)),
        of_rank(ops=RankOps(0, 1, layout=Layout(0, 1, 1))),
        ras_of(MAX_RANKS + 1),
        JobCapture("j", layout=Layout(MAX_RANKS, 2, 1)),
        JobCapture("j", layout=Layout(1, 0, 1)),
        JobCapture("j", layout=Layout(1, 1, 0)),
        JobCapture("j", [NodeCapture("n1", layout=Layout(0, 1, 1))]),
    ],
)
def test_numbers_that_no_job_has(capture: JobCapture) -> None:
    with pytest.raises(BadInput, match="a job has at most 2,000,000"):
        checks.check_job(capture)


def _parts(text: str) -> list[str]:
    """What is between the commas that are in no brackets, character by character."""
    found, depth = [""], 0
    for c in text:
        depth += (c == "[") - (c == "]")
        if c == "," and depth == 0:
            found.append("")
        else:
            found[-1] += c
    return [part for part in found if part] if depth == 0 else ["brackets do not match"]


@given(st.text("a1,[]- ", max_size=14))
def test_a_list_of_hosts_is_cut_at_the_commas_outside_of_brackets(text: str) -> None:
    try:
        found = [part for part in ranges._split_outside_brackets(text) if part]
    except UsageError:
        found = ["brackets do not match"]
    assert found == _parts(text)


def test_a_list_of_nothing_but_brackets_is_refused_unread() -> None:
    with pytest.raises(UsageError, match="too many brackets"):
        ranges.parse_hosts("[" * (4 * MAX_HOSTS + 1))
    assert ranges.parse_hosts("a[1]," * 1000 + "b") == ["a1"] * 1000 + ["b"]
