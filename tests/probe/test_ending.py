"""What of an exception goes into the box."""

from __future__ import annotations

import fcntl
import os
import struct
import sys
import sysconfig
import time
from pathlib import Path

import pytest

from hangdoctor.cli.run_ends import EndsWatch
from hangdoctor.probe import ending
from hangdoctor.probe import format as fmt
from hangdoctor.probe.identity import host

ANSWERS = """
def wrap(work):
    try:
        work()
    except Exception:
        sys.exit(1)
"""


def lost() -> None:
    raise RuntimeError("Connection closed by peer [127.0.0.1]:5")


def ended(file: str) -> list[str]:
    """The lines about the exit with which a file's code answers an exception."""
    space: dict[str, object] = {"sys": sys}
    exec(compile(ANSWERS, file, "exec"), space)
    with pytest.raises(SystemExit) as caught:
        space["wrap"](lost)  # type: ignore[operator]
    return ending.of_exception(caught.value)[1].splitlines()


def test_an_exit_by_a_library_is_the_exception_that_it_answers() -> None:
    """torch.multiprocessing.spawn exits so: a closed connection must not look like a rank's own end."""
    library = sysconfig.get_paths()["purelib"] + "/torch/multiprocessing/spawn.py"
    kind, message, *frames = ended(library)
    assert (kind, message) == ("RuntimeError", "Connection closed by peer [127.0.0.1]:5")
    assert frames[0].startswith("lost\t")


def test_an_exit_of_the_jobs_own_is_an_exit() -> None:
    assert ended("/home/u/train.py")[:2] == ["SystemExit", "1"]


def chained() -> BaseException:
    """What a callback raises that saves while an error is handled."""
    try:
        try:
            raise ValueError("negative load in row 3")
        except ValueError:
            lost()
    except RuntimeError as error:
        return error
    raise AssertionError


def test_the_first_exception_of_a_chain_is_kept_with_its_place() -> None:
    lines = ending.of_exception(chained())[1].splitlines()
    assert lines[0] == "RuntimeError"
    assert lines[2] == "\tfirst\tValueError\tnegative load in row 3"
    assert lines[3].startswith("chained\t")
    assert lines[3].endswith("\tfirst")
    assert not any("first" in line for line in ending.of_exception(KeyError("a"))[1].splitlines())


def test_a_first_exception_that_was_set_aside_on_purpose_is_not_kept() -> None:
    error = chained()
    error.__suppress_context__ = True
    assert "first" not in ending.of_exception(error)[1]


def test_what_does_not_print_is_a_blank() -> None:
    """A line of the record is one line, whatever the job says."""
    assert ending.of_exception(KeyError("a\nb\tc\x1b[31m"))[1] == "KeyError\n'a\\nb\\tc\\x1b[31m'"
    assert ending.of_exception(ValueError("a\nb\tc\x1b"))[1] == "ValueError\na b c "


@pytest.mark.torch
@pytest.mark.parametrize("error", [KeyError("moth_0117"), ValueError("bad row\nof two lines")])
def test_what_a_workers_exception_was_raised_from(error: Exception) -> None:
    """As torch's loader hands it on: its traceback is the message of the error of the rank."""
    from torch._utils import ExceptionWrapper

    try:
        raise error
    except type(error):
        wrapped = ExceptionWrapper(where="in DataLoader worker process 0")
    with pytest.raises(type(error)) as caught:
        wrapped.reraise()
    name, message, *frames = ending.of_exception(caught.value)[1].splitlines()
    assert name == type(error).__name__
    assert message == f"{' '.join(str(error).splitlines())} (caught in DataLoader worker process 0)"
    function, file, line = frames[0].split("\t")
    assert function == "test_what_a_workers_exception_was_raised_from"
    assert file.endswith("test_ending.py") and int(line) > 0


AWAITED = "Gloo context initialization failed: DEADLINE_EXCEEDED: GetKeyValue() timed out with key: cpu:gloo/0,2048/1"


class InCpp:
    """Stand-in for nanobind's methods: JAX's exceptions have such a `__str__`."""

    __module__ = "nanobind"

    def __call__(self) -> str:
        return "INTERNAL: " + 9 * "Error dispatching computation: " + AWAITED


