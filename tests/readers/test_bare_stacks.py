"""Stacks of py-spy as people paste them: without the line of the thread, below headings of their own."""

from __future__ import annotations

from pathlib import Path

from hangdoctor.diagnosis import diagnose
from hangdoctor.model.diagnosis import Diagnosis
from hangdoctor.readers import bare_stacks
from hangdoctor.readers.offline import read

WAITS = """\
broadcast (torch/distributed/distributed_c10d.py:2437)
share (serving/state.py:58)
step (serving/engine.py:135)
loop (serving/engine.py:22)
"""
SAVES = """\
write_shard (serving/save.py:90)
step (serving/engine.py:101)
loop (serving/engine.py:22)
"""
LATER = """\
tokens (serving/engine.py:150)
step (serving/engine.py:140)
loop (serving/engine.py:22)
"""


def threaded(text: str, pid: int) -> str:
    frames = "".join(f"    {line}\n" for line in text.splitlines())
    return f'Thread {pid} (active): "MainThread"\n{frames}'


def judged(folder: Path, text: str) -> Diagnosis:
    (folder / "stacks.txt").write_text(text)
    return diagnose(read([folder / "stacks.txt"]))


def test_frames_alone_are_the_stack_of_one_process(tmp_path: Path) -> None:
    said = judged(tmp_path, WAITS)
    assert (said.status, said.causes, said.job.world_size) == ("unknown", [], 0)
    assert "waits in broadcast in share (state.py:58)" in said.summary


def test_headings_with_ranks_above_frames_alone(tmp_path: Path) -> None:
    said = judged(tmp_path, f"rank 0-2:\n{WAITS}\nrank 3:\n{SAVES}")
    [cause] = said.causes
    assert (cause.kind, cause.ranks, said.job.world_size) == ("not_entered", [3], 4)


def test_a_heading_of_several_ranks_above_one_thread(tmp_path: Path) -> None:
    said = judged(tmp_path, f"ranks 0-2:\n\n{threaded(WAITS, 71)}\nrank 3:\n{threaded(SAVES, 74)}")
    assert [cause.ranks for cause in said.causes] == [[3]]


def test_a_heading_with_a_number_of_processes_names_no_rank(tmp_path: Path) -> None:
    text = (
        f"6 processes are in:\n\n{threaded(LATER, 71)}2 processes are in:\n\n{threaded(WAITS, 77)}"
    )
    said = judged(tmp_path, text)
    assert (said.status, said.causes, said.ranks) == ("unknown", [], [])
    assert (
        "a group of 6 processes" in said.summary and "past the call of the others" in said.summary
    )


def test_few_that_are_elsewhere_are_named_by_their_number(tmp_path: Path) -> None:
    text = f"7 processes wait in:\n{WAITS}\n1 process is in:\n{SAVES}"
    said = judged(tmp_path, text)
    [cause] = said.causes
    assert (cause.kind, cause.ranks) == ("not_entered", [])
    assert said.summary.startswith("One process has not reached broadcast")
    many = judged(tmp_path, text.replace("1 process is", "9 processes are"))
    assert many.causes == []


def test_other_texts_are_no_bare_stacks() -> None:
    prose = "It stops in step (serving/engine.py:135)\nand I do not know why.\n"
    assert bare_stacks.read(prose) == []
    assert bare_stacks.read(WAITS + prose * 3) == []
    assert bare_stacks.read("a (x.c:1)\nb (x.c:2)\nc (x.c:3)\n") == []


def test_files_are_named_by_their_ranks(tmp_path: Path) -> None:
    for rank, (stack, pid) in enumerate([(WAITS, 9000), (WAITS, 400), (SAVES, 80)]):
        (tmp_path / f"rank{rank}.txt").write_text(threaded(stack, pid))
    said = diagnose(read(sorted(tmp_path.iterdir())))
    [cause] = said.causes
    assert (cause.ranks, said.job.world_size) == ([2], 3), "not by their process ids"


def test_one_file_of_one_rank_shows_no_size(tmp_path: Path) -> None:
    (tmp_path / "rank2.txt").write_text(threaded(WAITS, 9000))
    said = diagnose(read([tmp_path / "rank2.txt"]))
    assert (said.causes, said.job.world_size) == ([], 0)
