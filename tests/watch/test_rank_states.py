"""One table of states: the terminal, the page, its style sheet and its JavaScript all have every
one of them.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
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
            assert not re.search(r"(STATES|WORST|SAYS|GLYPHS|SUSPECT|CAUSE) = ", text), file.name
            assert not re.search(rf"\[\s*\"({'|'.join(STATES)})\",", text), file.name
    own = set(re.findall(r"--(\w+):", (STATIC / "live.css").read_text()))
    assert not own & set(STATES)
    for name in ("index.html", "login.html"):
        assert "/static/states.css" in (STATIC / name).read_text()


def test_each_state_has_a_colour_on_the_page_and_in_the_terminal() -> None:
    light, dark = (STATIC / "states.css").read_text().split("@media")
    wanted = {*STATES, "cause"}
    for part in (light, dark):
        assert set(re.findall(r"--(\w+): #[0-9a-f]{6};", part)) == wanted
        assert set(re.findall(r"--on-(\w+): #[0-9a-f]{6};", part)) == wanted
    for state in TABLE:
        Style.parse(state.style)


# Letters or signs and what they are on, by the variables of live.css.
READ = [
    ("ink", "paper"),
    ("ink", "card"),
    ("ink", "soft"),
    ("ink", "cause-soft"),
    ("dim", "paper"),
    ("dim", "card"),
    ("dim", "soft"),
    ("link", "paper"),
    ("link", "card"),
    ("link", "cause-soft"),
    ("bad", "paper"),
    ("bad", "card"),
    ("paper", "ink"),
]
PAIRS = [*READ, *((f"on-{name}", name) for name in (*STATES, "cause"))]


def variables(*files: str) -> tuple[dict[str, str], dict[str, str]]:
    """The colour variables of style sheets, of a light page and of a dark one."""
    light: dict[str, str] = {}
    dark: dict[str, str] = {}
    for file in files:
        bright, _, rest = (
            (STATIC / file).read_text().partition("@media (prefers-color-scheme: dark)")
        )
        night = rest.partition("\n}\n")[0]
        light |= dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", bright))
        dark |= dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", night))
    return light, dark


def luminance(colour: str) -> float:
    """Relative luminance of #rrggbb (https://www.w3.org/TR/WCAG22/#dfn-relative-luminance)."""
    shares = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_computed_as_the_standard_says() -> None:
    assert contrast("#ffffff", "#000000") == 21
    assert round(contrast("#ffffff", "#ec6440"), 2) == 3.25


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(("ink", "back"), PAIRS)
def test_letters_are_readable(ink: str, back: str, theme: int) -> None:
    colours = variables("live.css", "states.css")[theme]
    assert contrast(colours[ink], colours[back]) >= 4.5


def test_report_and_page_paint_the_same_states_alike() -> None:
    """The names on the left are those of the report's style sheet."""
    base = (STATIC.parents[1] / "report" / "html" / "static" / "base.css").read_text()
    names = {
        "wait": "waiting",
        "move": "moving",
        "stop": "stopped",
        "gone": "gone",
        "cause": "cause",
    }
    for part, colours in zip(base.split("@media")[:2], variables("states.css"), strict=True):
        for theirs, ours in names.items():
            for prefix in ("", "on-"):
                [told] = re.findall(rf"--{prefix}{theirs}: (#[0-9a-f]+);", part)[:1]
                assert _long(told) == colours[prefix + ours]


def _long(colour: str) -> str:
    return colour if len(colour) == 7 else "#" + "".join(c * 2 for c in colour[1:])


def test_states_are_distinguished() -> None:
    assert len({s.name for s in TABLE}) == len({s.legend for s in TABLE}) == len(TABLE)
    for order in ([s.concern for s in TABLE], [s.unblamed for s in TABLE]):
        assert sorted(order) == list(range(len(TABLE)))
    for marks in ([s.glyph for s in TABLE if s.glyph], [s.sign for s in TABLE if s.sign]):
        assert len(set(marks)) == len(marks)
    assert {s.name for s in TABLE if s.short} == set(SUSPECT)


def test_every_state_that_a_rank_can_have_is_in_the_table() -> None:
    reports = [
        RankNow(0, over=True, finished=True),
        RankNow(0, over=True),
        RankNow(0, held="D"),
        RankNow(0, held="T"),
        RankNow(0, busy=True),
        RankNow(0, inside=True),
        RankNow(0, box=True),
        RankNow(0),
    ]
    seen = {
        standing.state_of(report, idle_s, silent)
        for report in reports
        for idle_s in (0.0, 60.0)
        for silent in (False, True)
    }
    assert seen | {"unseen"} == set(STATES)
