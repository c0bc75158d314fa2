"""What is done to a process from outside lasts as long as its block, whatever happens in there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hangdoctor.readers.proc import is_frozen
from hangdoctor.train.faults import outside
from tests.support.acting import acting
from tests.support.stuck_files import frozen, stuck


def test_stopped_for_as_long_as_the_block_lasts_also_when_it_fails(tmp_path: Path) -> None:
    with acting(tmp_path, "sleep") as it, acting(tmp_path, "sleep") as other:
        with pytest.raises(KeyError), outside.stopped(it.pid, other.pid):
            assert {it.state(), other.state()} == {"T"}
            raise KeyError
        it.in_state("S")
        other.in_state("S")


def test_a_process_that_ends_while_it_is_stopped(tmp_path: Path) -> None:
    with acting(tmp_path, "sleep") as it:
        with outside.stopped(it.pid):
            it.process.kill()
            it.process.wait()
        assert it.state() == "gone"


def test_a_frozen_process_is_seen_as_one_and_goes_on_after(tmp_path: Path) -> None:
    with acting(tmp_path, "sleep") as it:
        it.in_act("sleep")
        group = Path(f"/proc/{it.pid}/cgroup").read_text()
        with frozen(it.pid):
            assert is_frozen(it.pid) and not it.others_run()
        assert it.others_run() and not is_frozen(it.pid)
        assert Path(f"/proc/{it.pid}/cgroup").read_text() == group


def test_a_silent_file_system_holds_whoever_looks_into_it(tmp_path: Path) -> None:
    code = "import os, sys; print('up', flush=True); os.listdir(sys.argv[1])"
    with stuck(tmp_path / "silent") as folder:
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=1)
    _, error = process.communicate(timeout=20)
    assert process.returncode == 1 and "OSError" in error
