"""Since when a job waits, or how it ended; and which incident is about the hang of now.

Pure functions over `RankRow` and the index of incidents, by times of day.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ..storage.incidents import Incident
from ..text.ranges import format_ranks
from ..watch.live_ranks import STILL_S, Picture, RankRow

_SLACK_S = 3.0  # between the clocks of a capture and of a rank's last progress
_MAX_RANKS = 60  # characters
_OVER = ("gone", "finished")
_BAD = ("hang", "slow", "failed")  # status of a diagnosis


class Ended(Struct, frozen=True):
    """All ranks that were seen have ended. `at` is the end of the last one, `progress` the last
    progress of any of them, as times of day.
    """

    at: float
    how: str
    lost: str
    progress: float = 0.0


class Standstill(Struct, frozen=True):
    """`since` is a time of day, 0 where no rank waits; `incident` is the id of the newest one of this hang."""

    since: float = 0.0
    incident: str = ""
    ended: Ended | None = None


def standstill(
    rows: Sequence[RankRow], picture: Picture, wall: float, incidents: Sequence[Incident]
) -> Standstill:
    """How the job is at the time of day `wall`; `incidents` newest first."""
    seen = [r for r in rows if r.state != "unseen"]
    if seen and all(r.state in _OVER for r in seen):
        ended = _ended(seen, wall)
        return Standstill(incident=_newest(incidents, ended.progress), ended=ended)
    stuck = [s for s in picture.standings if s.state == "waiting" or s.holds]
    longest = max((s.for_s for s in stuck if s.state == "waiting"), default=0.0)
    if longest < STILL_S:
        return _unrecorded(seen, picture, wall, incidents)
    since = wall - longest
    return Standstill(since=since, incident=_newest(incidents, since))


def _unrecorded(
    seen: Sequence[RankRow], picture: Picture, wall: float, incidents: Sequence[Incident]
) -> Standstill:
    """No rank waits in a recorded operation, as in DistributedDataParallel's reduction: only a
    verdict on this pause makes it a hang.
    """
    if any(r.state in ("moving", "working") for r in seen) or picture.idle_s < STILL_S:
        return Standstill()
    since = wall - picture.idle_s
    incident = _newest(incidents, since)
    return Standstill(since=since, incident=incident) if incident else Standstill()


def _newest(incidents: Sequence[Incident], since: float) -> str:
    """The newest incident from that time on; a healthy verdict after it says that it was over."""
    newest = next((i for i in incidents if i.state == "saved"), None)
    if newest is None or newest.at < since - _SLACK_S or newest.status not in _BAD:
        return ""
    return newest.id


def _ended(seen: Sequence[RankRow], wall: float) -> Ended:
    at = wall - min(r.idle_s for r in seen)
    progress = wall - min(r.idle_s + r.stood_s for r in seen)
    died = [r.rank for r in seen if r.state == "gone"]
    last = max(r.iteration for r in seen)
    reached = f"Iteration {last} was the last." if last >= 0 else ""
    if not died:
        how = f"All {len(seen)} ranks finished." if len(seen) > 1 else "Its only rank finished."
        return Ended(at=at, how=how, lost=reached, progress=progress)
    names = format_ranks(died)
    if len(names) > _MAX_RANKS:
        names = f"{len(died)} ranks"
    which = f"{'Rank' if len(died) == 1 else 'Ranks'} {names}"
    if names.endswith("ranks"):
        which = names
    how = f"{which} ended without finishing: killed, or by an error."
    lost = f"{reached} The work since the last checkpoint is lost.".strip()
    return Ended(at=at, how=how, lost=lost, progress=progress)
