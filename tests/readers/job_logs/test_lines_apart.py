"""Lines that all ranks print at their start, with other numbers on one of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed

ENDED = (
    "W1123 18:48:43.069000 15555 torch/distributed/elastic/agent/server/api.py:753] "
    "Received 15 death signal, shutting down workers\n"
)
MESH = "world 6 tp {tp} dp {dp} pid {pid}"


def starts(form: str, odd: int, line: str = MESH) -> str:
    """One line of each of six ranks, in no order."""
    text = ""
    for rank in (3, 4, 0, 5, 1, 2):
        tp, dp = (2, 3) if rank == odd else (3, 2)
        text += form.format(rank) + line.format(tp=tp, dp=dp, pid=15561 + rank) + "\n"
    return text


@pytest.mark.parametrize("form", ["[{}] ", "[rank{}]: ", "rank {}: ", "client {} ", "worker {}: "])
def test_the_rank_that_printed_other_numbers_is_a_lead_and_no_culprit(
    tmp_path: Path, form: str
) -> None:
    found = diagnosed(tmp_path, starts(form, odd=4) + ENDED)
    assert (found.status, found.causes) == ("unknown", []), found.summary
    assert "rank 4 printed '" in found.summary
    assert "world 6 tp 2 dp 3 pid 15565' (job.log:2)" in found.summary
    assert "world 6 tp 3 dp 2 pid" in found.summary.partition(", the others '")[2]


@pytest.mark.parametrize(
    "text",
    [
        starts("[{}] ", odd=0),
        starts("[{}] ", odd=-1),
        starts("[{}] ", odd=4) + starts("[{}] ", odd=2, line="shards {tp}"),
        starts("[{}] ", odd=4, line="loaded in {tp} s"),
        starts("[{}] ", odd=4, line="seed {tp}"),
        starts("[{}] ", odd=4).replace("[5] ", "[7] "),
        starts("[{}] ", odd=4).replace("[1] world 6 tp 3", "[1] world 6 tp 4"),
    ],
    ids=["rank 0", "nobody", "two ranks", "a time", "a seed", "one is missing", "two values"],
)
def test_numbers_that_may_differ_are_no_lead(tmp_path: Path, text: str) -> None:
    found = diagnosed(tmp_path, text + ENDED)
    assert "One line differs" not in found.summary, found.summary
