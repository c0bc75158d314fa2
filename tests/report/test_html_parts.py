"""What the HTML report is put together from, without a browser."""

from __future__ import annotations

import html.parser
import json
import re
from pathlib import Path

import msgspec
import pytest

from benchmarks.accuracy.simulate import simulate
from benchmarks.accuracy.simulated import capture_of
from hangdoctor.diagnosis import diagnose
from hangdoctor.model.capture import JobCapture, NodeCapture, RankCapture
from hangdoctor.model.diagnosis import (
    CallsOf,
    CallsParting,
    Cause,
    Diagnosis,
    Job,
    RankLine,
    Wait,
    WaitOn,
    Where,
)
from hangdoctor.model.layout import Layout
from hangdoctor.report.html import as_bytes, chat, graph, lanes, raw
from hangdoctor.report.html.group_names import GroupNames, layout_of
from hangdoctor.report.html.safe_text import embed, visible
from hangdoctor.storage import bundle
from hangdoctor.text.group_words import group_words
from tests.support.hostile import SHOWN, everywhere
from tests.support.ops_records import rank_ops

STATIC = Path(raw.__file__).parent / "static"
CUBE = Layout(dp=2, pp=2, tp=2)


def test_hidden_characters_are_shown_and_others_left_alone() -> None:
    assert visible("load_\u202ehctab") == "load_\\u{202e}hctab"
    assert visible("a\x1b[31m\u200b\ud800\n") == "a\\u{1b}[31m\\u{200b}\\u{d800}\\u{a}"
    assert visible("größe_函数_🚀") == "größe_函数_🚀"
    assert len(visible("e" + "\u0301" * 500)) < 20


def test_embedded_json_cannot_end_its_element() -> None:
    data = {"</script><!--": ["<script>&", "\u2028", "\u202e"]}
    text = embed(data)
    assert not set("<>&\u2028\u202e") & set(text)
    assert json.loads(text) == {"</script><!--": ["<script>&", "\\u{2028}", "\\u{202e}"]}


@pytest.mark.parametrize("layout", [CUBE, Layout(dp=4, pp=2, tp=8), Layout(dp=16, pp=8, tp=8)])
def test_a_layout_is_read_from_the_groups_it_makes(layout: Layout) -> None:
    groups = [g for axis in ("tp", "dp", "pp") for g in layout.groups(axis)]
    assert (
        layout_of([*groups, list(range(layout.world_size)), [0, 1, 5]], layout.world_size) == layout
    )


def test_groups_have_one_name_in_sentences_tables_and_drawings() -> None:
    """As the verdict says it: `docs/voice.md`."""
    names = GroupNames([rank_ops(0, 8, [])], 8, CUBE)
    assert names.label("?") == "group of unknown ranks"
    at = Where(group="tp", group_ranks=[4, 5], op="all_reduce", seq=3)
    cause = Cause("stopped", [4], ["n"], 0.9, "Rank 4 is stopped.", at)
    told = Diagnosis("hang", Job("j", 8, ["n"]), cause.summary, [cause])
    told.waits = [Wait([5], WaitOn("tp", "all_reduce", 3), [4])]
    told.ranks = [RankLine(r, "n", 1, "", -1 if r == 4 else r, "S", "") for r in range(8)]
    page = as_bytes(JobCapture("j", world_size=8), told, Path("/nowhere")).decode()
    assert "<dd>TP group 4-5</dd>" in page and ">TP group</text>" in page
    assert "confidence 90 %" in page and "tensor-parallel" not in page
    assert re.findall(r'data-r="(\d)"', page) == list("01234567")  # also that of an ended process
    assert group_words("world", "0-7") == "the whole job" and group_words("3") == ""
    assert group_words("mine", "0-3") == "group 'mine' (0-3)"


def test_ranks_of_an_ended_job_are_called_ended() -> None:
    told = Diagnosis("failed", Job("j", 2, ["n"]), "Rank 0 failed first.")
    told.ranks = [RankLine(r, "n", 1, "", r, "ended", "after barrier #1") for r in range(2)]
    page = as_bytes(JobCapture("j", world_size=2, over=True), told, Path("/nowhere")).decode()
    assert "2 gone: the process has ended" in page and "elsewhere" not in page.split("<script")[0]


