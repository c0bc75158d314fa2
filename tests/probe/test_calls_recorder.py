"""The recorder of Python calls: what it writes, in C and in pure Python alike, and what it leaves
behind: nothing.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hangdoctor.errors import BadInput
from hangdoctor.probe.calls import format as fmt
from hangdoctor.probe.calls import hooks
from hangdoctor.readers.calls import CallsReader, read_calls

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(__file__).parent / "scripts" / "calls_alone.py"
BUILT = hooks.extension() is not None
VARIANTS = [
    pytest.param(
        False,
        marks=pytest.mark.skipif(
            not BUILT, reason="no C extension: it needs gcc, libc6-dev and python3-dev"
        ),
    ),
    True,
]
both = pytest.mark.parametrize("pure", VARIANTS, ids=["extension", "python"])


def environment(pure: bool) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "HANGDOCTOR_CALLS_PURE": str(int(pure))}


def alone(what: str, folder: Path, pure: bool, *more: str) -> Any:
    """The script's answer."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), what, str(folder), *more],
        env=environment(pure),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    return json.loads(done.stdout)


def calls(said: dict[str, Any]) -> list[str]:
    """`> outer`, `< outer`, `! outer`; of other threads with their name."""
    signs = {"call": ">", "return": "<", "exception": "!", "open": "=", "begin": "-"}
    return [
        f"{signs[kind]} {name.rpartition('.')[2]}"
        + (f" in {thread}" if thread != "MainThread" else "")
        for kind, name, thread in said["events"]
    ]


SCENARIO = """- ? | = <module> | = main | = play_scenario | > scenario
> inner | > fails | ! fails | < inner
> through | > outer | > inner | > fails | ! fails | < inner | < outer | > fails | ! fails | ! through
> numbers | < numbers | > numbers | < numbers | > numbers | > closed | < closed | < numbers
> numbers | < numbers | > numbers | > closed | < closed | ! numbers
> delegating | > numbers | < numbers | < delegating | > delegating | > numbers | < numbers | < delegating
> delegating | > numbers | > closed | < closed | < numbers | < delegating
> method | > <lambda> | < <lambda> | > <lambda> | < <lambda> | < method
> later | > sooner | < sooner | < later | > later | < later
> <module> | > closed | < closed | < <module>
> in_thread in worker | > outer in worker | > inner in worker | > fails in worker
< fails in worker | < inner in worker | < outer in worker | < in_thread in worker | < scenario"""


@both
def test_calls_returns_exceptions_generators_coroutines_and_threads(
    tmp_path: Path, pure: bool
) -> None:
    said = alone("scenario", tmp_path, pure)
    assert (said["python"], said["state"], said["torn"], said["note"]) == (pure, "stopped", 0, "")
    wanted = [w.strip() for line in SCENARIO.splitlines() for w in line.split("|")]
    assert calls(said) == wanted
    lines = SCRIPT.read_text().splitlines()
    assert (
        "def fails(" in lines[said["lines"]["fails"] - 1]
        and "def through(" in lines[said["lines"]["through"] - 1]
    )
    assert not any(said["installed"]), "after the stop nothing is left in the interpreter"


@both
def test_the_choice_can_be_changed_and_waits_for_its_iteration(tmp_path: Path, pure: bool) -> None:
    said = alone("switch", tmp_path, pure)
    one = ["> outer", "> inner", "> fails", "< fails", "< inner", "< outer"]
    seen = calls(said)
    json_part = seen[seen.index("> loads") : seen.index("< loads") + 1]
    assert "> raw_decode" in json_part and not set(one) & set(json_part)
    assert (
        seen == ["- ?", "- ?", *json_part, "- ?", "= <module>", "= main", "= play_switch", *one]
        and said["state"] == "stopped"
    )


@both
def test_a_forked_child_writes_nothing(tmp_path: Path, pure: bool) -> None:
    said = alone("fork", tmp_path, pure)
    one = ["> outer", "> inner", "> fails", "< fails", "< inner", "< outer"]
    assert said["child"] == 0 and calls(said) == [
        "- ?",
        "= <module>",
        "= main",
        "= play_fork",
        *one,
        *one,
    ]


@both
def test_another_thread_switches_it_while_the_main_one_works(tmp_path: Path, pure: bool) -> None:
    said = alone("background", tmp_path, pure)
    seen = calls(said)
    assert said["on"] and not any(said["installed"]) and said["state"] == "stopped"
    assert [c for c in seen if c.startswith("=")][:3] == [
        "= <module>",
        "= main",
        "= play_background",
    ]
    assert seen.count("> leaf") > 300


@pytest.mark.skipif(
    not BUILT and sys.version_info < (3, 12), reason="the pure writer cannot reach such threads"
)
def test_threads_that_c_made_are_seen_like_autograds(tmp_path: Path) -> None:
    said = alone("native", tmp_path, pure=False)
    seen = [c.partition(" in ") for c in calls(said)]
    of_native = [name for name, _, thread in seen if thread and "run" not in name]
    assert of_native == ["> outer", "> inner", "> fails", "< fails", "< inner", "< outer"]
    assert not any(said["installed"])


