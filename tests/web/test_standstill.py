"""Since when a job waits, and which incident is about that."""

from __future__ import annotations

from hangdoctor.storage.incidents import Incident
from hangdoctor.watch.live_ranks import RankRow, look
from hangdoctor.web.standstill import Standstill, standstill


def test_a_pause_without_a_recorded_wait_is_a_hang_where_a_verdict_says_so() -> None:
    """As in DistributedDataParallel's reduction, which black boxes do not have."""
    rows = [RankRow(r, "outside", "n0", 20.0, op="all_reduce", seq=9) for r in range(4)]
    picture = look(rows, "j", 4)
    assert picture.sentence == "No rank makes progress: 4 not in any recorded operation"
    assert standstill(rows, picture, 1000.0, []) == Standstill()
    hang = Incident(id="now", job="j", at=990.0, reason="stall", state="saved", status="hang")
    before = Incident(id="before", job="j", at=900.0, reason="stall", state="saved", status="hang")
    found = standstill(rows, picture, 1000.0, [hang, before])
    assert (found.since, found.incident) == (980.0, "now")
    assert standstill(rows, picture, 1000.0, [before]) == Standstill()
    goes_on = [*rows[:3], RankRow(3, "moving", "n0", 0.1)]
    assert standstill(goes_on, look(goes_on, "j", 4), 1000.0, [hang]) == Standstill()
