"""A rank that was ending well before others gave up waiting is a lead."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed

UP = "[rank0]:[W1126 04:{}:02.107 ProcessGroupNCCL.cpp:1250] Warning: WARNING: process group has NOT been destroyed before we destruct ProcessGroupNCCL.\n"
WAIT = "[rank1]:[E1126 04:43:01.018 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=1800000) ran for 1800039 milliseconds before timing out.\n"


def test_who_was_ending_long_before_is_a_lead(tmp_path: Path) -> None:
    said = diagnosed(tmp_path, UP.format("13") + WAIT)
    assert said.causes == [] and "Rank 0 was ending 30 min before that" in said.summary


@pytest.mark.parametrize(
    "log", [WAIT + UP.format("44"), UP.format("13").replace("rank0", "rank1") + WAIT]
)
def test_who_ends_after_it_or_waits_itself_is_none(tmp_path: Path, log: str) -> None:
    assert "was ending" not in diagnosed(tmp_path, log).summary
