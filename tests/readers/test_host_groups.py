"""Stacks of many hosts in one file: under a header for each group of hosts that printed the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangdoctor.cli.diagnose import load
from hangdoctor.diagnosis import diagnose
from hangdoctor.readers.host_groups import parts

WAITS = """Process 812: python train.py
Thread 812 (idle): "MainThread"
    wait (torch/distributed/distributed_c10d.py:100)
    all_reduce (torch/distributed/distributed_c10d.py:2806)
    step (train.py:31)
    <module> (train.py:41)

"""
WORKS = """Process 813: python train.py
Thread 813 (active): "MainThread"
    load_batch (data.py:9)
    step (train.py:30)
    <module> (train.py:41)

"""
RULE = "-" * 15 + "\n"
HEADERS = {
    "clush": ("---- n[1-3] ----\n", "---- n4 ----\n"),
    "clush -b": (f"{RULE}n[1-3] (3)\n{RULE}", f"{RULE}n4\n{RULE}"),
    "tail": ("", "==> trace-n4.out <==\n"),
    "ansible": ("", "n4 | CHANGED | rc=0 >>\n"),
}


@pytest.mark.parametrize("header", list(HEADERS))
def test_the_rank_that_is_elsewhere_and_its_host(tmp_path: Path, header: str) -> None:
    group, last = HEADERS[header]
    each = (last.replace("n4", f"n{n}") for n in (1, 2, 3))
    waiting = group + WAITS if group else "".join(own + WAITS for own in each)
    (tmp_path / "all.txt").write_text(waiting + last + WORKS)
    verdict = diagnose(load([tmp_path / "all.txt"]))
    assert sorted(verdict.job.nodes) == ["n1", "n2", "n3", "n4"]
    assert [(c.ranks, c.nodes) for c in verdict.causes] == [([3], ["n4"])]


def test_gdb_of_several_hosts_under_headers(tmp_path: Path) -> None:
    gdb = "Thread 1 (Thread 0x7f (LWP {})):\n#0  0x00007f in {} () from /lib/x.so\n"
    text = f"---- n[1-2] ----\n{gdb.format(81, 'poll')}\n---- n3 ----\n{gdb.format(82, 'read')}\n"
    (tmp_path / "gdb.txt").write_text(text)
    capture = load([tmp_path / "gdb.txt"])
    assert [(r.node, r.pid) for r in capture.ranks()] == [("n1", 81), ("n2", 81), ("n3", 82)]


@pytest.mark.parametrize(
    "text", ["---- stacks ----\ntext\n", "----------\ntext\n", "n1: text\n", ""]
)
def test_a_title_is_no_header(text: str) -> None:
    assert parts(text) == []
