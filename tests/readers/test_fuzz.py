"""A minute of the fuzzer with fixed seeds, and properties that hold for any input. The hour:
`python -m benchmarks.fuzz`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks import fuzz
from benchmarks.fuzz import READERS, Told
from hangdoctor.errors import BadInput, HangdoctorError, UsageError
from hangdoctor.probe.group_table import members_text
from hangdoctor.readers import (
    flight_recorder_format as fr_format,
)
from hangdoctor.readers import (
    pyspy_frames,
    pyspy_text,
    ras_reader,
    safe_pickle,
)
from hangdoctor.text import ranges

ROOT = Path(__file__).parents[2]
# Of each reader: so that all of them take about a minute on an idle core.
CASES = {
    "folder": 40,
    "bundle": 40,
    "incidents": 60,
    "wire": 40,
    "operations": 40,
    "node_packing": 40,
    "pyspy_text": 60,
    "page": 150,
}


@pytest.mark.parametrize("name", READERS)
def test_spoilt_input_is_refused_or_read(name: str, tmp_path: Path) -> None:
    """In a process of its own with a limit on its memory, as the hour's run."""
    code = f"import sys; from tests.readers.test_fuzz import minute; sys.exit(minute({name!r}, {CASES.get(name, 90)}))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def minute(name: str, cases: int) -> int:
    """In the child: the first cases of seed 0; 1 where one of them is a defect."""
    target, told = READERS[name], Told()
    seeds = target.corpus()
    fuzz.limit_memory()
    for number in range(cases):
        for what in fuzz.judge(target, fuzz.case_of(target, seeds, 0, number), told):
            print(f"case {number} of {name}: {what}")
    return int(bool(told.defects))


def _burn(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


@pytest.mark.parametrize(
    ("read", "what"),
    [
        (lambda data: 1 // 0, "ZeroDivisionError"),
        (lambda data: [bytearray(1 << 20) for _ in range(900)], "MB"),
        (lambda data: _burn(4.0), "more than 2 s"),
    ],
)
def test_the_fuzzer_sees_what_it_looks_for(read: Any, what: str) -> None:
    from benchmarks.fuzz_readers import Target

    def child() -> str:
        return str(fuzz.judge(Target("t", lambda: [b""], read), b"", Told()))

    from tests.support.confined import confined

    assert what in confined(child, megabytes=2000, seconds=60)


def test_a_reader_that_dies_or_never_ends_is_reported_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os
    import time

    from benchmarks.fuzz_readers import Target

    monkeypatch.setattr(fuzz, "_STUCK_S", 0.3)

    def dies(data: bytes) -> None:
        os.kill(os.getpid(), 9)

    def hangs(data: bytes) -> None:
        while True:
            pass

    for read, what in ((dies, "the process ended with -9"), (hangs, "still reading")):
        target = Target("t", lambda: [b"seed"], read)
        told = fuzz.Child(target, tmp_path, 0).run(time.monotonic() + 2, Told())
        assert any(what in defect for defect in told.defects), told
        assert {p.read_bytes() for p in tmp_path.iterdir()} == {b"seed"}


# --------------------------------------------------------------------------- properties

FIXED = settings(
    derandomize=True, max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
NUMBERS = st.one_of(
    st.integers(-3, 12), st.sampled_from([2**31 - 1, 2**31, 2**63 - 1, 2**64, 10**30, 999_999_999])
)
TREES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        NUMBERS,
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=12),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=12), inner, max_size=4)
    ),
    max_leaves=20,
)
RANKS = st.one_of(TREES, st.lists(NUMBERS, max_size=5), st.lists(NUMBERS, max_size=5).map(str))
ENTRY = st.fixed_dictionaries(
    {},
    optional={
        "process_group": TREES,
        "collective_seq_id": TREES,
        "profiling_name": st.one_of(TREES, st.just("nccl:send 0->1")),
        "state": TREES,
        "input_sizes": TREES,
        "output_sizes": TREES,
        "input_dtypes": TREES,
        "frames": TREES,
        "time_created_ns": TREES,
        "p2p_seq_id": TREES,
        "pg_id": TREES,
        "record_id": TREES,
        "thread_id": TREES,
        "retired": TREES,
    },
)
DUMPS = st.fixed_dictionaries(
    {"version": st.sampled_from(["2.10", "2.3", 2]), "entries": st.lists(ENTRY, max_size=4)},
    optional={
        "pg_config": st.dictionaries(
            st.text(max_size=3),
            st.fixed_dictionaries({}, optional={"ranks": RANKS, "desc": TREES}),
            max_size=3,
        ),
        "pg_status": TREES,
    },
)


