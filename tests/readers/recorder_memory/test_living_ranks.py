"""Records read from the memory of real ranks are those that torch itself dumps."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from hangdoctor.model.capture import RankCapture
from hangdoctor.readers import flight_recorder_format, recorder_live
from hangdoctor.readers.recorder_memory import read_recorder
from tests.support.gloo_ranks import start, stop
from tests.support.stage import switches, wait_until

pytestmark = pytest.mark.torch
NEWEST = 2000


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[int]]]:
    folder = tmp_path_factory.mktemp("m")
    ranks = start(folder)
    pids = [rank.pid for rank in ranks]
    _wait_until_still(pids)
    yield folder, pids
    stop(ranks)


def _wait_until_still(pids: list[int]) -> None:
    """Until the main threads block: the last call of each is then recorded."""

    def still() -> bool:
        before = list(map(switches, pids))
        time.sleep(0.3)
        return before == list(map(switches, pids))

    wait_until(still, "ranks that block")


def plain(dump: flight_recorder_format.Dump) -> list[dict[str, object]]:
    """Its entries; a thread's number is written in another way in each form."""
    return [structs.asdict(entry) | {"thread": 0} for entry in dump.entries]


def test_they_are_what_torch_dumps(job: tuple[Path, list[int]]) -> None:
    folder, pids = job
    read = [read_recorder(pid, NEWEST) for pid in pids]
    (folder / "dump").touch()
    for rank, dump in enumerate(read):
        wait_until((folder / f"json_{rank}").exists, f"the dump of rank {rank}")
        wait_until((folder / f"pickle_{rank}").exists, f"the dump of rank {rank}")
        own = flight_recorder_format.parse((folder / f"pickle_{rank}").read_bytes())
        assert dump is not None
        assert len(dump.entries) > 12
        assert plain(dump) == plain(own)
        assert "gloo_rank.py:" in dump.entries[-1].site
        assert structs.replace(dump, entries=[], version="") == structs.replace(
            own, entries=[], version=""
        )


def test_a_stopped_rank_shows_the_same(job: tuple[Path, list[int]]) -> None:
    _, pids = job
    before = read_recorder(pids[1], NEWEST)
    os.kill(pids[1], signal.SIGSTOP)
    try:
        assert before is not None
        assert read_recorder(pids[1], NEWEST) == before
    finally:
        os.kill(pids[1], signal.SIGCONT)


def test_the_newest_alone(job: tuple[Path, list[int]]) -> None:
    _, pids = job
    whole, few = read_recorder(pids[0], NEWEST), read_recorder(pids[0], 3)
    assert whole is not None and few is not None
    assert plain(few) == plain(whole)[-3:]
    assert few.overwritten


def test_ranks_get_them_at_both_samples(job: tuple[Path, list[int]]) -> None:
    _, pids = job
    ranks = [RankCapture(pid=p, rank=r, world_size=4) for r, p in enumerate(pids)]
    recorder_live.attach(ranks, first=True, seconds=30)
    recorder_live.attach(ranks, first=False, seconds=30)
    for rank in ranks:
        assert rank.ops is not None and rank.ops_before is not None
        assert rank.ops.source == "flight_recorder"
        assert rank.ops.operations[-1] == rank.ops_before.operations[-1]
    waiting = {r.rank: bool(r.ops.unfinished()) for r in ranks if r.ops is not None}
    assert waiting == {0: True, 1: True, 2: False, 3: True}


def test_a_rank_whose_numbers_are_not_known_leaves_groups_open(
    job: tuple[Path, list[int]],
) -> None:
    """Of the ranks of one node alone it is not known who else is in their smaller groups."""
    _, pids = job
    ranks = [RankCapture(pid=pids[r], rank=r, world_size=4) for r in (0, 1)]
    recorder_live.attach(ranks, first=False, seconds=30)
    assert [rank.ops for rank in ranks] == [None, None]


def test_a_process_without_torch_has_none() -> None:
    assert read_recorder(os.getppid(), NEWEST) is None
    assert read_recorder(2**22 + 1, NEWEST) is None
