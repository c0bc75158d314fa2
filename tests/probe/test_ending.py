"""What of an exception goes into the box."""

from __future__ import annotations

import sys
import sysconfig

import pytest

from hangdoctor.probe import ending

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