def test_an_exception_of_jax_is_kept_with_its_words() -> None:
    """Without them a wait that ran into its limit looks like a failure of the rank's own."""
    error = type("JaxRuntimeError", (RuntimeError,), {"__str__": InCpp()})(InCpp()())
    kind, message = ending.of_exception(error)[1].splitlines()
    assert (kind, message) == (
        "JaxRuntimeError",
        f"INTERNAL: Error dispatching computation: {AWAITED}",
    )


def written(path: Path, text: str) -> tuple[int, float, str]:
    """(kind, moment, text) as they are in the box then."""
    path.write_bytes(bytes(fmt.HEADER_BYTES))
    ending.write(path, path.stat(), fmt.BY_EXCEPTION, text)
    data = path.read_bytes()
    [kind], [at], [raw] = (
        struct.unpack_from(how, data, offset)
        for offset, how in (fmt.H_END_KIND, fmt.H_END_AT, fmt.H_END_TEXT)
    )
    return kind, at / 1e9, raw.rstrip(b"\0").decode()


def test_the_end_has_its_kind_its_moment_and_whole_lines(tmp_path: Path) -> None:
    before = time.time()
    kind, at, text = written(tmp_path / "box", "ValueError\nsaid")
    assert (kind, text) == (fmt.BY_EXCEPTION, "ValueError\nsaid") and before <= at <= time.time()
    room = struct.calcsize(fmt.H_END_TEXT[1]) - 1
    line = "x" * 99 + "\n"
    fits = (line * 20)[: room - 1] + "y"
    assert written(tmp_path / "box", fits)[2] == fits
    assert written(tmp_path / "box", fits + "z")[2] == (line * 19)[:-1], "half a line is none"


def test_who_notes_the_ends_holds_a_file_of_its_own(tmp_path: Path) -> None:
    assert not ending.is_watched(tmp_path)
    for name in (f"{host()}-1{fmt.ENDS_SUFFIX}", f"{host()}-2{fmt.ENDS_SUFFIX}"):
        (tmp_path / name).write_text("")
    (tmp_path / f"{host()}-0{fmt.ENDS_SUFFIX}").symlink_to(
        tmp_path / f"{host()}-1{fmt.ENDS_SUFFIX}"
    )
    descriptors = len(os.listdir("/proc/self/fd"))
    assert not ending.is_watched(tmp_path), "it has ended"
    with (tmp_path / f"{host()}-2{fmt.ENDS_SUFFIX}").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert ending.is_watched(tmp_path)
        if os.geteuid() == 0:
            os.chown(file.fileno(), 65_533, -1)
            assert not ending.is_watched(tmp_path), "anyone could hold one"
    assert len(os.listdir("/proc/self/fd")) == descriptors
    with (tmp_path / f"another-1{fmt.ENDS_SUFFIX}").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert not ending.is_watched(tmp_path), "of another machine"


def test_the_box_of_a_rank_that_left_is_kept_where_a_signal_ended_the_command(
    tmp_path: Path,
) -> None:
    """Of a job that was ended by hand, who had left is evidence: others may have waited for it."""
    box = tmp_path / f"{host()}-{os.getpid()}-1{fmt.SUFFIX}"
    head = bytearray(fmt.HEADER_BYTES)
    head[: len(fmt.MAGIC)] = fmt.MAGIC
    at, form = fmt.H_END_KIND
    struct.pack_into(form, head, at, fmt.WITHOUT_EXCEPTION)
    for code, kept in ((-15, True), (0, False)):
        box.write_bytes(bytes(head))
        EndsWatch(tmp_path, os.getpid()).finish(code)
        assert box.exists() is kept


def gathered() -> BaseException:
    """As torch.distributed.checkpoint raises it on every rank."""
    from torch.distributed.checkpoint.api import CheckpointException, _wrap_exception

    try:
        raise OSError(28, "No space left on device", "ckpt/__2_0.distcp")
    except OSError as error:
        met = _wrap_exception(error)
    return CheckpointException("save", {2: met})


@pytest.mark.torch
def test_what_one_rank_met_is_told_by_all() -> None:
    kind, _, met, *frames = ending.of_exception(gathered())[1].splitlines()
    assert kind == "CheckpointException"
    assert met.split("\t")[1:4] == ["gathered", "2", "OSError"]
    assert "No space left on device" in met
    assert frames[0].startswith("gathered\t") and frames[0].endswith("\tgathered")
    assert not any("gathered" in line for line in ending.of_exception(KeyError("a"))[1].split("\n"))
