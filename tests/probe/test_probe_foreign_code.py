"""Code of the job that the probe could run, or be interrupted by: none of it is run, and nothing of
ours reaches the job.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hangdoctor.probe.whose_error import is_ours, said, suppress
from hangdoctor.readers.blackbox import find_boxes
from tests.support.probe_ranks import SCRIPTS, STARTUP, environment

pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]


def both(
    tmp_path: Path, what: str, script: str = "foreign.py", **more: str
) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """The rank with the probe, and its lines; all but the last are the same without."""
    command = [sys.executable, str(SCRIPTS / script), what]
    ended = []
    for off in ("0", "1"):
        env = environment(tmp_path, HANGDOCTOR_DISABLE=off, PYTHONWARNINGS="ignore", **more)
        ended.append(subprocess.run(command, env=env, text=True, capture_output=True, timeout=100))
    with_probe, without = ended
    lines = with_probe.stdout.splitlines()
    assert lines[:-1] == without.stdout.splitlines()[:-1], with_probe.stderr
    assert (with_probe.returncode, with_probe.stderr) == (without.returncode, without.stderr)
    return with_probe, lines


@pytest.mark.parametrize("mode", ["function mode", "dispatch mode"])
def test_modes_of_the_job_do_not_see_the_probe(tmp_path: Path, mode: str) -> None:
    ended, lines = both(tmp_path, mode)
    assert ended.returncode == 0 and len(lines) == 2
    assert lines[1].startswith("on barrier#8:-1 all_reduce#9:-1[2] "), lines[1]


def test_a_mode_that_raises_at_attributes(tmp_path: Path) -> None:
    _, lines = both(tmp_path, "mode that raises")
    assert lines[-1].startswith("on all_reduce#1:-1[2] broadcast#2:0[2] all_gather#3:-1[2]"), lines


@pytest.mark.parametrize("what", ["subclass", "fake tensors"])
def test_tensors_that_are_none_of_torchs_own(tmp_path: Path, what: str) -> None:
    ended, lines = both(tmp_path, what)
    assert ended.returncode == 0 and lines[-1].startswith("on "), lines


def test_arguments_are_not_asked_for_anything(tmp_path: Path) -> None:
    ended, lines = both(tmp_path, "odd arguments")
    assert ended.returncode == 0 and lines[-1].startswith("on ") and lines[-1].endswith("[2]"), (
        lines
    )


@pytest.mark.parametrize(
    "what", ["their exception", "bare TimeoutError", "alarm", "alarm in an operation"]
)
def test_an_exception_that_comes_at_any_time_is_the_jobs(tmp_path: Path, what: str) -> None:
    ended, lines = both(tmp_path, what)
    assert ended.returncode == 0 and lines[-1].startswith("on"), (lines, ended.stderr)


@pytest.mark.parametrize(
    ("what", "notes"),
    [("mute", ["ended by Mute"]), ("mute within", ["ended by ValueError: "]), ("array", [])],
)
def test_the_end_asks_nothing_of_the_jobs_exception(
    tmp_path: Path, what: str, notes: list[str]
) -> None:
    ended, _ = both(tmp_path, what)
    assert ended.returncode == 1
    assert [b.note for b in find_boxes(tmp_path)] == notes


def caught(function: object, *args: object) -> Exception:
    try:
        function(*args)  # type: ignore[operator]
    except Exception as error:
        return error
    raise AssertionError("it did not raise")


def test_whose_exception_it_is() -> None:
    theirs = caught(lambda: {}["a"])  # this file is not a part of the probe
    assert (
        not is_ours(theirs)
        and is_ours(KeyError("a"))
        and is_ours(MemoryError())
        and not is_ours(TimeoutError())
    )
    assert not is_ours(type("Stop", (Exception,), {"__module__": "their.jobs"})("now"))
    with pytest.raises(TimeoutError), suppress(OSError):
        raise TimeoutError("their alarm")
    ours = (
        "def f():\n    with suppress(OSError):\n        os.unlink('/no/such/file')\n    return 'on'"
    )
    space: dict[str, Any] = {"suppress": suppress, "os": os}
    exec(compile(ours, str(STARTUP.with_name("state.py")), "exec"), space)
    assert space["f"]() == "on"


def test_what_an_exception_says_without_its_own_words() -> None:
    assert said(ValueError("a", 1)) == "ValueError: ('a', 1)"
    assert (
        said(caught(open, "/no/such/file"))
        == "FileNotFoundError: [Errno 2] No such file or directory: '/no/such/file'"
    )
    assert said(KeyError("k")) == "KeyError: 'k'"
    assert (
        said(ValueError(object())) == "ValueError: "
        and said(SyntaxError("bad", ("f", 1, 2, "x"))) == "SyntaxError: bad"
    )


@pytest.mark.parametrize(
    "kind", ["slots", "class raises", "attributes raise", "subclass", "inherits", "tuple"]
)
@pytest.mark.parametrize("pure", ["0", "1"], ids=["extension", "python"])
def test_handles_of_the_jobs_own_making(tmp_path: Path, kind: str, pure: str) -> None:
    ended, lines = both(tmp_path, kind, script="handles.py", HANGDOCTOR_RECORD_PURE=pure)
    assert ended.returncode == 0, ended.stderr
    called = "all_reduce#1[2] broadcast#2[2] send#1[2] recv#1[2]"
    assert lines[-1].startswith(f"on {called}"), lines[-1]