def test_no_layout_is_guessed_where_two_would_fit() -> None:
    replicas = Layout(dp=4, pp=2)
    assert (
        layout_of(replicas.groups("dp") + replicas.groups("pp"), 8) is None
    )  # as tensor x data parallel would look
    assert layout_of([[0, 1, 2, 3], [4, 5, 6, 7]], 8) is None
    assert layout_of([list(range(8))], 8) is None


def test_waits_of_a_thousand_ranks_are_a_handful_of_boxes_and_end_at_the_culprit() -> None:
    case = simulate("not_entered", Layout(dp=16, pp=8, tp=8), 1)
    diagnosis = diagnose(capture_of(case.after, case.before, case.layout))
    drawn = graph.build(diagnosis)
    assert drawn is not None and len(drawn.boxes) <= 25 and drawn.width <= 1130
    assert sorted(r for b in drawn.boxes for r in b.ranks) == list(range(1024))
    [culprit] = [b for b in drawn.boxes if b.cause >= 0]
    assert culprit.ranks == case.truth.ranks and culprit.x == max(b.x for b in drawn.boxes)
    places = {(b.x, b.y) for b in drawn.boxes}
    assert len(places) == len(drawn.boxes)


def ring() -> Diagnosis:
    waits = [Wait([r], WaitOn("sub", "recv", 7), [(r + 1) % 4]) for r in range(4)]
    cause = Cause("order", [0, 1, 2, 3], ["n"], 0.5, "They wait in a ring.")
    return Diagnosis("hang", Job("j", 4, ["n"]), "They wait in a ring.", [cause], waits)


def test_a_ring_is_drawn_as_waiting_for_one_another() -> None:
    drawn = graph.build(ring())
    assert drawn is not None and [b.inward for b in drawn.boxes] == [True]
    assert graph.build(msgspec.structs.replace(ring(), waits=[])) is None


@pytest.mark.parametrize(
    ("kind", "word"), [("wrong_op", "all_gather"), ("wrong_dtype", "dtype"), ("skipped", "")]
)
def test_lanes_show_who_has_not_entered_and_who_differs(kind: str, word: str) -> None:
    case = simulate(kind, CUBE, 3)
    diagnosis = diagnose(capture_of(case.after, case.before, CUBE))
    found, _ = lanes.build(
        diagnosis, {o.rank: o for o in case.after}, GroupNames(case.after, 8, CUBE)
    )
    assert 0 < len(found) <= 8
    cells = [(row.cause, cell) for lane in found for row in lane.rows for cell in row.cells]
    if word:
        assert any(cell.says for _, cell in cells)
    else:
        assert any(cause >= 0 and cell.mark == "not" for cause, cell in cells) or any(
            cell.mark == "not" for _, cell in cells
        )
    for lane in found:
        assert all(len(row.cells) == len(lane.columns) for row in lane.rows)


def test_without_records_the_page_says_why() -> None:
    diagnosis = Diagnosis("unknown", Job("j", 1, []), "?")
    assert "hangdoctor run" in lanes.why_none(diagnosis, "live", 0)
    assert "Flight Recorder" in lanes.why_none(diagnosis, "files", 0)
    assert "inside" in lanes.why_none(diagnosis, "live", 8)


def kept(folder: Path, name: str = "n1") -> tuple[JobCapture, Diagnosis, Path]:
    """A bundle of one rank on a node of that name, with one raw file."""
    capture = JobCapture(
        "j",
        [
            NodeCapture(
                name, ranks=[RankCapture(pid=7, rank=0, node=name)], raw={"7.0.json": "[]\n"}
            )
        ],
        world_size=1,
    )
    diagnosis = diagnose(capture)
    return capture, diagnosis, bundle.save(folder / "kept", capture, diagnosis, "", ["hangdoctor"])


def test_the_same_bundle_gives_the_same_page(tmp_path: Path) -> None:
    made = kept(tmp_path)
    assert as_bytes(*made) == as_bytes(*made)


