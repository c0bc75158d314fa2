"""DistributedDataParallel reduces gradients in C++, which no black box records; the box still has
the calls around it.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hangdoctor import probe
from hangdoctor.agents.node_ranks import Ranks
from hangdoctor.clock import SystemClock
from hangdoctor.top.feeds import LocalSource, settled
from tests.support.plain_ranks import dump, processes, ranks
from tests.support.ports import free_port
from tests.support.stage import hangdoctor, switches, wait_until

pytestmark = pytest.mark.torch
JOB = Path(__file__).parents[1] / "support" / "jobs" / "ddp_job.py"
STARTUP = Path(probe.__file__).parent / "startup"
ROOT = Path(probe.__file__).parents[2]


# `tests/probe/test_probe_stuck.py` has such a job without boxes.
BOXES = [
    pytest.param(True, id="boxes"),
    pytest.param(False, id="stacks", marks=pytest.mark.full),
]


class Seen(NamedTuple):
    """Four ranks that hung, while they lived; `in_top` before and after its `c`, with boxes."""

    folder: Path
    verdict: dict[str, Any]
    in_top: list[str]


Hung = Callable[[str, bool], Seen]


@pytest.fixture(scope="module")
def hung(tmp_path_factory: pytest.TempPathFactory) -> Hung:
    """Ranks that hang for a reason, with or without black boxes; each job is run once."""

    @functools.cache
    def of(fault: str, boxes: bool) -> Seen:
        return _seen(tmp_path_factory.mktemp("hung"), fault, boxes)

    return of


def _in_top(folder: Path, job: str) -> list[str]:
    """The sentence at first, and after a capture."""
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        patched.setenv("HANGDOCTOR_DIR", str(folder / "boxes"))
        watched = Ranks(lambda jobs: [one for one in jobs if one.is_named(job)])
        source = LocalSource(watched, job)
        before = settled(source, SystemClock()).picture.sentence
        source.capture()
        after = source.look().picture.sentence
        watched.close()
        return [before, after]


def _seen(folder: Path, fault: str, boxes: bool) -> Seen:
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
        in_top = _in_top(folder, job) if boxes else []
        for pid in pids:  # so that none sees another one end
            os.kill(pid, signal.SIGSTOP)
        return Seen(folder, verdict, in_top)


@pytest.mark.parametrize("boxes", BOXES)
def test_who_returned_before_the_collective_is_named_with_the_line_where_they_part(
    hung: Hung, boxes: bool
) -> None:
    [cause] = hung("empty", boxes).verdict["causes"]
    assert cause["ranks"] == [3]
    assert cause["kind"] == "mismatch" and cause["confidence"] >= 0.9
    both = (
        "entered all_reduce #13 (ddp_job.py:36) where the others entered all_gather (ddp_job.py:29)"
    )
    assert both in cause["summary"]
    assert "Compare ddp_job.py:36 with ddp_job.py:29" in cause["advice"]
    assert "hangdoctor run" not in cause["advice"]


@pytest.mark.parametrize("boxes", BOXES)
def test_who_alone_made_the_collective_is_named(hung: Hung, boxes: bool) -> None:
    _, verdict, in_top = hung("only_first", boxes)
    [cause] = verdict["causes"]
    assert (cause["kind"], cause["ranks"]) == ("mismatch", [0])
    assert cause["confidence"] >= 0.9
    assert "entered all_gather #13 (ddp_job.py:29), which no rank" in cause["summary"]
    if boxes:
        reduces = ["", *["gradient all_reduce in backward"] * 3]
        assert [r["unrecorded"] for r in verdict["ranks"]] == reduces
        assert in_top[0].startswith("Ranks 1-3") and "in no recorded operation" in in_top[0]
        assert "4 ranks have been waiting in 2 operations" in in_top[1]


@pytest.mark.parametrize("boxes", [True, False])
def test_who_left_the_loop_before_the_others_is_said_to(hung: Hung, boxes: bool) -> None:
    """Its last call is one that all have made before: only its line is behind the loop."""
    [cause] = hung("stops", boxes).verdict["causes"]
    assert cause["ranks"] == [1]
    assert "left the loop" in cause["summary"] and "main (ddp_job.py:5" in cause["summary"]
    assert "earlier on rank 1 (fewer batches, a stop of its own)" in cause["advice"]


def of_boxes(folder: Path, *, records: bool = True) -> dict[str, Any]:
    """The verdict on what the ranks left, with what torch's own recorders knew or without."""
    boxes = folder / "boxes"
    assert len([*boxes.glob("*.records")]) == 4
    if not records:
        boxes = folder / "boxes-alone"
        left_out = shutil.ignore_patterns("*.sock", "*.records")
        shutil.copytree(folder / "boxes", boxes, ignore=left_out)
    done = hangdoctor("diagnose", str(boxes), "--json", "-", cwd=folder)
    return dict(json.loads(done.stdout))


def test_from_the_boxes_of_ended_ranks_alone_the_few_are_named_too(hung: Hung) -> None:
    [cause] = of_boxes(hung("only_first", True).folder, records=False)["causes"]
    assert (cause["kind"], cause["ranks"]) == ("order", [0])
    assert "most likely rank 0 made an extra call or has fewer batches" in cause["summary"]
    assert 0.6 <= cause["confidence"] < 0.75 and "py-spy" not in cause["advice"]


def test_with_what_torchs_recorder_left_beside_the_boxes_both_calls_are_known(hung: Hung) -> None:
    found = of_boxes(hung("only_first", True).folder)
    [cause] = found["causes"]
    assert (cause["kind"], cause["ranks"]) == ("mismatch", [0])
    assert "entered all_gather #13 (ddp_job.py:29), which no rank had called" in cause["summary"]
    assert "the others entered all_reduce (ddp_job.py:36) as in each round" in cause["summary"]
    assert cause["confidence"] >= 0.8, "the box cannot have what C++ did: that is no contradiction"
    assert not any("contradict" in one for one in found["notes"])
    [cause] = of_boxes(hung("stops", True).folder)["causes"]
    assert cause["ranks"] == [1] and "left the loop in main" in cause["summary"]
    [cause] = of_boxes(hung("empty", True).folder)["causes"]
    assert (cause["kind"], cause["ranks"]) == ("mismatch", [3])
    assert "all_reduce #13 (ddp_job.py:36) where the others entered all_gather" in cause["summary"]


def test_boxes_of_ended_ranks_show_the_wait_in_backward_by_its_place(hung: Hung) -> None:
    """Rank 3 waits in C++, of which its box has no operation, and never came to all_gather."""
    found = of_boxes(hung("empty", True).folder, records=False)
    [cause] = found["causes"]
    assert (cause["kind"], cause["ranks"]) == ("order", [3])
    assert "skipped all_gather" in cause["summary"], cause
    places = {r["rank"]: r["place"] for r in found["ranks"]}
    assert "backward" in places[3] and "evaluate" in places[0]
