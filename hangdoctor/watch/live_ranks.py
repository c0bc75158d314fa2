"""Where every rank of a running job stands, and which ranks are blocked and by what, from what
agents report each second.

A sample, not a diagnosis: no stacks and no groups are looked at. It says which rank to look at
first; a capture says why. Pure functions over `RankRow`; the page, the terminal view and the
metrics share them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

from ..text.durations import duration
from ..text.ranges import format_hosts, format_ranks
from ..transport.messages import RankNow
from .rank_states import BY_NAME, STATES, SUSPECT, UNTIMED

# A rank without progress for this long is at rest; reports come every second and may be late.
STILL_S = 3.0
_MAX_NODES = 6  # named in one line
_ROOM = 40  # characters of ranks or nodes in a sentence


class LastWord(Struct, frozen=True, array_like=True):
    """What an agent said last of a rank, and when that was so."""

    node: str
    told: RankNow
    event: float  # its last progress, by the collector's clock
    # Percent of its time that it waits for its peers, smoothed; -1 where nothing tells.
    waits: float = -1.0


class RankRow(Struct):
    """One rank now, as it is shown: by the page, its API, the metrics and `top`.

    `idle_s` counts since its last progress (of a rank that is gone, since its end), `behind_s` is
    how long peers have waited without it, `lag_s` is how much later than its peers it comes to
    operations.
    """

    rank: int
    state: str = "unseen"
    node: str = ""
    idle_s: float = 0.0
    iteration: int = -1
    phase: str = ""
    op: str = ""  # that it is in, or was in last
    seq: int = 0
    pid: int = 0
    box: bool = False
    behind_s: float = 0.0
    lag_s: float = 0.0
    stood_s: float = 0.0  # of a rank that has ended: without progress before its end


class Standing(Struct):
    """Ranks that are at the same place; `holds` is how many others wait for them."""

    state: str
    ranks: str  # as ranges
    count: int
    nodes: str
    for_s: float = 0.0
    op: str = ""
    seq: int = 0
    phase: str = ""
    iteration: int = -1
    holds: int = 0


class Picture(Struct):
    """One look at the whole job."""

    sentence: str
    job: str
    world_size: int
    counts: dict[str, int]
    standings: list[Standing]
    iteration: tuple[int, int]  # lowest and highest; -1 if unknown
    idle_s: float = 0.0  # since the last progress of any rank


def state_of(told: RankNow, idle_s: float, silent: bool) -> str:
    """The name of one of `rank_states.TABLE`."""
    if told.over:
        return "finished" if told.finished else "gone"
    if silent:
        return "silent"
    if idle_s < STILL_S:
        return "moving"
    if told.held:
        return "blocked" if told.held == "D" else "stopped"
    if told.busy:
        return "working"
    if told.inside:
        return "waiting"
    return "outside" if told.box else "still"


def age_s(told: RankNow) -> float:
    """How long a rank has been where it is, in seconds: since its last progress, or since the end
    of its process.
    """
    return told.over_s if told.over else told.idle_s


def row_of(told: RankNow, node: str, idle_s: float, silent: bool = False) -> RankRow:
    """What is shown of a rank, from the last word of its agent.

    `idle_s` is its `age_s` until now; `silent`: its node is not heard any more.
    """
    return RankRow(
        rank=told.rank,
        state=state_of(told, idle_s, silent),
        node=node,
        idle_s=idle_s,
        iteration=told.iteration,
        phase=told.phase,
        op=told.op,
        seq=told.seq,
        pid=told.pid,
        box=told.box,
        stood_s=max(0.0, told.idle_s - told.over_s) if told.over else 0.0,
    )


def stand(rows: Iterable[RankRow]) -> list[Standing]:
    """Ranks at the same place together, those first that make the others wait, then who waits
    longest.
    """
    places: dict[tuple[object, ...], list[RankRow]] = {}
    waiting = going = 0
    for row in rows:
        waiting += row.state == "waiting"
        going += row.state in ("moving", "working")
        key: tuple[object, ...] = (row.state,)
        if row.state in _PLACED:
            key = (
                row.state,
                row.op,
                row.seq if row.state == "waiting" else 0,
                row.phase,
                row.iteration,
            )
        places.setdefault(key, []).append(row)
    # Where most ranks go on, no one can say from a sample which of the others wait for one another.
    found = [_standing(same, waiting if waiting >= going else 0) for same in places.values()]
    return sorted(found, key=_order)


_PLACED = ("waiting", "outside", "working", "stopped", "blocked", "still")


def _standing(same: Sequence[RankRow], waiting: int) -> Standing:
    first = same[0]
    nodes = sorted({r.node for r in same if r.node})
    one = Standing(
        state=first.state,
        ranks=format_ranks(r.rank for r in same),
        count=len(same),
        nodes=format_hosts(nodes) if len(nodes) <= _MAX_NODES else f"{len(nodes)} nodes",
    )
    if first.state not in UNTIMED:
        one.for_s = max(r.idle_s for r in same)
    if first.state in _PLACED:
        one.op, one.phase, one.iteration = first.op, first.phase, first.iteration
    if first.state == "waiting":
        one.seq = first.seq
    if first.state in SUSPECT:
        one.holds = waiting
    return one


def _order(one: Standing) -> tuple[object, ...]:
    suspect = SUSPECT.index(one.state) if one.holds else len(SUSPECT)
    # Where all wait, the few in another place than the many are the ones to look at.
    few = one.count if one.state == "waiting" else 0
    return suspect, BY_NAME[one.state].unblamed, few, -one.for_s, one.op, one.seq


def look(rows: Sequence[RankRow], job: str, world_size: int) -> Picture:
    """The picture of all rows."""
    standings = stand(rows)
    counts = Counter(r.state for r in rows)
    steps = [r.iteration for r in rows if r.iteration >= 0]
    alive = [r.idle_s for r in rows if r.state not in ("unseen", "gone", "finished")]
    blind = not any(r.box for r in rows if r.state in ("moving", "working"))
    return Picture(
        sentence=sentence(standings, counts, blind),
        job=job,
        world_size=world_size,
        counts={s: counts[s] for s in STATES if counts[s]},
        standings=standings,
        iteration=(min(steps), max(steps)) if steps else (-1, -1),
        idle_s=min(alive, default=0.0),
    )


_UNKNOWN = "; without black boxes it is not known whether they work or wait"


def sentence(standings: Sequence[Standing], counts: Counter[str], blind: bool = False) -> str:
    """What a person wants to know first; `blind`: none that moves or works has a black box that
    would tell more.
    """
    total = counts.total()
    if not total:
        return "No rank has been seen yet"
    holders = [s for s in standings if s.holds]
    waits = [s for s in standings if s.state == "waiting"]
    if holders:
        return f"{_blocking(holders[0])}; {_waiters(waits)}"
    if waits and not counts["moving"] and not counts["working"]:
        return f"No rank moves: {_waiters(waits)}"
    if waits:
        return f"{_waiters(waits)}; {_go_on(counts['moving'] + counts['working'])}"
    if any(counts[s] for s in SUSPECT):
        return _some_suspect(counts, blind)
    alive = total - counts["unseen"] - counts["finished"]
    if not alive:
        return "The job has ended" if counts["finished"] else "No rank has been seen yet"
    all_ = f"All {_go_on(alive, ' ranks', blind)}" if alive > 1 else _go_on(alive, " rank", blind)
    return f"{all_}{_UNKNOWN if blind else ''}"


def _some_suspect(counts: Counter[str], blind: bool) -> str:
    """Where no rank waits, and some are dead, stopped or not heard of."""
    total, lost = counts.total(), sum(counts[s] for s in SUSPECT)
    states = ", ".join(f"{counts[s]} {BY_NAME[s].short}" for s in SUSPECT if counts[s])
    if lost == total:
        return f"No rank makes progress: {states}"
    return f"{_go_on(total - lost, f' of {total} ranks', blind)}, {states}"


def _go_on(number: int, of_what: str = "", blind: bool = False) -> str:
    """Ranks whose progress cannot be seen are only said to run."""
    one, many = ("runs", "run") if blind else ("moves", "move")
    return f"{number}{of_what} {one if number == 1 else many}"


def _blocking(one: Standing) -> str:
    """Which ranks block the others, and how they are."""
    state = BY_NAME[one.state]
    where = f" ({one.nodes})" if one.nodes and len(one.nodes) <= _ROOM else ""
    if one.count == 1:
        return f"Rank {one.ranks}{where} {state.phrase}"
    if len(one.ranks) > _ROOM:
        return f"{one.count} ranks ({_short(one.ranks)}) {state.phrase_many}"
    return f"Ranks {one.ranks}{where} {state.phrase_many}"


def _waiters(waits: Sequence[Standing]) -> str:
    number = sum(w.count for w in waits)
    operations = list(dict.fromkeys(w.op for w in waits if w.op))
    where = ""
    if operations:
        what = operations[0] if len(operations) == 1 else f"{len(operations)} operations"
        where = f" in {what}"
    longest = max((w.for_s for w in waits), default=0.0)
    return f"{number} rank{'s have' if number != 1 else ' has'} been waiting{where} for {duration(longest)}"


def _short(ranks: str) -> str:
    return ranks if len(ranks) <= _ROOM else ranks[: ranks.rfind(",", 0, _ROOM)] + ",..."
