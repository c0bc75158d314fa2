"""Since when a job waits, and which incident is about that."""

from __future__ import annotations

from msgspec import structs

from hangdoctor.storage.incidents import Incident
from hangdoctor.transport.messages import RankNow
from hangdoctor.watch.live_ranks import RankRow, age_s, look, row_of
from hangdoctor.web.standstill import Standstill, standstill


def test_a_pause_without_a_recorded_wait_is_a_hang_where_a_verdict_says_so() -> None:
    """As in DistributedDataParallel's reduction, which black boxes do not have."""
    rows = [RankRow(r, "outside", "n0", 20.0, op="all_reduce", seq=9) for r in range(4)]
    picture = look(rows, "j", 4)
    assert picture.sentence == "No rank makes progress: 4 in no recorded operation"
    assert standstill(rows, picture, 1000.0, []) == Standstill()
    hang = Incident(id="now", job="j", at=990.0, reason="stall", state="saved", status="hang")
    before = Incident(id="before", job="j", at=900.0, reason="stall", state="saved", status="hang")
    found = standstill(rows, picture, 1000.0, [hang, before])
    assert (found.since, found.incident) == (980.0, "now")
    assert standstill(rows, picture, 1000.0, [before]) == Standstill()
    goes_on = [*rows[:3], RankRow(3, "moving", "n0", 0.1)]
    assert standstill(goes_on, look(goes_on, "j", 4), 1000.0, [hang]) == Standstill()


def test_the_hang_before_the_end_is_still_on_top_of_the_page() -> None:
    """A job is killed because it hangs: its end is later than its verdict."""
    told = RankNow(0, idle_s=45.0, over=True, over_s=5.0, box=True)
    rows = [row_of(structs.replace(told, rank=r), "n0", age_s(told)) for r in range(4)]
    hang = Incident(id="h", job="j", at=970.0, reason="stall", state="saved", status="hang")
    found = standstill(rows, look(rows, "j", 4), 1000.0, [hang])
    assert found.ended is not None and (found.ended.at, found.ended.progress) == (995.0, 955.0)
    assert found.incident == "h"
    recovered = structs.replace(hang, at=900.0)
    assert standstill(rows, look(rows, "j", 4), 1000.0, [recovered]).incident == ""
