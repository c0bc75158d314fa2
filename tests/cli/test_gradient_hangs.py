"""DistributedDataParallel reduces gradients in C++, which no black box records; the box still has
the calls around it.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hangdoctor import probe
from hangdoctor.agents.ranks import Ranks
from hangdoctor.clock import SystemClock
from hangdoctor.top.feeds import LocalSource, settled
from tests.support.plain_ranks import dump, processes, ranks
from tests.support.ports import free_port
from tests.support.stage import hangdoctor, switches, wait_until

pytestmark = pytest.mark.torch
JOB = Path(__file__).parents[1] / "support" / "jobs" / "ddp_job.py"
STARTUP = Path(probe.__file__).parent / "startup"
ROOT = Path(probe.__file__).parents[2]


def hung(
    folder: Path, fault: str, boxes: bool, while_they_hang: Callable[[str], object] = str
) -> dict[str, Any]:
    """The verdict on four ranks that hang for that reason, with or without black boxes."""
    port = free_port()
    environ = {"OMP_NUM_THREADS": "1", "HANGDOCTOR_DIR": str(folder / "boxes")}
    environ |= {"PYTHONPATH": f"{STARTUP}:{ROOT}"} if boxes else {}
    source = (
        "import sys, runpy\n"
        "open(sys.argv[1], 'w').close()\n"
        f"sys.argv = [{str(JOB)!r}, {str(folder)!r}, {fault!r}]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    started = [(env, source) for env in ranks(port, 4, **environ)]
    with processes(folder, started) as pids:
        wait_until(lambda: all((folder / f"at.{r}").exists() for r in range(4)), "they hang", 100)
        seen: list[str] = []

        def rests() -> bool:
            seen[:], before = [switches(p) for p in pids], list(seen)
            return seen == before

        wait_until(rests, "no rank's main thread runs")
        job = f"127.0.0.1:{port}"
        verdict = dump(folder, job, env=os.environ | environ)
        while_they_hang(job)
        for pid in pids:  # so that none sees another one end
            os.kill(pid, signal.SIGSTOP)
        return verdict


@pytest.mark.parametrize("boxes", [True, False], ids=["boxes", "stacks"])
def test_who_returned_before_the_collective_is_named_with_the_line_where_they_part(
    tmp_path: Path, boxes: bool
) -> None:
    [cause] = hung(tmp_path, "empty", boxes)["causes"]
    assert (cause["kind"], cause["ranks"]) == ("order", [3])
    assert "rank 3 is at main (ddp_job.py:" in cause["advice"].lower()
    if boxes:
        assert "skipped all_gather" in cause["summary"] and "#" in cause["summary"]
        assert cause["confidence"] >= 0.75
        assert "hangdoctor run" not in cause["advice"]


@pytest.mark.parametrize("boxes", [True, False], ids=["boxes", "stacks"])
def test_who_alone_made_the_collective_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, boxes: bool
) -> None:
    shown: list[str] = []

    def in_top(job: str) -> None:
        """As `c` in top."""
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("HANGDOCTOR_DIR", str(tmp_path / "boxes"))
        watched = Ranks(lambda found: found.is_named(job))
        source = LocalSource(watched, job)
        shown.append(settled(source, SystemClock()).picture.sentence)
        source.capture()
        shown.append(source.look().picture.sentence)
        watched.close()

    verdict = hung(tmp_path, "only_first", boxes, in_top if boxes else str)
    [cause] = verdict["causes"]
    assert (cause["kind"], cause["ranks"]) == ("order", [0])
    assert "rank 0 is at main (ddp_job.py:" in cause["advice"].lower()
    if boxes:
        assert "extra call" in cause["summary"] and "#" in cause["summary"]
        assert cause["confidence"] >= 0.6 and "fewer batches" in cause["summary"]
        reduces = ["", *["gradient all_reduce in backward"] * 3]
        assert [r["unrecorded"] for r in verdict["ranks"]] == reduces
        assert shown[0].startswith("Ranks 1-3") and "in no recorded operation" in shown[0]
        assert "4 ranks have been waiting in 2 operations" in shown[1]


def test_from_the_boxes_of_ended_ranks_alone_the_few_are_named_too(tmp_path: Path) -> None:
    hung(tmp_path, "only_first", boxes=True)
    done = hangdoctor("diagnose", str(tmp_path / "boxes"), "--json", "-", cwd=tmp_path)
    [cause] = json.loads(done.stdout)["causes"]
    assert (cause["kind"], cause["ranks"]) == ("order", [0])
    assert "most likely rank 0 made an extra call or has fewer batches" in cause["summary"]
    assert cause["confidence"] < 0.5 and "py-spy" not in cause["advice"]
