"""Texts that were copied from a terminal, which had broken their long lines; and texts whose lines have one width
for other reasons.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

from hangdoctor.readers.job_logs.wrapped_lines import unwrapped
from tests.support.read_logs import diagnosed, logs_of

WIDTH = 90
RAYLET = (
    "(raylet) A worker died or was killed while executing a task by an unexpected system error. Worker ID: 5ed9f46ad3df"
    " Worker IP address: 10.0.1.7 Worker port: 1023 Worker PID: 2072 Worker exit type: SYSTEM_ERROR Worker exit detail: Worker"
    " unexpectedly exits with a connection error code 2. End of file. The worker is crashed unexpectedly. [repeated 2x across cluster]"
)


def broken(*lines: str) -> str:
    rows = [line[at : at + WIDTH] for line in lines for at in range(0, max(len(line), 1), WIDTH)]
    return "\n".join(rows) + "\n"


def test_a_broken_line_is_whole_again_and_later_ones_keep_their_numbers(tmp_path: Path) -> None:
    text = broken("begins", RAYLET, "ends")
    rows = text.split("\n")
    whole = unwrapped(text.encode()).decode().split("\n")
    assert whole[1] == RAYLET and whole.index("ends") == rows.index("ends")
    [cause] = diagnosed(tmp_path, text).causes
    assert "Process 2072 on 10.0.1.7 and 2 more failed alike" in cause.summary


def test_frames_and_errors_of_a_narrow_terminal(tmp_path: Path) -> None:
    path = "/opt/somewhere/with/a/long/name/site-packages/lib/one_more_folder/that_is_deep/a_file"
    lines = ["Traceback (most recent call last):"]
    for number in range(4):
        lines.append(f'  File "{path}_{number}.py", line {number + 7}, in call_of_number_{number}')
        lines.append("    go()")
    text = broken(*lines, "ValueError: the row that was asked for is not there, which is bad")
    [cause] = diagnosed(tmp_path, text).causes
    assert "call_of_number_3 (a_file_3.py:10)" in cause.summary


def test_equal_lines_of_several_processes_stay_apart() -> None:
    line = "the same words are printed by each of the processes when it begins, and they are long enough"
    text = "\n".join([line] * 6 + ["ends", ""]).encode()
    assert unwrapped(text) == text


def test_boxes_rulers_and_bars_stay_as_they_are() -> None:
    box = "\n".join(["│ " + row.ljust(80) + " │" for row in ("a value", "b value", "c value")])
    rulers = "\n".join(["-" * 84, "words", "-" * 84, "more", "-" * 84])
    bars = "\n".join([f" {n}%|" + "█" * 70 + "| 3/9 [00:01" for n in (11, 22, 33)])
    for text in (box, rulers, bars):
        assert unwrapped(text.encode()) == text.encode()


def test_prose_that_an_editor_wrapped_has_no_width() -> None:
    words = " ".join(["some words of a person who writes what was seen"] * 12)
    text = "\n".join(textwrap.wrap(words, 90)).encode()
    assert unwrapped(text) == text


def test_lines_of_ranks_that_are_as_long_stay_apart(tmp_path: Path) -> None:
    rows = [f"[rank{rank}]: RuntimeError: the check of rank {rank} failed: " for rank in range(6)]
    text = "\n".join(row.ljust(79, "x") for row in rows) + "\n"
    (tmp_path / "job.log").write_text(text)
    assert len({f.rank for f in logs_of(tmp_path / "job.log").facts}) == 6


def test_records_that_begin_with_a_host_or_a_file_stay_apart() -> None:
    words = "says the same thing as the others do, which is not short at all and has one length"
    for head in ("n{}-gpu:81{}:9 [1] a: ", "out/of_{}.{}.log:", "node{}{}: "):
        text = "\n".join([head.format(n, n) + words for n in range(5)] + ["", ""]).encode()
        assert unwrapped(text) == text, head


def test_one_error_of_several_ranks_is_not_broken_whatever_follows_it() -> None:
    words = "RuntimeError: Connection closed by peer [10.77.0.{}]:5806. Check the logs of the remote worker before"
    srun = "srun: error: n{}: task {}: Exited with exit code 1"
    rows = [text.format(n, n) for n in range(4) for text in (f"[rank{{}}]: {words}", srun)]
    other = [*rows[:1], *rows[2:3], *(r.replace("srun: error: n", "saved on n") for r in rows[4:])]
    for some in (rows, other):
        text = "\n".join([*some, ""]).encode()
        assert unwrapped(text) == text, some
