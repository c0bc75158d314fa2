"""Runs tests of torch's own distributed suite, which its wheel ships, on gloo, and writes down how
each ended.

`python -m benchmarks.torch_suite.in_one_mode RESULTS START [TEST ...]`, plain or below `hangdoctor
run`. START is the start method of the ranks. Each test is a line of JSON in RESULTS; ranks say
there too whether a probe recorded them.
"""

from __future__ import annotations

import json
import os
import sys
import time
import unittest
from pathlib import Path
from typing import Any

import torch.multiprocessing
from torch.testing._internal.distributed import distributed_test

PROBES = Path(os.environ["TEMP_DIR"]) / "probes"


class Suite(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):  # type: ignore[misc]
    start = "fork"

    def setUp(self) -> None:
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context(self.start).Process)

    def run_test(self, test_name: str, parent_pipe: Any) -> None:
        with PROBES.open("a") as file:  # at the beginning: some tests end their process
            file.write(probe_here() + "\n")
        try:
            super().run_test(test_name, parent_pipe)
        finally:
            with PROBES.open("a") as file:
                file.write(probe_here() + "\n")


def probe_here() -> str:
    """What the probe does in this process: "none", "records", "traces", "waits" for a group, or
    "switched off".
    """
    state = sys.modules.get("hangdoctor.probe.process_probe")
    if state is None:
        return "none"
    probe = state.probe
    if probe.broken or (probe.tracer is not None and probe.tracer.broken):
        return "switched off"
    if probe.tracer is not None and probe.tracer.hook is not None:
        return "traces"
    return "records" if probe.recorder is not None else "waits"


def outcome(name: str) -> dict[str, Any]:
    """Run one test; how it ended, and what the probe did in its ranks."""
    PROBES.write_text("")
    began, result = time.monotonic(), unittest.TestResult()
    Suite(name).run(result)
    ended = "passed"
    for _, text in result.failures + result.errors:
        ended = f"failed: {reason(text)}"
    for _, text in result.skipped:
        ended = f"skipped: {text}"
    probes = sorted(set(PROBES.read_text().split("\n")) - {""})
    return {
        "test": name,
        "ended": ended,
        "seconds": round(time.monotonic() - began, 2),
        "probe": probes,
    }


def reason(text: str) -> str:
    """The last line of an error that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line and not line.startswith("File")]
    return (errors or lines or ["?"])[-1][:200]


def names() -> list[str]:
    """All tests of the suite."""
    return list(unittest.TestLoader().getTestCaseNames(Suite))


def main() -> None:
    """Run the tests that are named, or all, and write how each ended."""
    results, Suite.start, *wanted = sys.argv[1:]
    for name in wanted or names():
        line = json.dumps(outcome(name))
        with Path(results).open("a") as file:
            file.write(line + "\n")


if __name__ == "__main__":
    main()
