"""Reasons of many nodes, once each."""

from __future__ import annotations

from hangdoctor.text.alike import grouped, in_words


def test_reasons_that_differ_in_the_name_of_the_node_are_one() -> None:
    whys = [(f"n{i}", f"alice@n{i}: Permission denied (publickey).") for i in range(1, 9)]
    assert in_words(whys) == ["n[1-8] (8 nodes): Permission denied (publickey)."]
    route = [(n, f"ssh: connect to host {n} port 22: No route to host") for n in ("n1", "n10")]
    said = "n[1,10] (2 nodes): ssh: connect to host NODE port 22: No route to host"
    assert in_words([*route, ("n2", "no answer within 20 s")]) == [
        said,
        "n2: no answer within 20 s",
    ]


def test_one_node_keeps_its_own_words_and_parts_of_words_are_no_names() -> None:
    alone = "node n1 is NotReady (n1 has disk pressure)"
    assert grouped([("n1", alone)]) == [(["n1"], alone)]
    others = [("n", "in n1: no such job"), ("m", "in n1: no such job")]
    assert grouped(others) == [(["n", "m"], "in n1: no such job")]
    assert in_words([("", "no dump of these ranks was given")]) == [
        "no dump of these ranks was given"
    ]
