"""Several scenarios for one start of Python: importing torch takes two seconds of a processor, a fork nothing.

A script calls `each` once its imports are done, and goes on in a child for each of its arguments; a
test reads with `run` what became of each of them.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, NoReturn

from msgspec import Struct


class Ended(Struct):
    """What became of one scenario."""

    pid: int
    returncode: int
    stdout: str
    stderr: str


def each(words: Sequence[str]) -> str:
    """Returns in a child for each word; the parent reports what became of it, and exits at last.

    A child has a folder of its own for its black box: another rank would clear it away.
    """
    gc.freeze()  # or every child copies all of torch's objects when it collects
    for word in words:
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            sys.stdout.flush()
            pid = os.fork()
            if pid == 0:
                os.dup2(out.fileno(), 1)
                os.dup2(err.fileno(), 2)
                os.environ["HANGDOCTOR_DIR"] = str(boxes_of(word))
                return word
            _, status = os.waitpid(pid, 0)
            code = os.waitstatus_to_exitcode(status)
            print(json.dumps([word, pid, code, _text(out), _text(err)]), flush=True)
    sys.exit(0)


def boxes_of(word: str) -> Path:
    """The folder for the black box of a scenario, by what its parent has in its environment."""
    return Path(os.environ["HANGDOCTOR_DIR"], word.replace(" ", "-"))


def leave() -> NoReturn:
    """End as a process does, without the second that it takes to take torch's modules down."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="backslashreplace")


def run(
    script: Path, words: Sequence[str], env: dict[str, str], timeout: float = 200
) -> dict[str, Ended]:
    """Each scenario of the script, by its word."""
    command = [sys.executable, str(script), *words]
    done = subprocess.run(command, env=env, text=True, capture_output=True, timeout=timeout)
    assert done.returncode == 0 and not done.stderr, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [word for word, *_ in told] == list(words)
    return {word: Ended(*ended) for word, *ended in told}
