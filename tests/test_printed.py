"""Nothing that a job calls itself steers a terminal or forges a line, on whichever way it gets out."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from hangdoctor.diagnosis import diagnose
from hangdoctor.model.capture import JobCapture
from hangdoctor.model.diagnosis import Diagnosis
from hangdoctor.model.log_facts import Ended
from hangdoctor.preflight import terminal_findings as preflight
from hangdoctor.preflight.compare import Preflight
from hangdoctor.report import html, terminal_report
from hangdoctor.storage import bundle
from hangdoctor.text.plain import tame, visible
from hangdoctor.text.printable import as_json, cleaned
from hangdoctor.timeline import folded as stacks
from hangdoctor.timeline import late_table as table
from hangdoctor.timeline import pftrace
from hangdoctor.timeline.late_arrivals import LateArrivals
from hangdoctor.top.feeds import LiveRanks
from hangdoctor.top.screen import Mode, plain, screen
from hangdoctor.watch.live_ranks import RankRow
from tests.support.hostile_fields import ESCAPES, EVIL, FORBIDDEN, LINES, TURNED, filled, texts_of

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
SHOWN = "owned"


def assert_tame(text: str, colours: bool = False) -> None:
    assert SHOWN in text  # the hostile texts did get here
    if colours:
        text = _COLOUR.sub("", text)
    assert [hex(ord(c)) for c in FORBIDDEN if c in text] == []
    assert "\nok all ranks are healthy" not in text


def hangdoctor(*words: str, cwd: Path, code: int | None = 0) -> str:
    """Standard output and standard error together, with every byte as it came."""
    done = subprocess.run(
        [sys.executable, "-m", "hangdoctor", *words], cwd=cwd, capture_output=True, timeout=90
    )
    assert code in (None, done.returncode), done.stderr
    return done.stdout.decode() + done.stderr.decode()


def assert_json(data: bytes, colours: bool = False) -> None:
    assert_tame(data.decode())
    json.loads(data)


# ------------------------------------------------------------------- the two cleaners


def test_one_line() -> None:
    assert visible("all_reduce #12 (train.py:7) ─ 41 µs") == "all_reduce #12 (train.py:7) ─ 41 µs"
    assert visible("a\tb\x1b[2J\n\u202e") == "a\\u{9}b\\u{1b}[2J\\u{a}\\u{202e}"
    for text in (EVIL, ESCAPES, LINES, TURNED):
        assert not set(FORBIDDEN) & set(visible(text)) and "\n" not in visible(text)


def test_a_whole_text_keeps_lines_tabs_and_colours() -> None:
    assert tame("\x1b[1;31mHANG\x1b[0m\tx\n") == "\x1b[1;31mHANG\x1b[0m\tx\n"
    assert tame("\x1b]0;t\x07\x1b[2J\r\x9b1m") == "\\u{1b}]0;t\\u{7}\\u{1b}[2J\\u{d}\\u{9b}1m"


@pytest.mark.parametrize("kind", [Diagnosis, JobCapture, Preflight, LateArrivals, LiveRanks])
def test_no_field_is_left_out(kind: type[Any]) -> None:
    before = filled(kind)
    after = msgspec.json.encode(cleaned(before)).decode()
    assert after.count(SHOWN) == texts_of(kind) > 5
    assert_tame(json.dumps(json.loads(after), ensure_ascii=False))


# ------------------------------------------------------------------- every way out


def hostile_capture(folder: Path) -> tuple[JobCapture, Path]:
    """(capture, its bundle): a job with hostile names everywhere, whose ranks can be diagnosed all
    the same.
    """
    capture = filled(JobCapture)
    capture.packed = {}  # packed nodes are read back, and these would be none
    capture.schema, capture.origin, capture.world_size = JobCapture("").schema, "live", 2
    node, rank = capture.nodes[0], capture.nodes[0].ranks[0]
    rank.world_size = 2
    assert node.ended is not None
    node.ended.facts = [filled(Ended)]  # of all facts, those that a node may tell
    histories = (rank.ops, rank.ops_before, rank.recorded, rank.recorded_before)
    for holder in (capture, node, *histories):
        holder.layout = None  # numbers alone, and zeros are no layout
    return capture, bundle.save(
        folder / "kept", capture, filled(Diagnosis), "", ["hangdoctor", EVIL]
    )


def test_reports() -> None:
    diagnosis = filled(Diagnosis)
    assert_tame(terminal_report.plain(diagnosis, EVIL))
    out = io.StringIO()
    terminal_report.render(
        diagnosis, Console(file=out, force_terminal=True, color_system="256", width=160), EVIL
    )
    assert_tame(out.getvalue(), colours=True)
    out = io.StringIO()
    preflight.render(filled(Preflight), Console(file=out, width=200))
    assert_tame(out.getvalue())
    out = io.StringIO()
    table.render(filled(LateArrivals), Console(file=out, width=200))
    assert_tame(out.getvalue())


@pytest.mark.parametrize("kind", [Diagnosis, JobCapture, Preflight, LateArrivals, LiveRanks])
def test_json_is_the_same_data_and_tame(kind: type[Any]) -> None:
    value = filled(kind)
    data = as_json(value)
    assert_json(data)
    assert msgspec.json.decode(data) == msgspec.json.decode(msgspec.json.encode(value))


def test_json_of_characters_beyond_the_first_plane() -> None:
    data = as_json(["\U000e0001 \U0001f600 \x7f é"])
    assert json.loads(data) == ["\U000e0001 \U0001f600 \x7f é"]
    assert "\\udb40\\udc01" in data.decode() and "\U0001f600" in data.decode()


def test_files_of_a_report(tmp_path: Path) -> None:
    capture, folder = hostile_capture(tmp_path)
    diagnosis = diagnose(capture)
    for write in (
        terminal_report.as_bytes,
        stacks.folded,
        stacks.folded_by_rank,
        stacks.speedscope,
        bundle.as_bytes,
    ):
        assert_tame(write(capture, diagnosis, folder).decode())
    page = html.as_bytes(capture, diagnosis, folder).decode()
    assert [hex(ord(c)) for c in FORBIDDEN if c in page] == []
    assert len(stacks.folded(capture, diagnosis, folder).splitlines()) == 1


def test_a_trace_for_perfetto(tmp_path: Path) -> None:
    from google.protobuf.json_format import MessageToDict
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    capture, folder = hostile_capture(tmp_path)
    trace = Trace.FromString(pftrace.as_bytes(capture, filled(Diagnosis), folder))
    told = MessageToDict(trace)
    for packet in told["packet"]:  # JSON of bytes is base64: these are texts too
        for text in packet.get("internedData", {}).get("debugAnnotationStringValues", []):
            text["str"] = __import__("base64").b64decode(text["str"]).decode()
    assert_tame(json.dumps(told, ensure_ascii=False))


def test_the_live_view() -> None:
    seen = filled(LiveRanks)
    mode = Mode(note=EVIL, filter="")
    assert_tame("\n".join(line.plain for line in screen(seen, "", mode, 400, 40)))
    assert_tame(
        "\n".join(
            line.plain for line in screen(seen, EVIL, Mode(view="detail", detail=[EVIL]), 400, 40)
        )
    )
    assert_tame("\n".join(plain(seen)))


def test_metrics() -> None:
    from prometheus_client import CollectorRegistry, generate_latest

    from hangdoctor.web.metrics import _ranks

    class Some:
        def collect(self) -> Any:
            return _ranks([msgspec.structs.replace(filled(RankRow), state="waiting")])

    registry = CollectorRegistry()
    registry.register(Some())  # type: ignore[arg-type]
    text = generate_latest(registry).decode()
    assert_tame(text)
    assert len(re.findall(r"^hangdoctor_rank_iteration\{", text, re.M)) == 1


def test_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    code = (
        "import logging, sys; from hangdoctor.logs import to_stderr; to_stderr('%(message)s')\n"
        "logging.getLogger('x').warning('node %s', sys.argv[1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, EVIL.replace("\x00", "")],
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert_tame(done.stderr.decode())
    assert done.stderr.count(b"\n") == 1


def test_incidents(tmp_path: Path) -> None:
    from hangdoctor.storage.incidents import Incidents

    capture, _ = hostile_capture(tmp_path)
    kept = Incidents(tmp_path / "job")
    row = kept.save(capture, msgspec.structs.replace(filled(Diagnosis), status="hang"), "", EVIL)
    kept.note_actions(row.id, EVIL)
    for words in (["list"], ["list", "--json"], ["show", "last"]):
        assert_tame(
            hangdoctor("incidents", "--folder", str(tmp_path / "job"), *words, cwd=tmp_path)
        )


# ------------------------------------------------------------------- the program itself


@pytest.mark.parametrize("words", [[], ["--json", "-"], ["--quiet"], ["--no-color"]])
def test_diagnosing_a_hostile_bundle(tmp_path: Path, words: list[str]) -> None:
    _, folder = hostile_capture(tmp_path)
    assert_tame(hangdoctor("diagnose", str(folder), *words, cwd=tmp_path) + SHOWN)


def test_errors_name_hostile_files(tmp_path: Path) -> None:
    name = EVIL.replace("\x00", "").replace("/", "")
    for words in (
        ["diagnose", name],
        ["dump", "--hostfile", name],
        ["dump", "--jobid", name],
        ["dump", f"--{name}"],
    ):
        assert_tame(hangdoctor(*words, cwd=tmp_path, code=None))


def test_a_rank_with_hostile_words_around_it(tmp_path: Path) -> None:
    """A process whose arguments, port and names are hostile, seen by --local: terminal, stderr,
    report.txt and bundle.
    """
    evil = EVIL.replace("\x00", "")
    program = "import sys, time; print('up', flush=True); time.sleep(600)"
    environ = os.environ | {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": evil,
        "MASTER_PORT": evil,
        "CUDA_VISIBLE_DEVICES": evil,
    }
    with subprocess.Popen(
        [sys.executable, "-c", program, evil], env=environ, stdout=subprocess.PIPE
    ) as rank:
        try:
            assert rank.stdout is not None and rank.stdout.readline() == b"up\n"
            words = ["dump", "--pid", str(rank.pid), "--settle", "0", "--bundle", "kept"]
            done = hangdoctor(*words, cwd=tmp_path)
            local = hangdoctor(
                "dump",
                "--local",
                "--job",
                "owned",
                "--settle",
                "0",
                "--bundle",
                "local",
                cwd=tmp_path,
            )
        finally:
            rank.kill()
    assert_tame(done + SHOWN)
    assert_tame(local)
    for folder in ("kept", "local"):
        assert_tame((tmp_path / folder / "report.txt").read_text() + SHOWN)
        assert_tame((tmp_path / folder / "diagnosis.json").read_text() + SHOWN)


def test_all_printing_goes_one_way() -> None:
    """What is printed by hand is cleaned by hand, and forgotten once: only `cli.pipes` prints."""
    root = Path(bundle.__file__).parents[1]
    found = [
        f"{path.relative_to(root)}: {line.strip()}"
        for path in sorted(root.rglob("*.py"))
        for line in path.read_text().splitlines()
        if re.search(
            r"click\.(s?echo|secho)\(|(?<![\w.\"'(])print\(|sys\.std(out|err)\.write\(", line
        )
        and path.name not in ("pipes.py", "sitecustomize.py")
    ]
    assert found == []
    assert logging.getLogger().handlers is not None


def test_numbers_do_not_vouch_for_the_text_beside_them() -> None:
    numbers = [1, 2.0, True]
    assert cleaned(numbers) is numbers, "of a million ranks no copy is made"
    assert cleaned([*numbers, "a\x1b[2J"]) == [*numbers, "a\\u{1b}[2J"]
    assert cleaned({"a\x1b": ({"b\x1b"},)}) == {"a\\u{1b}": ({"b\\u{1b}"},)}


def test_json_is_indented_by_one() -> None:
    assert as_json({"a": [1]}) == b'{\n "a": [\n  1\n ]\n}\n'
