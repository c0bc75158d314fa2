"""Shared fixtures, and how the suite is shared out over several workers (pytest-xdist)."""

from __future__ import annotations

import atexit
import faulthandler
import gc
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadFileScheduling
    from xdist.workermanage import WorkerController

# Files whose few tests take long, the longest first, after those of the lab, which run one after another.
# By their number they would come last, and the run would end with one worker at work.
LONG = (
    "lab",
    "tests/sidecar/test_main_flow.py",
    "tests/cli/test_readme_one_machine.py",
    "tests/cli/test_ended_jobs.py",
    "tests/sidecar/test_crashes.py",
    "tests/readers/test_unnumbered.py",
    "tests/train/test_faults.py",
    "tests/probe/test_probe_stuck.py",
    "tests/probe/test_probe_survives.py",
    "tests/probe/harmless/test_harmless.py",
    "tests/probe/harmless/test_torch_suite.py",
    "tests/train/test_restart.py",
    "tests/train/test_session.py",
    "tests/train/test_starters.py",
    "tests/train/test_sweep.py",
    "tests/cli/test_demo.py",
    "tests/sidecar/test_attached_late.py",
    "tests/cli/test_gradient_hangs.py",
    "tests/probe/test_probe_odd.py",
    "tests/benchmarks/test_soak.py",
    "tests/cli/test_box_fusion.py",
    "tests/cli/test_calls_of_a_job.py",
    "tests/cli/test_recorder_beside.py",
    "tests/cli/test_who_holds_a_file_lock.py",
    "tests/cli/test_nccl_dump.py",
    "tests/cli/test_job_by_pid.py",
    "tests/cli/test_fr_trace_text.py",
    "tests/cli/test_deadline.py",
    "tests/frameworks/test_hangs.py",
    "tests/sidecar/test_trace_verb.py",
    "tests/sidecar/test_full_disk.py",
    "tests/timeline/test_timeline_job.py",
    "tests/sidecar/test_sockets.py",
    "tests/sidecar/test_wrong_job.py",
    "tests/sidecar/test_tree.py",
    "tests/cli/test_gpu_evidence.py",
    "tests/probe/test_probe_beside_the_job.py",
    "tests/probe/test_probe_extension.py",
    "tests/train/test_from_megatron.py",
    "tests/train/test_kernels.py",
    "tests/cli/test_spawned_killed.py",
    "tests/test_hanging_tests.py",
    "tests/test_packaging.py",
)
# After its limit a test that is in C code, which no signal ends, takes its worker with it.
_MERCY_S = 30.0
_MANY = 1000  # tests


def pytest_configure(config: pytest.Config) -> None:
    """Programs inherit which signals are ignored, and nohup ignores one: those that tests start do
    not.

    A handler that does nothing keeps pytest alive as nohup means it; a new program has the default
    again.
    """
    for number in (signal.SIGHUP, signal.SIGINT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def pytest_collection_finish(session: pytest.Session) -> None:
    """What a whole run has collected, thousands of tests in each worker, stays until the end: searches for
    cycles need not go through it, least of all the five that pytest makes when it ends.
    """
    if len(session.items) > _MANY:
        gc.freeze()
        atexit.register(gc.unfreeze)  # then libraries look for what they have not given back


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """The limit of a test is a signal to the main thread (pyproject.toml): it fails, and the run
    goes on.
    """
    marker = item.get_closest_marker("timeout")
    limit = float(marker.args[0] if marker and marker.args else item.config.getini("timeout"))
    if limit > 0:
        faulthandler.dump_traceback_later(limit + _MERCY_S, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling:
    """A file stays with one worker, for its jobs are shared; so do the lab cluster's and the live
    page's.
    """
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = str(super()._split_scope(nodeid))
            if "/web/" in file:
                return "web"  # one live job and one browser for all of it
            return "lab" if "_lab" in file.rpartition("/")[2] else file

        def _assign_work_unit(self, node: WorkerController) -> None:
            long = next((file for file in LONG if file in self.workqueue), None)
            if long is not None:
                self.workqueue.move_to_end(long, last=False)
            super()._assign_work_unit(node)

        def remove_node(self, node: WorkerController) -> str | None:
            """A worker has died. The test that it died in has failed: another worker does the rest
            of its files.
            """
            died_in = super().remove_node(node)
            for scope, tests in list(self.workqueue.items()):
                if died_in in tests:
                    tests[died_in] = True
                if all(tests.values()):
                    del self.workqueue[scope]
            return died_in

    return ByFile(config, log)