@both
def test_a_profiler_of_the_job_is_left_alone(tmp_path: Path, pure: bool) -> None:
    said = alone("others", tmp_path, pure)
    assert ("another profiler" in said["note"]) == (sys.version_info < (3, 12))
    assert said["kept"] and said["seen"] == ["call", "return"] and not any(said["installed"])
    assert "> outer in worker" in calls(said), "the other threads are traced"
    assert ("> leaf" in calls(said)) == (sys.version_info >= (3, 12))


@both
def test_an_internal_error_switches_it_off_and_is_noted_once(tmp_path: Path, pure: bool) -> None:
    said = alone("broken", tmp_path, pure)
    assert said["state"] == "switched_off" and "NameError" in said["note"] and said["result"] == 1
    assert not any(said["installed"]) and calls(said) == ["- ?"]


@both
def test_an_exception_of_the_jobs_signal_handler_is_the_jobs(tmp_path: Path, pure: bool) -> None:
    assert alone("foreign", tmp_path, pure) == ["the job's own", False]


@both
def test_tables_have_bounds(tmp_path: Path, pure: bool) -> None:
    codes = alone("codes", tmp_path, pure)
    names = [name for kind, name, _ in codes["events"] if kind == "call"]
    assert names.count("same") == 3000 and len({n for n in names if n.startswith("place_")}) > 1500
    assert names[-1] == "?", "a full table gives no name, and goes on"
    threads = alone("threads", tmp_path, pure)
    ended = [t for _, _, t in threads["events"]]
    assert (
        ended[-6:] == ["MainThread"] * 6
        and ended.count("brief") > 2000
        and "a thread that ended" in ended
    )


@both
def test_ten_million_events_in_constant_memory(tmp_path: Path, pure: bool) -> None:
    rounds = 200_000 if pure else 5_000_000  # two events each
    said = alone("soak", tmp_path, pure, str(rounds))
    assert said["written"] > 2 * rounds and said["torn"] == 0 and said["bytes"] == 1 << 20
    assert said["grown_kb"] < 1024
    assert [e[:2] for e in said["events"][-1:]] == [["return", "resident_kb"]]


@both
def test_killed_while_writing_the_last_calls_are_whole(tmp_path: Path, pure: bool) -> None:
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), "write", str(tmp_path)],
        env=environment(pure),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        path = Path(process.stdout.readline().strip())
        with CallsReader(path) as reader:
            rounds = 0
            while rounds < 6 or reader.written() < 2 * reader.capacity:
                _check(reader.read(), pure)  # while it is written to, also over the ring's end
                rounds += 1
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=20)
    trace = read_calls(path)
    _check(trace, pure)
    assert len(trace.events) > trace.capacity - 64


def _check(trace: Any, pure: bool) -> None:
    """Only what can have happened, in its order."""
    assert trace.torn <= (2 if pure else 0)
    names = {trace.functions[e.function].name for e in trace.events}
    assert names <= {"?", "<module>", "main", "play_write", "many", "leaf"}, names
    times = [e.at_ns for e in trace.events]
    assert times == sorted(times)
    leaves = [e.kind for e in trace.events if trace.functions[e.function].name == "leaf"]
    assert all(a != b for a, b in itertools.pairwise(leaves)), "calls and returns take turns"


def test_what_is_no_file_of_calls_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.calls"
    with pytest.raises(FileNotFoundError):
        read_calls(path)
    path.write_bytes(b"")
    with pytest.raises(BadInput, match="not a file of Python calls"):
        read_calls(path)
    good = _file(tmp_path)
    data = good.read_bytes()
    path.write_bytes(data[:-4096])
    with pytest.raises(BadInput, match="truncated"):
        read_calls(path)
    path.write_bytes(data[:8] + struct.pack("<I", 9) + data[12:])
    with pytest.raises(BadInput, match="another version"):
        read_calls(path)


def test_damaged_records_are_left_out(tmp_path: Path) -> None:
    path = _file(tmp_path)
    assert [e.kind for e in read_calls(path).events] == ["call", "return", "call"]
    ring = fmt.regions(1 << 20)["ring"][0]
    with path.open("r+b") as file:
        file.seek(ring + fmt.EVENT_BYTES + 15)  # the second one's lap
        file.write(b"\x07")
    damaged = read_calls(path)
    assert [e.kind for e in damaged.events] == ["call", "call"] and damaged.torn == 1


def _file(folder: Path) -> Path:
    """Three events of one function."""
    from hangdoctor.probe.calls.ring import Ring

    ring = Ring(folder / "host-1.blackbox", 1 << 20, 3, 8)
    code, thread = ring.code_id("/app/train.py", "step", 7, "train"), ring.thread(77, "trainer")
    for kind in (fmt.CALL, fmt.RETURN, fmt.CALL):
        ring.put(code, thread, kind)
    trace = read_calls(ring.path)
    assert (trace.rank, str(trace.functions[0]), trace.threads[0].tid) == (
        3,
        "step (/app/train.py:7)",
        77,
    )
    return ring.path
