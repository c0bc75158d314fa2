"""Files whose names say that one stack stands for several processes: none of them is called a rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangdoctor.diagnosis import diagnose
from hangdoctor.model.diagnosis import Diagnosis
from hangdoctor.readers.group_names import _many
from hangdoctor.readers.offline import read

TAIL = "    fit (lib/loop.py:{})\n    <module> (go.py:12)\n"
WAITS = (
    'Thread 7001 (active): "MainThread"\n    broadcast (torch/distributed/distributed_c10d.py:1191)\n'
    "    share (lib/parts.py:44)\n" + TAIL.format(60)
)
PAST = 'Thread 7002 (active): "MainThread"\n' + TAIL.format(75)
BEFORE = 'Thread 7002 (active): "MainThread"\n    read (lib/data.py:8)\n' + TAIL.format(31)


def judged(folder: Path, texts: dict[str, str]) -> Diagnosis:
    for name, text in texts.items():
        (folder / name).write_text(text)
    return diagnose(read([folder / name for name in texts]))


@pytest.mark.parametrize(
    ("stem", "many"),
    [
        ("five_processes", 5),
        ("3-ranks", 3),
        ("stacks_of_12_procs", 12),
        ("two_other_workers", 2),
        ("other_ranks", 1),
        ("one_process", 0),
        ("1_rank", 0),
        ("rank3", 0),
        ("processes", 0),
        ("node2_ranks", 0),
        ("v2ranks", 0),
    ],
)
def test_how_many_a_name_speaks_of(stem: str, many: int) -> None:
    assert _many(stem) == many


def test_who_is_past_the_call_of_the_others_is_not_accused(tmp_path: Path) -> None:
    said = judged(tmp_path, {"five_processes.txt": PAST, "three_processes.txt": WAITS})
    assert (said.status, said.causes, said.job.nodes) == ("unknown", [], [])
    assert (
        "a group of 5 processes (five_processes.txt) is in fit (loop.py:75), past" in said.summary
    )
    assert "rank 0" not in said.summary and "7002" not in said.summary


def test_who_is_before_it_has_not_come(tmp_path: Path) -> None:
    said = judged(tmp_path, {"two_processes.txt": BEFORE, "six_processes.txt": WAITS})
    [cause] = said.causes
    assert (said.status, cause.kind, cause.ranks) == ("hang", "not_entered", [])
    assert "A group of 2 processes (two_processes.txt)" in cause.summary


def test_more_of_them_than_wait_are_not_named(tmp_path: Path) -> None:
    said = judged(tmp_path, {"six_processes.txt": BEFORE, "two_processes.txt": WAITS})
    assert said.status == "unknown" and said.causes == []


def test_files_of_one_process_each_go_on_as_before(tmp_path: Path) -> None:
    said = judged(tmp_path, {"rank0.txt": WAITS, "rank1.txt": BEFORE})
    assert [cause.ranks for cause in said.causes] == [[1]]
