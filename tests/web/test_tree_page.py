"""The live page above a tree of collectors: four real ranks on two nodes, each node behind a
collector of its own.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from hangdoctor.errors import BadInput
from hangdoctor.readers.blackbox import find_boxes
from hangdoctor.readers.calls import CallsReader, calls_path
from tests.support.onpage import complaints, log_in, soon, text
from tests.support.stage import wait_until
from tests.support.treejob import TreeJob, unavailable

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TreeJob]:
    reason = unavailable()
    if reason:
        pytest.skip(reason)
    with TreeJob(tmp_path_factory.mktemp("tree")) as job:
        yield job


@pytest.fixture
def page(browser: Any, tree: TreeJob) -> Any:
    log_in(browser, tree, tree.token)
    wait_until(lambda: "4 ranks" in text(browser, "scale"), "the grid is there")
    browser.get_log("browser")
    return browser


def ranks(tree: TreeJob) -> list[dict[str, Any]]:
    return list(json.loads(tree.request("/api/v1/ranks")[2])["ranks"])


def figures(page: Any) -> dict[str, str]:
    lines = text(page, "figures").splitlines()
    return dict(zip(lines[::2], lines[1::2], strict=True))


def test_every_rank_is_there_with_its_node_and_its_operation(page: Any, tree: TreeJob) -> None:
    soon(page, "sentence", lambda t: t == "All 4 ranks move.")
    assert figures(page)["nodes"] == "2" and text(page, "foot").startswith(
        "2 of 2 agents connected"
    )
    assert text(page, "job") == tree.run_id
    found = ranks(tree)
    assert [(r["rank"], r["node"]) for r in found] == [(0, "n0"), (1, "n0"), (2, "n1"), (3, "n1")]
    wait_until(
        lambda: all(r["op"] in ("all_reduce", "broadcast") and r["pid"] for r in ranks(tree)),
        "all say where they are",
    )
    assert complaints(page) == []


def test_a_straggler_behind_another_collector_is_named(page: Any, tree: TreeJob) -> None:
    (tree.control / "drag").write_text("3")
    try:
        soon(page, "late", lambda t: t.startswith("rank 3"))
    finally:
        (tree.control / "drag").unlink()
    soon(page, "late", lambda t: t == "No rank arrives later than the others.")


def test_a_capture_asked_for_on_the_page_has_all_nodes(page: Any, tree: TreeJob) -> None:
    with tree.stopped(2):
        soon(page, "sentence", lambda t: t.startswith("Rank 2 (n1") and "is stopped" in t)

        def culprit() -> str:
            # In one step: between two, the page may have drawn the row anew.
            found = "document.querySelector('tr.culprit')"
            return str(page.execute_script(f"return {found} ? {found}.innerText.trim() : ''"))

        assert culprit().split()[:2] == ["◆", "2"] and "n1" in culprit()
        wait_until(lambda: culprit().endswith("3"), "it blocks all others")
        # The collector's own capture on evidence may be under way: this one comes after it.
        page.find_element("id", "capture").click()
        shown = soon(page, "incidents", lambda t: "requested on the page" in t)
        assert "declined" not in shown
        assert (
            "HANG" in shown.upper()
            and "Rank 2 (n1" in shown
            and re.search("(have|has) been waiting", shown)
        )
        soon(page, "note", lambda t: t.startswith("Captured: Rank 2 (n1"))
    tree.settled()


def test_the_trace_button_reaches_both_nodes(page: Any, tree: TreeJob) -> None:
    def states() -> list[str]:
        found = []
        for box in (b for node in (0, 1) for b in find_boxes(tree.boxes(node))):
            with (
                contextlib.suppress(BadInput, FileNotFoundError),
                CallsReader(calls_path(box.path)) as reader,
            ):  # it is being made
                found.append(reader.summary().state)
        return found

    page.find_element("id", "trace").click()
    wait_until(lambda: states() == ["tracing"] * 4, "all ranks trace their calls")
    page.find_element("id", "trace").click()
    wait_until(lambda: states() == ["stopped"] * 4, "no rank traces any more")


def test_a_node_behind_a_lost_collector_is_silent_and_comes_back(page: Any, tree: TreeJob) -> None:
    tree.lose("r1")
    soon(page, "sentence", lambda t: "not answer" in t and "2" in t)
    assert "no answer from n1" in figures(page)["nodes"]
    assert "No answer from node n1" in text(page, "banner")
    assert "2-3" in text(page, "standing") and "its node does not answer" in text(page, "standing")
    tree.relay(1)
    soon(page, "sentence", lambda t: t == "All 4 ranks move.")


def test_collectors_started_anew_during_a_hang_learn_where_the_ranks_stand(
    browser: Any, tree: TreeJob
) -> None:
    """Ranks that stand say nothing new: whoever comes new must be told all the same, and find the
    stall by itself.
    """
    with tree.stopped(2):
        wait_until(lambda: tree.status()["status"]["counts"].get("stopped") == 1, "it stands")
        tree.lose("r1")
        tree.lose("collector")
        tree.relay(1)
        tree.collector(
            "--stall-after", "8"
        )  # the pauses of the tests before are part of the rhythm that it has learned
        log_in(browser, tree, tree.token)
        soon(browser, "sentence", lambda t: t.startswith("Rank 2 (n1") and "is stopped" in t)
        soon(browser, "incidents", lambda t: "stall: no progress" in t)
    tree.settled()
