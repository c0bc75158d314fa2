"""Code of the job that the probe could run, or be interrupted by: none of it is run, and nothing of
ours reaches the job.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from hangdoctor.probe.whose_error import is_ours, said, suppress
from hangdoctor.readers.blackbox import find_boxes
from tests.support import forked
from tests.support.probe_ranks import SCRIPTS, STARTUP, environment

pytestmark = [pytest.mark.torch, pytest.mark.timeout(420)]

MODES = ["function mode", "dispatch mode"]
TENSORS = ["subclass", "fake tensors"]
ANY_TIME = ["their exception", "bare TimeoutError", "alarm", "alarm in an operation"]
ENDS = {"mute": ["ended by Mute"], "mute within": ["ended by ValueError: "], "array": []}
FOREIGN = [*MODES, "mode that raises", *TENSORS, "odd arguments", *ANY_TIME, *ENDS]
HANDLES = ["slots", "class raises", "attributes raise", "subclass", "inherits", "tuple"]


class Both:
    """Every scenario of a script, by a rank with the probe and by one without."""

    def __init__(self, folder: Path, script: str, words: list[str], **more: str) -> None:
        self.folder = folder
        self.with_probe, self.without = (
            forked.run(
                SCRIPTS / script,
                words,
                environment(folder, HANGDOCTOR_DISABLE=off, PYTHONWARNINGS="ignore", **more),
            )
            for off in ("0", "1")
        )

    def of(self, what: str) -> tuple[forked.Ended, list[str]]:
        """The rank with the probe, and its lines; all but the last are the same without."""
        ended, plain = self.with_probe[what], self.without[what]
        lines = ended.stdout.splitlines()
        assert lines[:-1] == plain.stdout.splitlines()[:-1], ended.stderr
        assert (ended.returncode, ended.stderr) == (plain.returncode, plain.stderr)
        return ended, lines


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Both:
    return Both(tmp_path_factory.mktemp("foreign"), "foreign.py", FOREIGN)


@pytest.fixture(scope="module", params=["0", "1"], ids=["extension", "python"])
def handles(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Both:
    folder = tmp_path_factory.mktemp("handles")
    return Both(folder, "handles.py", HANDLES, HANGDOCTOR_RECORD_PURE=request.param)


@pytest.mark.parametrize("mode", MODES)
def test_modes_of_the_job_do_not_see_the_probe(foreign: Both, mode: str) -> None:
    ended, lines = foreign.of(mode)
    assert ended.returncode == 0 and len(lines) == 2
    assert lines[1].startswith("on barrier#8:-1 all_reduce#9:-1[2] "), lines[1]


def test_a_mode_that_raises_at_attributes(foreign: Both) -> None:
    _, lines = foreign.of("mode that raises")
    assert lines[-1].startswith("on all_reduce#1:-1[2] broadcast#2:0[2] all_gather#3:-1[2]"), lines


@pytest.mark.parametrize("what", TENSORS)
def test_tensors_that_are_none_of_torchs_own(foreign: Both, what: str) -> None:
    ended, lines = foreign.of(what)
    assert ended.returncode == 0 and lines[-1].startswith("on "), lines


def test_arguments_are_not_asked_for_anything(foreign: Both) -> None:
    ended, lines = foreign.of("odd arguments")
    assert ended.returncode == 0 and lines[-1].startswith("on ") and lines[-1].endswith("[2]"), (
        lines
    )


@pytest.mark.parametrize("what", ANY_TIME)
def test_an_exception_that_comes_at_any_time_is_the_jobs(foreign: Both, what: str) -> None:
    ended, lines = foreign.of(what)
    assert ended.returncode == 0 and lines[-1].startswith("on"), (lines, ended.stderr)


@pytest.mark.parametrize("what", ENDS)
def test_the_end_asks_nothing_of_the_jobs_exception(foreign: Both, what: str) -> None:
    ended, _ = foreign.of(what)
    assert ended.returncode == 1
    assert [b.note for b in find_boxes(foreign.folder / what.replace(" ", "-"))] == ENDS[what]


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
    exec(compile(ours, str(STARTUP.with_name("process_probe.py")), "exec"), space)
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


@pytest.mark.parametrize("kind", HANDLES)
def test_handles_of_the_jobs_own_making(handles: Both, kind: str) -> None:
    ended, lines = handles.of(kind)
    assert ended.returncode == 0, ended.stderr
    called = "all_reduce#1[2] broadcast#2[2] send#1[2] recv#1[2]"
    assert lines[-1].startswith(f"on {called}"), lines[-1]