@FIXED
@given(DUMPS)
def test_any_dump_is_read_or_refused(tree: dict[str, Any]) -> None:
    from hangdoctor.readers.flight_recorder import convert

    try:
        dump = fr_format.parse(json.dumps(tree).encode())
    except BadInput:
        return
    found = convert({0: dump, 2: dump})
    assert 0 < found.world_size <= ranges.MAX_RANKS


@FIXED
@given(TREES)
def test_any_tree_is_no_traceback(tree: Any) -> None:
    """Read, or refused by an error of our own: any other exception fails it."""
    data = json.dumps(tree).encode()
    threads = json.dumps(
        [
            {
                "thread_id": tree,
                "thread_name": tree,
                "frames": [{"name": tree, "filename": "a.py", "line": tree}],
            }
        ]
    )
    row = {
        "hash": tree,
        "size": tree,
        "ranks": [{"rank": tree, "host": tree, "status": tree, "collective_counts": tree}],
        "missing_ranks": tree,
    }
    answer = json.dumps({"nccl_version": tree, "ras": tree, "communicators": [row, tree]}).encode()
    for read, told in (
        (pyspy_frames.parse_json, data),
        (pyspy_frames.parse_json, threads.encode()),
        (ras_reader.parse, answer),
    ):
        try:
            read(told)
        except HangdoctorError:
            continue
    pyspy_text.parse_json_stream(threads, "n1")


@FIXED
@given(
    st.lists(
        st.sampled_from(
            [
                "Process 7: python",
                'Thread 7 (idle): "MainThread"',
                "    f (a.py:3)",
                "Error: x",
                "n1: ",
                "(",
                '"',
                "9" * 60,
                "\u00b2",
            ]
        ),
        max_size=12,
    ),
    st.sampled_from(["\n", " ", ""]),
)
def test_any_lines_are_read(words: list[str], between: str) -> None:
    """None of them raises: what is no stack is left out."""
    pyspy_text.parse_text(between.join(words), "n1")


@FIXED
@given(st.binary(max_size=40), st.integers(0, 200))
def test_any_bytes_in_a_pickle(noise: bytes, at: int) -> None:
    """Read, or refused as bad input: any other exception fails it."""
    import pickle

    whole = pickle.dumps(
        {"version": "2.10", "entries": [{"pg": ("0", "x"), "n": [1, 2]}] * 3}, protocol=2
    )
    for data in (noise, whole[:at] + noise + whole[at:], b"\x80\x02" + noise + b"."):
        try:
            safe_pickle.loads(data)
        except BadInput:
            continue


@FIXED
@given(st.sets(st.integers(0, 5000), max_size=40))
def test_ranks_and_members_come_back(ranks: set[int]) -> None:
    assert ranges.parse_ranks(ranges.format_ranks(ranks)) == sorted(ranks)
    runs = ranges.member_runs(members_text(sorted(ranks)))
    assert runs is not None and sorted(r for run in runs for r in run) == sorted(ranks)


@FIXED
@given(st.lists(st.from_regex(r"[a-z]{1,3}[0-9]{0,20}", fullmatch=True), min_size=1, max_size=8))
def test_hosts_come_back(hosts: list[str]) -> None:
    assert set(ranges.parse_hosts(ranges.format_hosts(hosts))) == set(hosts)


@FIXED
@given(st.text(alphabet="n0123456789[]-,: ", max_size=30))
def test_any_list_is_read_or_refused(text: str) -> None:
    """Any exception but the one that says what is wrong with a list fails it."""
    for parse in (ranges.parse_hosts, ranges.parse_ranks):
        try:
            parse(text)
        except UsageError:
            continue
