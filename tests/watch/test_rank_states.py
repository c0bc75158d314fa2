"""One table of states: the terminal, the page, its style sheet and its JavaScript all have every one of them."""

from __future__ import annotations

import re
from pathlib import Path

from rich.style import Style

from hangdoctor.transport.messages import RankNow
from hangdoctor.watch import live_ranks as standing
from hangdoctor.watch import rank_states
from hangdoctor.watch.rank_states import STATES, SUSPECT, TABLE

STATIC = Path(rank_states.__file__).parents[1] / "web" / "static"


def test_the_page_has_the_table() -> None:
    how = "python scripts/states_js.py"
    assert (STATIC / "states.js").read_text() == rank_states.javascript(), how
    assert (STATIC / "states.css").read_text() == rank_states.stylesheet(), how


def test_the_page_keeps_no_table_of_its_own() -> None:
    for file in STATIC.glob("*.js"):
        if file.name != "states.js":
            text = file.read_text()
            assert not re.search(r"(STATES|WORST|SAYS|GLYPHS|SUSPECT|DARK_INK) = ", text), file.name
            assert not re.search(rf"\[\s*\"({'|'.join(STATES)})\",", text), file.name
    own = set(re.findall(r"--(\w+):", (STATIC / "live.css").read_text()))
    assert not own & set(STATES)
    for name in ("index.html", "login.html"):
        assert "/static/states.css" in (STATIC / name).read_text()


def test_each_state_has_a_colour_on_the_page_and_in_the_terminal() -> None:
    light, dark = (STATIC / "states.css").read_text().split("@media")
    for part in (light, dark):
        assert set(re.findall(r"--(\w+): #[0-9a-f]{6};", part)) == set(STATES)
    for state in TABLE:
        Style.parse(state.style)


def test_states_are_distinguished() -> None:
    assert len({s.name for s in TABLE}) == len({s.legend for s in TABLE}) == len(TABLE)
    for order in ([s.concern for s in TABLE], [s.unblamed for s in TABLE]):
        assert sorted(order) == list(range(len(TABLE)))
    for marks in ([s.glyph for s in TABLE if s.glyph], [s.sign for s in TABLE if s.sign]):
        assert len(set(marks)) == len(marks)
    assert {s.name for s in TABLE if s.short} == set(SUSPECT)


def test_every_state_that_a_rank_can_have_is_in_the_table() -> None:
    reports = [
        RankNow(0, over=True, finished=True), RankNow(0, over=True), RankNow(0, held="D"), RankNow(0, held="T"),
        RankNow(0, busy=True), RankNow(0, inside=True), RankNow(0, box=True), RankNow(0),
    ]  # fmt: skip
    seen = {
        standing.state_of(report, idle_s, silent)
        for report in reports
        for idle_s in (0.0, 60.0)
        for silent in (False, True)
    }
    assert seen | {"unseen"} == set(STATES)
