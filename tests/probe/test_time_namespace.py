"""A rank in a time namespace (a restored container) counts its start from another boot time than
readers outside do.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from hangdoctor.probe.identity import start_ticks

pytestmark = pytest.mark.timeout(60)

SAY = "import os; from hangdoctor.probe.identity import start_ticks as s; print(os.getpid(), s(), flush=True); input()"


def test_inside_and_outside_agree_when_a_process_started() -> None:
    command = ["unshare", "-T", "--boottime", "100000", "--fork", "--kill-child", sys.executable]
    with subprocess.Popen(
        [*command, "-c", SAY], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline().split()
            if not said:
                pytest.skip("time namespaces need root and Linux 5.6")
            assert start_ticks(int(said[0])) == int(said[1])
        finally:
            process.kill()