def test_a_foreign_bundle_cannot_have_other_files_packed(tmp_path: Path) -> None:
    _, _, folder = kept(tmp_path)
    assert raw.pack(folder).names == ["n1/7.0.json"]
    (tmp_path / "secret").write_text("key")
    (folder / "raw" / "n1" / "link").symlink_to(tmp_path / "secret")
    listed = json.loads((folder / "manifest.json").read_text())
    listed["files"] |= dict.fromkeys(
        ("raw/../../secret", "raw/n1/link", "capture.json", str(tmp_path / "secret")), ""
    )
    (folder / "manifest.json").write_text(json.dumps(listed))
    assert raw.pack(folder).names == ["n1/7.0.json"]
    (folder / "raw").rename(tmp_path / "moved")
    (folder / "raw").symlink_to(tmp_path / "moved")
    assert raw.pack(folder).names == []


class Balance(html.parser.HTMLParser):
    """Every element that is opened is closed, in its order; and what stands in attributes."""

    VOID = frozenset({"meta", "input", "br", "img"})

    def __init__(self) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes |= {name for name, _ in attrs}
        if tag not in self.VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag, (tag, self.stack)

    def handle_data(self, data: str) -> None:
        if self.stack[-1:] not in (["script"], ["style"]):
            self.text += data


def test_every_field_may_be_hostile_and_the_markup_stays_whole(tmp_path: Path) -> None:
    parser = Balance()
    parser.feed(as_bytes(*everywhere(tmp_path)).decode())
    assert parser.stack == [] and SHOWN in parser.text and "\u202e" not in parser.text
    assert (
        not {a for a in parser.attributes if a.startswith("on")}
        and "style" not in parser.attributes
    )


def test_calls_of_one_rank_alone_and_of_none(tmp_path: Path) -> None:
    capture, diagnosis, folder = kept(tmp_path)
    assert b'id="calls' not in as_bytes(capture, diagnosis, folder)
    diagnosis.calls = CallsParting(
        "it slept", CallsOf(0, [], ["main (a.py:1)", "<lambda> (a.py:2)"], 31.4)
    )
    text = as_bytes(capture, diagnosis, folder).decode()
    shown = text[text.index('<section id="calls"') : text.index('<section id="waits"')]
    assert (
        "where they differ" not in shown
        and "no further call" in shown
        and "No other traced rank" in shown
    )
    diagnosis.calls.peer = CallsOf(1, ["called b"])
    apart = as_bytes(capture, diagnosis, folder).decode()
    assert "It slept.</div>" in apart[apart.index('<section id="calls"') :], "why not compared"
    assert "Still in, without a call for 31 s" in shown and "&lt;lambda&gt; (a.py:2)" in shown


def test_the_chat_text_is_short_and_says_all(tmp_path: Path) -> None:
    text = chat.text(ring(), JobCapture("j"))
    assert text.startswith("HANG: job j (4 ranks)") and "ring" in text and "confidence 50%" in text
    capture, _, _ = kept(tmp_path)
    assert (
        len(chat.text(Diagnosis("unknown", Job("j" * 10_000, 1, []), "s" * 10_000), capture)) < 1500
    )


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    digits = colour.lstrip("#")
    digits = "".join(c * 2 for c in digits) if len(digits) == 3 else digits
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", [0, 1, 2], ids=["light", "dark by media", "dark by choice"])
def test_text_contrasts_with_its_background(scheme: int) -> None:
    blocks = re.findall(r"\{([^{}]*--paper:[^{}]*)\}", (STATIC / "base.css").read_text())
    assert len(blocks) == 3
    colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]+);", blocks[scheme]))
    pairs = [(f"on-{state}", state) for state in ("cause", "wait", "move", "stop", "gone", "other")]
    pairs += [
        (ink, paper)
        for ink in ("ink", "dim", "link", "cause", "move")
        for paper in ("paper", "card")
    ]
    pairs += [
        ("frame-ink", "frame"),
        ("frame-ink", "frame-lib"),
        ("ink", "cause-soft"),
        ("on-miss", "miss"),
    ]
    for ink, paper in pairs:
        low, high = sorted((luminance(colours[ink]), luminance(colours[paper])))
        assert (high + 0.05) / (low + 0.05) >= 4.5, (ink, paper)
