"""Where the page puts the squares of jobs of every size: all of them, none twice, with labels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.livejob import LiveJob
from tests.support.onpage import log_in
from tests.support.stage import wait_until

pytestmark = pytest.mark.torch

_FITTED = """
const [size, perNode, layout, wish, done] = arguments;
const node = Float64Array.from({length: size}, (_, i) => 1 + Math.floor(i / perNode));
const names = Array.from({length: size / perNode}, (_, i) => `gpu${i}`);
const model = {size, columns: {node}, names: {node: ["", ...names]}, status: {layout}};
import('/static/grid_layout.js').then(({fitted}) => {
  const found = fitted(model, wish), side = found.cell;
  const squares = found.runs.flatMap(({x, y, ranks}) => ranks.map((r, i) => [r, x + i * side, y]));
  const text = found.labels.map((label) => label.text);
  const rows = new Map();
  let overlaps = 0;
  for (const {x, y, ranks} of found.runs) {
    const row = rows.get(y) || [];
    if (row.some(([a, b]) => x < b && x + ranks.length * side > a)) overlaps++;
    rows.set(y, [...row, [x, x + ranks.length * side]]);
  }
  done({
    shown: found.shown, side, overlaps, height: found.height, labels: text,
    width: Math.max(...squares.map(([, x]) => x + side).slice(0, 1000)),
    ranks: new Set(squares.map(([r]) => r)).size, squares: squares.length,
  });
});
"""
WIDTH = 700


@pytest.fixture(scope="module")
def page(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder: Path = tmp_path_factory.mktemp("grid")
    with LiveJob(folder, world=0) as live:
        log_in(browser, live, live.token)
        wait_until(lambda: browser.current_url == live.address + "/", "the page opens")
        yield browser


def fitted(page: Any, size: int, layout: list[int] | None, **wish: Any) -> dict[str, Any]:
    wanted = {"wanted": "", "zoom": 0, "width": WIDTH, "room": 540, "least": 4} | wish
    found = dict(page.execute_async_script(_FITTED, size, 8, layout, wanted))
    assert found["ranks"] == found["squares"] == size, "every rank once"
    assert found["overlaps"] == 0 and found["width"] <= WIDTH
    return found


@pytest.mark.parametrize("zoom", [0, 2, 4])
@pytest.mark.parametrize("wanted", ["", "node", "number"])
@pytest.mark.parametrize(
    ("size", "layout"),
    [(8, [2, 2, 2]), (1024, [16, 8, 8]), (16_000, [125, 16, 8]), (100_000, None)],
)
def test_every_rank_has_its_place(
    page: Any, size: int, layout: list[int] | None, wanted: str, zoom: int
) -> None:
    before = fitted(page, size, layout, wanted=wanted)
    found = fitted(page, size, layout, wanted=wanted, zoom=zoom)
    assert found["shown"] == before["shown"] and found["side"] >= before["side"]
    assert found["side"] > before["side"] or zoom == 0 or size == 8


def test_a_thousand_ranks_have_labels_without_a_zoom(page: Any) -> None:
    by_layout = fitted(page, 1024, [16, 8, 8])
    assert by_layout["shown"] == "layout" and by_layout["height"] <= 540
    assert {f"pp {p}" for p in range(8)} | {f"dp {d}" for d in range(16)} <= set(
        by_layout["labels"]
    )
    by_node = fitted(page, 1024, None)
    assert by_node["shown"] == "node" and by_node["height"] <= 540
    assert {f"gpu{n}" for n in range(128)} <= set(by_node["labels"])


def test_where_no_name_has_room_ranks_are_in_order_until_nodes_are_asked_for(page: Any) -> None:
    assert fitted(page, 16_000, None)["shown"] == "number"
    by_node = fitted(page, 16_000, None, wanted="node", zoom=6)
    assert by_node["side"] >= 9 and len(set(by_node["labels"])) >= 1000
