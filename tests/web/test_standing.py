"""What blocks which ranks, the frames of the page, and a reader that does not keep up; no processes
here.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from hangdoctor.clock import FakeClock
from hangdoctor.collector.core import Core, Settings
from hangdoctor.collector.view import MAX_ROWS, View
from hangdoctor.model.capture import JobCapture
from hangdoctor.model.diagnosis import Cause, Diagnosis, Job, RankLine
from hangdoctor.storage.incidents import Incidents
from hangdoctor.storage.unrecorded_waits import as_text, from_text
from hangdoctor.top.feeds import LiveRanks, settled
from hangdoctor.top.raw_terminal import split_keys
from hangdoctor.top.screen import Mode, screen
from hangdoctor.transport.messages import Hello, RankNow, Report, encode
from hangdoctor.watch.live_ranks import RankRow, look, row_of, state_of
from hangdoctor.watch.rank_states import STATES
from hangdoctor.watch.stall_watch import Settings as WatchSettings
from hangdoctor.watch.stall_watch import StallWatch
from hangdoctor.web import hub as hub_module
from hangdoctor.web.collector_mirror import Mirror, Snapshot
from hangdoctor.web.collector_mirror import encode as encode_snapshot
from hangdoctor.web.frames import COLUMNS, runs
from hangdoctor.web.hub import Hub
from hangdoctor.web.metrics import Exporter
from hangdoctor.web.snapshot import Board, Doors


def row(rank: int, state: str, idle_s: float = 12.0, **more: Any) -> RankRow:
    return RankRow(rank, state, more.pop("node", f"n{rank // 4}"), idle_s, **more)


def test_states() -> None:
    cases = {
        "moving": RankNow(0),
        "waiting": RankNow(0, inside=True),
        "outside": RankNow(0, box=True),
        "still": RankNow(0),
        "working": RankNow(0, busy=True),
        "stopped": RankNow(0, inside=True, held="T"),
        "blocked": RankNow(0, held="D"),
        "gone": RankNow(0, over=True),
        "finished": RankNow(0, over=True, finished=True),
    }
    for state, told in cases.items():
        assert state_of(told, 1.0 if state == "moving" else 20.0, False) == state
    assert state_of(RankNow(0), 1.0, True) == "silent"
    assert state_of(RankNow(0, over=True), 1.0, True) == "gone"


def test_who_is_not_there_blocks_those_who_wait() -> None:
    rows = [row(r, "waiting", op="all_reduce", seq=9, iteration=4) for r in range(8) if r != 5] + [
        row(5, "outside", 13.0, op="recv")
    ]
    picture = look(rows, "j", 8)
    assert [(s.ranks, s.holds) for s in picture.standings] == [("5", 7), ("0-4,6-7", 0)]
    assert (
        picture.sentence
        == "Rank 5 (n1) is in no recorded operation; 7 ranks have been waiting in all_reduce for 12 s"
    )
    assert (picture.counts, picture.iteration) == ({"waiting": 7, "outside": 1}, (4, 4))


def test_where_all_wait_the_few_come_first() -> None:
    rows = [row(r, "waiting", op="send" if r == 3 else "all_reduce", seq=2) for r in range(8)]
    picture = look(rows, "j", 8)
    assert [s.ranks for s in picture.standings] == ["3", "0-2,4-7"]
    assert picture.sentence.startswith("No rank moves: 8 ranks have been waiting in 2 operations")


@pytest.mark.parametrize(
    ("states", "sentence"),
    [
        (["moving"] * 4, "All 4 ranks move"),
        (["finished"] * 4, "The job has ended"),
        ([], "No rank has been seen yet"),
        (["moving", "moving", "gone"], "2 of 3 ranks move, 1 dead"),
        (["unseen"] * 3, "No rank has been seen yet"),
        (["waiting", "moving"], "1 rank has been waiting for 12 s; 1 moves"),
        (["outside", "waiting", "moving", "moving"], "1 rank has been waiting for 12 s; 2 move"),
        (["silent", "waiting"], "Rank 0 (n0) cannot be seen: its node does not answer"),
        (
            ["silent", "silent", "waiting", "waiting"],
            "Ranks 0-1 (n0) cannot be seen: the agent there does not answer; 2 ranks have been",
        ),
        (["moving"], "1 rank moves"),
        (["moving", "gone"], "1 of 2 ranks moves, 1 dead"),
    ],
)
def test_sentences(states: list[str], sentence: str) -> None:
    assert look(
        [row(i, s, box=True) for i, s in enumerate(states)], "j", len(states)
    ).sentence.startswith(sentence)


@pytest.mark.parametrize(
    ("states", "sentence"),
    [
        (["moving"] * 4, "All 4 ranks run; without black boxes"),
        (["moving"], "1 rank runs; without black boxes"),
        (["working"] * 2, "All 2 ranks run; without black boxes"),
        (["moving", "moving", "gone"], "2 of 3 ranks run, 1 dead"),
    ],
)
def test_of_ranks_without_black_boxes_no_one_says_that_they_go_on(
    states: list[str], sentence: str
) -> None:
    assert look([row(i, s) for i, s in enumerate(states)], "j", len(states)).sentence.startswith(
        sentence
    )


class FakeSource:
    """Two ranks without black boxes that were stuck before the first sample, and one with a box
    that moves on request.
    """

    def __init__(
        self, clock: FakeClock, moves: bool, world: int = 3, first_look_s: float = 0.0
    ) -> None:
        self.clock, self.moves, self.world, self.looks = clock, moves, world, 0
        self.first_look_s = first_look_s

    def look(self) -> LiveRanks:
        self.looks += 1
        if self.looks == 1:
            self.clock.sleep(self.first_look_s)
        # From the first look on: more is not known of them.
        since = self.clock.monotonic() - self.first_look_s
        told = [
            RankNow(0, idle_s=since),
            RankNow(1, idle_s=since),
            RankNow(2, idle_s=0.1 if self.moves else since, box=True),
        ]
        rows = [row_of(t, "n0", t.idle_s) for t in told[: self.world]]
        return LiveRanks(look(rows, "j", self.world), rows, "j on n0")

    def capture(self) -> str:
        raise NotImplementedError

    def detail(self, row: RankRow) -> list[str]:
        raise NotImplementedError


def test_one_sample_lasts_until_a_rank_that_is_stuck_is_not_taken_for_one_that_moves() -> None:
    stuck = FakeSource(FakeClock(), moves=False)
    assert settled(stuck, stuck.clock).picture.counts == {"outside": 1, "still": 2}
    half = FakeSource(FakeClock(), moves=True)
    assert settled(half, half.clock).picture.sentence == "1 of 3 ranks moves, 2 without progress"
    busy_machine = FakeSource(FakeClock(), moves=False, first_look_s=5.0)
    assert settled(busy_machine, busy_machine.clock).picture.counts == {"outside": 1, "still": 2}
    nobody = FakeSource(FakeClock(), moves=False, world=0)
    assert not settled(nobody, nobody.clock).rows and nobody.looks == 1


# ---------------------------------------------------------------- from the collector to the browser


class Pair:
    """The collector's view and the page's mirror of it; a state crosses as over the channel."""

    def __init__(self, core: Core) -> None:
        self.view, self.mirror = View(core), Mirror()
        self.looks = 0

    def look(self, now: float, wall: float) -> None:
        self.view.look(now, wall)
        view, whole = self.view, self.looks == 0
        ranks = view.everything() if whole else view.changes()
        self.mirror.take(
            encode_snapshot(Snapshot(view.now, view.captures, view.concluded, whole, ranks))
        )
        self.looks += 1


def core_with(ranks: list[RankNow], world: int, now: float = 1000.0) -> tuple[Core, Pair]:
    core = Core(Settings(), StallWatch(WatchSettings()))
    view = Pair(core)
    core.received(b"p", encode(Hello("a", "n1", "job", world)), now, 0.0)
    core.received(b"p", encode(Report(1, 1, 0.0, ranks)), now, 0.0)
    view.look(now, 0.0)
    return core, view


def board_of(view: Pair, folder: Path) -> Board:
    return Board(
        view.mirror, Incidents(folder), Doors(lambda reason: None, lambda path: (b"", "text/plain"))
    )


def test_a_world_that_is_claimed_too_large_costs_no_memory() -> None:
    _, view = core_with([RankNow(0), RankNow(1_900_000)], 1_999_999)
    rows, _ = view.mirror.rows()
    assert len(rows) == MAX_ROWS


REDUCTION = "gradient all_reduce in backward"


def keep_hang(folder: Path, at: float) -> None:
    """An incident of then: ranks 0-2 reduce gradients, rank 3 is stopped."""
    cause = Cause("stopped", [3], ["n1"], 0.9, "Rank 3 is stopped.")
    lines = [RankLine(r, "n1", 1, "", r, "S still", REDUCTION, REDUCTION) for r in range(3)]
    told = Diagnosis("hang", Job("job", 4, ["n1"]), cause.summary, [cause], ranks=lines)
    Incidents(folder).save(JobCapture("job", taken=at), told, "report", "stall")


def test_a_wait_in_no_recorded_operation_is_said_as_the_newest_capture_saw_it(
    tmp_path: Path,
) -> None:
    now, wall = time.monotonic(), time.time()
    ranks = [RankNow(r, idle_s=30, op="barrier", seq=2, box=True) for r in range(3)]
    ranks.append(RankNow(3, idle_s=30, box=True, held="T"))
    core, view = core_with(ranks, 4, now)
    view.look(now, wall)
    before = board_of(view, tmp_path / "none").look(0.0)
    assert before.picture.counts == {"outside": 3, "stopped": 1}
    assert "3 in no recorded operation" in before.picture.sentence
    keep_hang(tmp_path, wall - 20)
    board = board_of(view, tmp_path)
    seen = board.look(0.0)
    assert seen.picture.sentence == (
        "Rank 3 (n1) is stopped; 3 ranks have been waiting in "
        "gradient all_reduce in backward (not recorded) for 30 s"
    )
    assert board.standstill(seen).incident and seen.rows[3].behind_s >= 30
    assert [(r.op, r.seq, r.behind_s) for r in seen.rows[:1]] == [
        (f"{REDUCTION} (not recorded)", 0, 0.0)
    ]
    went_on = [RankNow(r, idle_s=4, op="barrier", seq=2, box=True) for r in range(3)]
    core.received(b"p", encode(Report(2, 1, 0.0, went_on)), now, 0.0)
    view.look(now, wall)
    assert board.look(0.0).picture.counts == {"outside": 3, "stopped": 1}


def test_the_waits_of_many_ranks_are_one_short_text() -> None:
    lines = [RankLine(r, "n", 1, "", 0, "S", "", REDUCTION) for r in (0, 1, 2, 5)]
    lines.append(RankLine(4, "n", 1, "", 0, "S", "x.py:3"))
    text = as_text([*lines, RankLine(6, "n", 1, "", 0, "S", "", "broadcast")])
    assert text == f"6 broadcast\n0-2,5 {REDUCTION}"
    assert from_text(text) == dict.fromkeys((0, 1, 2, 5), REDUCTION) | {6: "broadcast"}
    assert as_text(lines[:0]) == "" and from_text("") == {} and from_text("x y") == {}
    odd = [RankLine(r, "n", 1, "", 0, "S", "", REDUCTION) for r in range(1, 999, 2)]
    assert as_text(odd) == ""


def test_the_lag_is_the_same_however_seldom_it_is_sampled() -> None:
    now = time.monotonic()
    often, seldom = (core_with([], 3, now) for _ in range(2))
    for number in range(2, 40):
        told = [RankNow(r, box=True, waits=0 if r == 1 else 60) for r in range(3)]
        for core, _ in (often, seldom):
            core.received(b"p", encode(Report(number, 1, 0.0, told)), now, 0.0)
        often[1].look(now, 0.0)
    seldom[1].look(now, 0.0)
    lags = [[r.lag_s for r in view.mirror.rows()[0]] for _, view in (often, seldom)]
    assert lags[0] == lags[1] == [0.0, 0.6, 0.0]
    for number in range(40, 55):  # now it waits as the others do
        told = [RankNow(r, box=True, waits=60) for r in range(3)]
        seldom[0].received(b"p", encode(Report(number, 1, 0.0, told)), now, 0.0)
    seldom[1].look(now, 0.0)
    assert 0.0 < seldom[1].mirror.rows()[0][1].lag_s < 0.2


def test_runs_tell_what_changed() -> None:
    rng = random.Random(7)
    assert runs([1, 1, 1, 1], [1, 2, 2, 3]) == [1, 2, 2, 3, 1, 3]
    for size in (0, 1, 7, 300):
        old, new = ([rng.randrange(3) for _ in range(size)] for _ in range(2))
        found, copy = runs(old, new), list(old)
        for first, count, value in zip(found[::3], found[1::3], found[2::3], strict=True):
            copy[first : first + count] = [value] * count
        assert copy == new


def test_a_job_that_begins_anew_with_fewer_ranks_does_not_stop_the_page(tmp_path: Path) -> None:
    core, view = core_with([RankNow(0, op="a")], 64)
    hub = Hub(board_of(view, tmp_path))
    hub.step()
    core.received(b"p", encode(Hello("a", "n1", "job", 8)), 1001.0, 0.0)
    view.look(1001.0, 0.0)
    hub.step()
    assert hub.board.look().picture.world_size == 8


class Page:
    """What the browser keeps, as its model.js does."""

    def __init__(self) -> None:
        self.columns: dict[str, list[int]] = {}
        self.names: dict[str, list[str]] = {}

    def apply(self, frame: dict[str, Any], full: bool) -> None:
        if full:
            self.columns, self.names = {c: [0] * frame["size"] for c in COLUMNS}, {}
        for table, (first, texts) in frame["names"].items():
            self.names[table] = self.names.get(table, [])[:first] + texts
        for name, told in frame["columns"].items():
            column = self.columns[name]
            column += [0] * (frame["size"] - len(column))
            for first, count, value in zip(told[::3], told[1::3], told[2::3], strict=True):
                column[first : first + count] = [value] * count


def frames_in(data: bytes) -> list[tuple[str, dict[str, Any]]]:
    blocks = [b.split(b"\n") for b in data.split(b"\n\n") if b]
    return [
        (lines[0].removeprefix(b"event: ").decode(), json.loads(lines[2].removeprefix(b"data: ")))
        for lines in blocks
    ]


def test_readers_see_the_same_whenever_they_come_and_whatever_changes(tmp_path: Path) -> None:
    asyncio.run(_readers(tmp_path))


async def _readers(folder: Path) -> None:
    rng, ranks = random.Random(3), 300
    core, view = core_with([RankNow(r, iteration=1, box=True) for r in range(ranks)], ranks)
    hub = Hub(board_of(view, folder))
    readers: list[tuple[hub_module.Reader, bytes]] = []
    for step in range(2, 14):
        if step % 4 == 2:
            plain, zipped = hub.beginning()
            for reader, begin in (
                (hub_module.Reader(True), hub_module._GZIP + zipped),
                (hub_module.Reader(False), plain),
            ):
                reader.frames = asyncio.Queue()
                hub.readers.add(reader)
                readers.append((reader, begin))
        told = [
            RankNow(
                r,
                iteration=step,
                op=f"op{rng.randrange(5)}",
                phase=rng.choice(("a", "b")),
                idle_s=rng.choice((0, 30)),
                inside=True,
                box=True,
                seq=step,
            )
            for r in rng.sample(range(ranks), 120)
        ]
        core.received(b"p", encode(Report(step, 1, 0.0, told)), 1000.0 + step, 0.0)
        view.look(1000.0 + step, 0.0)
        hub.step()
    pages = []
    for reader, begin in readers:
        data = b"".join(
            [
                begin,
                *(
                    d
                    for d in (reader.frames.get_nowait() for _ in range(reader.frames.qsize()))
                    if d
                ),
            ]
        )
        if reader.zipped:
            data = zlib.decompressobj(31).decompress(
                data
            )  # one stream of its own for each, of shared parts
        page = Page()
        for kind, frame in frames_in(data):
            page.apply(frame, kind == "full")
        pages.append(page)
    assert len(pages) == 6 and all(
        (p.columns, p.names) == (pages[0].columns, pages[0].names) for p in pages
    )
    rows = hub.board.look(fresh_s=1e9).rows
    assert pages[0].columns["state"] == [STATES.index(r.state) for r in rows]
    assert [pages[0].names["op"][i] for i in pages[0].columns["op"]] == [r.op for r in rows]


def test_a_reader_that_takes_nothing_is_cut_off_and_costs_the_others_nothing(
    tmp_path: Path,
) -> None:
    asyncio.run(_slow_reader(tmp_path))


async def _slow_reader(folder: Path) -> None:
    _, view = core_with([RankNow(0)], 1)
    hub = Hub(board_of(view, folder))
    got: list[bytes] = []
    scope = {"type": "http", "headers": [], "path": "/api/v1/stream", "method": "GET"}

    async def stays() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async def takes_nothing(message: Any) -> None:
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    async def takes(message: Any) -> None:
        got.append(message.get("body", b""))

    slow, quick = (asyncio.create_task(hub(scope, stays, s)) for s in (takes_nothing, takes))
    while len(hub.readers) < 2:
        await asyncio.sleep(0)
    for _ in range(hub_module._BEHIND + 3):
        hub.step()
        for _ in range(20):
            await asyncio.sleep(0)
    await asyncio.wait_for(slow, 10)
    assert (hub.cut_off, len(hub.readers)) == (1, 1)
    assert len(got) > hub_module._BEHIND + 3
    hub.close()
    await asyncio.wait_for(quick, 10)


def test_one_frame_of_many_ranks_is_small(tmp_path: Path) -> None:
    ranks = 16_384
    _, view = core_with([], ranks)
    hub = Hub(board_of(view, tmp_path))
    for seq in (1, 2):
        for node in range(0, ranks, 2048):
            told = [
                RankNow(r, iteration=seq, op="all_reduce", seq=seq, inside=True, box=True)
                for r in range(node, node + 2048)
            ]
            view.view.take(f"n{node}", told, 0.0, 1000.0 + seq)
        view.look(1000.0 + seq, 0.0)
        hub.beginning()
        hub.step()
    assert hub._frames.last is not None
    assert len(msgspec.json.encode(hub._frames.last)) < 4000, "what changed alike is told once"
    assert len(hub.beginning()[1]) < 20_000


def test_metrics_of_single_ranks_end_where_the_option_says(tmp_path: Path) -> None:
    _, view = core_with([RankNow(r, iteration=3, box=True) for r in range(40)], 40)
    board = board_of(view, tmp_path)
    hub = Hub(board)
    assert Exporter(board, hub, 40).text().count(b"hangdoctor_rank_iteration{") == 40
    text = Exporter(board, hub, 39).text()
    assert b"hangdoctor_rank_" not in text and b"hangdoctor_world_size 40.0" in text


# ----------------------------------------------------------------- the terminal's lines


def test_hostile_names_cannot_steer_the_terminal_and_lines_fit() -> None:
    evil = "\x1b]0;pwned\x07\x1b[2J\r\n[bold]x[/] " + "y" * 10_000
    rows = [row(i, s, op=evil, phase=evil, node=evil, seq=3) for i, s in enumerate(STATES)]
    for width, height in ((80, 24), (20, 6), (200, 60)):
        for view in ("list", "help", "detail", "filter"):
            mode = Mode(view=view, note=evil, filter="", detail=[evil])
            lines = screen(
                LiveRanks(look(rows, evil, 12), rows, evil, 0.2), "", mode, width, height
            )
            assert len(lines) == height and all(line.cell_len <= width for line in lines)
            for line in lines:
                assert line.plain.isprintable()
    console = Console(width=80, force_terminal=True, color_system="256", file=None)
    with console.capture() as taken:
        for line in screen(LiveRanks(look(rows, evil, 12), rows, evil), "", Mode(), 80, 24):
            console.print(line)
    assert "\x1b]0" not in taken.get() and "\x1b[2J" not in taken.get()


def test_the_columns_of_top_fit_80_columns_with_the_lag_in_them() -> None:
    rows = [
        row(
            0,
            "moving",
            0.1,
            iteration=1234567,
            phase="evaluation",
            op="all_gather_into_tensor",
            lag_s=0.123,
        ),
        row(1, "stopped", 75.0, iteration=9, op="send", seq=4, behind_s=71.0),
        row(2, "waiting", op="all_reduce", seq=123456),
    ]
    lines = [
        line.plain
        for line in screen(LiveRanks(look(rows, "j", 3), rows, "j on n0", 0.2), "", Mode(), 80, 24)
    ]
    [head] = [line for line in lines if line.startswith("  RANK")]
    column = slice(head.index("    LAG"), head.index("    LAG") + 7)
    shown = {
        line.split()[0]: line
        for line in lines[lines.index(head) + 1 :]
        if line.strip()[:1].isdigit()
    }
    assert {rank: line[column].strip() for rank, line in shown.items()} == {
        "0": "123 ms",
        "1": "71 s",
        "2": "",
    }
    assert shown["2"].endswith("all_reduce #123456") and "1234567 evaluation" in shown["0"]


@pytest.mark.parametrize(("width", "height"), [(40, 10), (40, 8), (80, 24), (200, 60)])
@pytest.mark.parametrize(
    "note", ["", "Captured: rank 3 never reached all_reduce #12, and more words " * 3]
)
def test_a_small_terminal_keeps_rows_of_ranks(width: int, height: int, note: str) -> None:
    rows = [
        row(r, "waiting", op=f"op{r % 7}", seq=2, phase="forward", iteration=4) for r in range(64)
    ]
    seen = LiveRanks(look(rows, "j", 64), rows, "a job with quite a long name on n[0-15]")
    lines = [line.plain for line in screen(seen, "", Mode(note=note), width, height)]
    assert len(lines) == height and max(map(len, lines)) <= width
    assert lines[0].startswith("hangdoctor top") and "No rank moves" in lines[1]
    listed = [line for line in lines if line.startswith("     ") and " waiting " in line]
    assert len(listed) >= (3 if not note else 1), lines
    assert "capture" in lines[-1]


def test_keys_are_distinguished() -> None:
    assert split_keys("j\x1b[A\x1b[5~q") == ["j", "up", "page up", "q"]
    assert split_keys("\x1b") == ["escape"]
    assert split_keys("\x1bc\x1b\x1b[B") == ["escape", "c", "escape", "down"]
    assert split_keys("\x1b[1;5Cx\x1b[200~é\r") == ["x", "é", "enter"]
