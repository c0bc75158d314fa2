"""What one file says against another: a rendezvous that one could not reach and that counted meanwhile."""

from __future__ import annotations

from pathlib import Path

from hangdoctor.diagnosis import diagnose
from hangdoctor.model.diagnosis import Diagnosis
from hangdoctor.readers.offline import read

LISTENED = "torch.distributed.DistStoreError: Timed out after 301 seconds waiting for clients. {}/2 clients joined.\n"
UNREACHED = (
    "[rank1]:[E419 13:27:42.301344821 socket.cpp:1011] [c10d] The client socket has timed out after "
    "300000ms while trying to connect to (head-0, 29500).\n"
)


def judged(folder: Path, **texts: str) -> Diagnosis:
    for name, text in texts.items():
        (folder / f"{name}.log").write_text(text)
    return diagnose(read([folder / f"{name}.log" for name in texts]))


def test_the_host_of_the_rendezvous_was_up(tmp_path: Path) -> None:
    said = judged(tmp_path, head=LISTENED.format(1), other=UNREACHED)
    [cause] = said.causes
    assert (cause.kind, cause.ranks) == ("start_stall", [1])
    assert "listened and counted 1 of 2" in said.summary and "not up" not in said.summary
    assert "Is rank 0's process running" not in cause.advice


def test_without_its_log_it_may_not_be_up(tmp_path: Path) -> None:
    said = judged(tmp_path, other=UNREACHED)
    assert said.causes[0].ranks == [] and "the first node is not up" in said.summary


def test_a_store_that_all_had_reached_says_nothing_of_it(tmp_path: Path) -> None:
    said = judged(tmp_path, head=LISTENED.format(2), other=UNREACHED)
    assert "listened and counted" not in said.summary
