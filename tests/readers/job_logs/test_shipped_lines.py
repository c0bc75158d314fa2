"""Logs as shippers keep them: Docker, Kubernetes, journald, Loki, JSON loggers, clouds.

The forms are those of Docker's json-file driver, the container runtime interface, `journalctl -o
short`, `short-iso` and `json`, `logcli`, fluent-bit's Kubernetes filter, Google's and Amazon's
export, python-json-logger and loguru.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from hangdoctor.model.log_facts import TimedOut
from tests.support.read_logs import diagnosed, logs_of, named
from tests.support.written_logs import aborted, caught, failed, table, traceback

DAY = "2026-07-09T17:05:{:02d}.162555850Z"
CRASH = traceback(2, "ValueError: bad sample") + aborted(0) + table(failed(2, 1))
Wrap = Callable[[int, str], str]


def docker(n: int, line: str) -> str:
    return json.dumps({"log": line + "\n", "stream": "stderr", "time": DAY.format(n % 60)})


def container(n: int, line: str) -> str:
    return f"{DAY.format(n % 60)} stderr F {line}"


def journal(n: int, line: str) -> str:
    return f"Jul  9 17:05:{n % 60:02d} gpu-a17 train.sh[8120]: {line}"


def journal_iso(n: int, line: str) -> str:
    return f"2026-07-09T17:05:{n % 60:02d}+0200 gpu-a17 train.sh[8120]: {line}"


def journal_json(n: int, line: str) -> str:
    # journald writes text with control characters as a list of bytes
    message: object = list(f"\x1b[31m{line}\x1b[0m".encode()) if n % 2 else line
    stamp = str(1_783_616_700_000_000 + n * 1_000_000)
    return json.dumps(
        {"__REALTIME_TIMESTAMP": stamp, "_HOSTNAME": "gpu-a17", "MESSAGE": message, "_PID": "8120"}
    )


def loki(n: int, line: str) -> str:
    return f'{DAY.format(n % 60)} {{app="trainer", pod="trainer-worker-0"}} {line}'


def fluent(n: int, line: str) -> str:
    pod = {"pod_name": "trainer-worker-0", "host": "10.0.0.7"}
    return json.dumps(
        {"@timestamp": DAY.format(n % 60), "log": line, "stream": "stderr", "kubernetes": pod}
    )


def google(n: int, line: str) -> str:
    labels = {"labels": {"pod_name": "trainer-worker-0"}, "type": "k8s_container"}
    return json.dumps({"timestamp": DAY.format(n % 60), "textPayload": line, "resource": labels})


def amazon(n: int, line: str) -> str:
    return json.dumps({"timestamp": 1_783_616_700_000 + n * 1000, "message": line})


FORMS = [docker, container, journal, journal_iso, journal_json, loki, fluent, google, amazon]


def shipped(wrap: Wrap, text: str) -> str:
    """A job's text as a shipper keeps it, after some lines of the job's own."""
    before = [f"step {n} | loss 2.1" for n in range(4)]
    lines = [*before, *text.splitlines()]
    return "".join(f"{wrap(n, line)}\n" for n, line in enumerate(lines))


@pytest.mark.parametrize("wrap", FORMS)
def test_a_shipped_log_is_judged_like_the_log_itself(tmp_path: Path, wrap: Wrap) -> None:
    verdict = diagnosed(tmp_path, shipped(wrap, CRASH))
    assert named(verdict) == [("error", [2])]
    assert "ValueError in load_batch (data.py:40)" in verdict.summary


@pytest.mark.parametrize("wrap", FORMS)
def test_the_moment_is_the_shippers(tmp_path: Path, wrap: Wrap) -> None:
    (tmp_path / "a.log").write_text(shipped(wrap, "ValueError: no batch\nOSError: full\n"))
    first, second = [f.at for f in logs_of(tmp_path / "a.log").facts if f.line > 4]
    assert 0.9 < second - first < 1.1


@pytest.mark.parametrize("wrap", [journal, journal_json, loki, fluent, google])
def test_the_node_or_pod_is_the_shippers(tmp_path: Path, wrap: Wrap) -> None:
    line = "NVRM: Xid (PCI:0000:3b:00): 79, pid=812, GPU has fallen off the bus."
    verdict = diagnosed(tmp_path, shipped(wrap, line))
    node = "gpu-a17" if wrap in (journal, journal_json) else "trainer-worker-0"
    assert [c.nodes for c in verdict.causes] == [[node]]


def test_a_line_that_the_container_runtime_cut(tmp_path: Path) -> None:
    line = caught(3).rstrip("\n")
    parts = [("P", line[:120]), ("P", line[120:160]), ("F", line[160:])]
    text = "".join(f"{DAY.format(n)} stderr {tag} {part}\n" for n, (tag, part) in enumerate(parts))
    (tmp_path / "a.log").write_text(text)
    waits = [f for f in logs_of(tmp_path / "a.log").facts if isinstance(f, TimedOut)]
    assert [(wait.rank, wait.seq) for wait in waits] == [(3, 81)]


def test_a_line_that_docker_cut(tmp_path: Path) -> None:
    line = caught(3)
    parts = [{"log": p, "stream": "stderr"} for p in (line[:120], line[120:160], line[160:])]
    (tmp_path / "a.log").write_text("".join(json.dumps(part) + "\n" for part in parts))
    waits = [f for f in logs_of(tmp_path / "a.log").facts if isinstance(f, TimedOut)]
    assert [(wait.rank, wait.seq) for wait in waits] == [(3, 81)]


def test_a_whole_traceback_in_one_record(tmp_path: Path) -> None:
    text = "".join(line.partition(": ")[2] + "\n" for line in CRASH.splitlines()[:6])
    record = {"asctime": "2026-07-09 17:05:01,001", "levelname": "ERROR", "rank": 5}
    spoken = {"asctime": "2026-07-09 17:05:00,001", "levelname": "INFO", "rank": 0}
    lines = [
        json.dumps(spoken | {"message": "step 4"}),
        json.dumps(record | {"message": "training failed", "exc_info": text}),
    ]
    verdict = diagnosed(tmp_path, "\n".join(lines) + "\n")
    assert named(verdict) == [("error", [5])]
    assert "ValueError in load_batch (data.py:40)" in verdict.summary


def test_a_record_that_holds_the_text_of_a_logger(tmp_path: Path) -> None:
    inner = {"elapsed": {"repr": "0:00:01"}, "level": {"name": "ERROR"}}
    text = "".join(line.partition(": ")[2] + "\n" for line in CRASH.splitlines()[:6])
    line = json.dumps({"text": "12:00 | ERROR | failed\n" + text, "record": inner})
    (tmp_path / "a.log").write_text(line + "\n")
    assert [f.line for f in logs_of(tmp_path / "a.log").facts] == [1]


def test_json_that_the_job_prints_among_other_lines_is_left_alone(tmp_path: Path) -> None:
    text = '{"loss": 2.1, "message": "fine"}\n' + CRASH
    assert named(diagnosed(tmp_path, text)) == [("error", [2])]


@pytest.mark.parametrize(
    "line",
    [
        '{"log": 3, "message": null}',
        '{"message": [1, "x"]}',
        '{"message": []}',
        '{"log": {"log": {"log": {"log": {"log": "deep"}}}}}',
        '{"message": "x", "time": "17 o\'clock", "rank": -4}',
        '{"message": "x", "time": "999999999999999999999999999999999999999", "rank": "1e9"}',
        '{"message": "x", "time": true, "rank": true, "kubernetes": 7}',
        "{" * 5000 + "}" * 5000,
        '{"message": "' + "\\u0000" * 50 + '"}',
    ],
)
def test_odd_records_do_no_harm(tmp_path: Path, line: str) -> None:
    crash = "\n".join(docker(n, text) for n, text in enumerate(CRASH.splitlines()))
    verdict = diagnosed(tmp_path, f"{line}\n{crash}\n{line}\n")
    assert named(verdict) == [("error", [2])]
