"""python -m hangdoctor.train: one rank of a training.

Start N of them with torchrun, srun, mpiexec or deepspeed.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from typing import NoReturn

from .config import help_text, load_config
from .launch import discover
from .options import ConfigError


def main(argv: list[str] | None = None) -> int:
    """Train as the command line says; returns the exit code."""
    words = sys.argv[1:] if argv is None else argv
    # The deepspeed launcher passes this to every rank.
    words = [w for w in words if not w.startswith("--local_rank")]
    if "--help" in words or "-h" in words:
        from .faults.spec import help_lines

        print("\n".join([help_text(), "", *help_lines()]))
        return 0
    rank = 0
    try:
        launch = discover()
        rank = launch.rank
        config = load_config(words)
        from .session import run  # torch and deepspeed only once the words make sense

        return run(config, launch)
    except ConfigError as error:
        if rank == 0:
            print(f"error: {error}", file=sys.stderr, flush=True)
        return 2


def end(code: int) -> NoReturn:
    """Leave without tearing the interpreter down, after everything that is registered for its end.

    One of gloo's threads that still holds the last operation's tensor ends the process with SIGABRT
    when it drops it in an interpreter that is half gone (github.com/pytorch/pytorch/pull/179291): a
    finished training would count as failed.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads that are not daemons, as an ordinary end does
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    end(main())
