"""Lines of `top`, from what was seen and where the person is. No input, no output."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from msgspec import Struct
from rich.text import Text

from ..errors import UsageError
from ..text.durations import duration
from ..text.plain import visible
from ..text.ranges import parse_ranks
from ..watch.arrival_lag import lag_of
from ..watch.live_ranks import RankRow, Standing
from ..watch.rank_states import BY_CONCERN, UNTIMED, glyph_of, style_of
from .feeds import LiveRanks

_MAX_STANDINGS = 6
_NOTE_LINES = 4
_UNSEEN = "No probe: c (or hangdoctor dump) captures the stacks and names the cause"
_LEAST_ROWS = 4  # of the list of ranks, however small the terminal is
_LEAST_HEAD = 2  # the title and the sentence
_AROUND_STANDINGS = 3  # two blank lines and the names of the columns
_MAX_HEAD = 40
HELP = (
    "c        capture all ranks now and diagnose",
    "/        filter: ranks (0-7,12), or text in node, state, phase or operation",
    "Enter    details of the rank under the cursor",
    "arrows, j k, PgUp PgDn, Home End   move",
    "Esc      back, or clear the filter",
    "r        refresh now",
    "q        quit (also Ctrl-C)",
    "",
    "moving   made progress within 3 s        waiting  inside an operation for longer",
    "outside  in no recorded operation: the waiting ranks wait for it",
    "working  computes, reads or writes outside of operations",
    "LAG      how much later than the others it enters operations, per iteration",
    "still    no progress (without a black box nothing more is known)",
    "silent   its node does not answer     gone     its process has ended or was killed",
    "stopped  SIGSTOP or a debugger           blocked  in uninterruptible I/O (state D)",
)


class Mode(Struct):
    """Where the person is."""

    view: str = "list"  # or filter, detail, help
    filter: str = ""
    cursor: int = 0
    first: int = 0  # row at the top of the list
    note: str = ""
    bad: bool = False
    detail: list[str] = []


def chosen(seen: LiveRanks, wanted: str) -> list[RankRow]:
    """The rows that a filter lets through, those first that make others wait or wait longest."""
    wanted = wanted.strip().lower()
    rows = [r for r in seen.rows if r.state != "unseen"]
    if wanted:
        try:
            numbers = set(parse_ranks(wanted))
            rows = [r for r in rows if r.rank in numbers]
        except UsageError:
            rows = [r for r in rows if wanted in _searched(r)]
    return sorted(rows, key=_order)


def _searched(row: RankRow) -> str:
    """What a filter that is no list of ranks looks through."""
    return "\n".join((row.node, row.state, row.phase, row.op)).lower()


def _order(row: RankRow) -> tuple[int, int, int]:
    """Who has been there for longer comes first among those in the same state."""
    since = 0 if row.state in UNTIMED else -round(row.idle_s)
    return _place(row.state), since, row.rank


def _tame(line: Text) -> Text:
    """The line; without its colours where a name in it was left as the job has it."""
    shown = visible(line.plain)
    return line if shown == line.plain else Text(shown)


def _place(state: str) -> int:
    """States that block others first; one that this version does not know last."""
    return BY_CONCERN.index(state) if state in BY_CONCERN else len(BY_CONCERN)


def screen(seen: LiveRanks | None, trouble: str, mode: Mode, width: int, height: int) -> list[Text]:
    """Exactly `height` lines, none wider than `width`."""
    note = _note(mode, width, min(_NOTE_LINES, max(1, height // 4)))
    least = _LEAST_ROWS + 2 if mode.view in ("list", "filter") else height  # with columns and keys
    head = list(_head(seen, trouble, width, max(_LEAST_HEAD, height - len(note) - least)))
    room = max(1, height - len(head) - len(note) - 1)
    if mode.view == "help":
        body = [Text(line) for line in HELP]
    elif mode.view == "detail" and seen is not None:
        body = [Text(visible(line)) for line in mode.detail]
    else:
        body = list(_list(seen, mode, width, room)) if seen is not None else []
    lines = head + body[:room] + [Text()] * (room - len(body)) + note + [_keys(mode)]
    lines = [_tame(line) for line in lines]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines[:height]


def _head(
    seen: LiveRanks | None, trouble: str, width: int, room: int = _MAX_HEAD
) -> Iterator[Text]:
    """At most `room` lines, but for the title and the sentence: what is said last is left out
    first.
    """
    title = Text("hangdoctor top", style="bold")
    if seen is None:
        yield title
        yield Text(trouble or "reading ...", style="red" if trouble else "")
        return
    picture = seen.picture
    low, high = picture.iteration
    step = f"iteration {low}" if low == high else f"iteration {low} to {high}"
    told = [visible(seen.title), f"{picture.world_size} ranks"] + ([step] if low >= 0 else [])
    told += [f"{duration(seen.pace_s)} each"] if seen.pace_s else []
    yield title.append("  " + ", ".join(told), style="not bold dim")
    if trouble:
        yield Text(visible(trouble), style="bold red")
    else:
        yield Text(visible(picture.sentence), style="bold")
    if any(s.state == "still" for s in picture.standings):
        yield Text(_UNSEEN, style="dim")
    counts = Text()
    for name, number in picture.counts.items():
        count = f" {glyph_of(name)} {number} {visible(name)} ".replace("  ", " ")
        counts.append(count, style=style_of(name)).append(" ")
    if room < _LEAST_HEAD + 1:
        return
    yield counts
    standings = [s for s in picture.standings if s.state not in ("unseen",)][:_MAX_STANDINGS]
    shown = min(len(standings), room - _LEAST_HEAD - 1 - _AROUND_STANDINGS)
    if standings and shown < 1:
        return
    yield Text()
    yield Text(f"{'RANKS':<16}{'N':>6} {'STATE':<9}{'FOR':>7} {'BLOCKS':>9}  WHERE", style="dim")
    for one in standings[:shown]:
        yield _standing(one)
    yield Text()


def _standing(one: Standing) -> Text:
    ranks = one.ranks if len(one.ranks) <= 15 else one.ranks[:14] + "+"
    told = [
        visible(_where(one)),
        f"phase {visible(one.phase)}" if one.phase else "",
        f"iteration {one.iteration}" if one.iteration >= 0 else "",
        visible(one.nodes),
    ]
    text = Text(f"{ranks:<16}{one.count:>6} ")
    text.append(f"{visible(one.state):<9}", style=style_of(one.state))
    since = duration(one.for_s) if one.for_s else ""
    text.append(f"{since:>7} {one.holds or '':>9}  ")
    return text.append(", ".join(t for t in told if t))


def _where(one: Standing) -> str:
    """The operation that these ranks are in, or were in last."""
    if one.seq:
        return f"{one.op} #{one.seq}"
    return f"after {one.op}" if one.op and one.state == "outside" else one.op


def _list(seen: LiveRanks, mode: Mode, width: int, room: int) -> Iterator[Text]:
    rows = chosen(seen, mode.filter)
    mode.cursor = max(0, min(mode.cursor, len(rows) - 1))
    space = max(1, room - 1)
    if mode.cursor < mode.first:
        first = min(mode.cursor, len(rows) - space)
    else:
        first = max(mode.first, mode.cursor - space + 1)
    mode.first = max(0, first)
    node = max(8, min(16, width - 74))
    yield Text(_columns(node), style="dim")
    if not rows and mode.filter:
        yield Text(f"no rank matches '{visible(mode.filter)}'")
    elif not rows:
        yield Text("no rank here yet: it appears when the job starts")
    for i, row in enumerate(rows[mode.first : mode.first + space], mode.first):
        yield _row(row, node, i == mode.cursor)


def _columns(node: int) -> str:
    """The names above the list; in 80 columns 19 are left for the operation."""
    return f"{'RANK':>6} {'NODE':<{node}} {'STATE':<9}{'FOR':>7} {'LAG':>7} {'ITER':>7} {'PHASE':<10} OPERATION"


def _row(row: RankRow, node: int, under: bool) -> Text:
    since = "" if row.state in UNTIMED else duration(row.idle_s)
    step = str(row.iteration) if row.iteration >= 0 else ""
    number = f" #{row.seq}" if row.seq else ""
    phase = visible(row.phase)[:10]
    text = Text(
        f"{row.rank:>6} {visible(row.node)[:node]:<{node}} ", style="reverse" if under else ""
    )
    text.append(f"{visible(row.state):<9}", style=style_of(row.state))
    text.append(f"{since:>7} {_late(row):>7} {step:>7} {phase:<10} {visible(row.op)}{number}")
    return text


def _late(row: RankRow) -> str:
    """The arrival lag of a rank that is still there; "" below a millisecond."""
    lag = 0.0 if row.state in ("gone", "finished") else lag_of(row)
    if lag < 0.001:
        return ""
    return f"{lag * 1e3:.0f} ms" if lag < 1 else duration(lag)


def _note(mode: Mode, width: int, most: int) -> list[Text]:
    if mode.view == "filter":
        return [Text(f"filter: {mode.filter}_", style="bold")]
    lines = (
        [Text(f"filter: {visible(mode.filter)} (Esc clears it)", style="dim")]
        if mode.filter
        else []
    )
    wrapped = textwrap.wrap(visible(mode.note), width, break_on_hyphens=False)[:most]
    return lines + [Text(line, style="red" if mode.bad else "") for line in wrapped]


def _keys(mode: Mode) -> Text:
    if mode.view == "filter":
        return Text("Enter keeps the filter, Esc clears it", style="dim")
    if mode.view in ("detail", "help"):
        return Text("Esc back   c capture   q quit", style="dim")
    return Text("c capture   / filter   Enter details   ? help   q quit", style="dim")


def plain(seen: LiveRanks, wanted: str = "", limit: int = 64) -> Iterator[str]:
    """The same once, for a pipe or a file."""
    yield from (visible(line.plain).rstrip() for line in _head(seen, "", 160))
    rows = chosen(seen, wanted)
    yield _columns(16)
    for row in rows[:limit]:
        yield visible(_row(row, 16, False).plain).rstrip()
    if len(rows) > limit:
        yield f"... and {len(rows) - limit} more ranks (--json has all)"
