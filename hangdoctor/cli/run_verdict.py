"""The line that `hangdoctor run` prints at the end of a job that failed."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from ..errors import HangdoctorError
from ..probe.identity import ranks_from
from . import pipes


def say_verdict(folder: Path, environ: Mapping[str, str]) -> None:
    """Print which rank failed first, how, and where the boxes are; where one cannot tell, that.

    Where each rank has a `hangdoctor run` of its own (srun, mpirun), it prints what its rank itself
    did; the others may still run.
    """
    from ..diagnosis import diagnose
    from .diagnose import load

    rank, world, _ = ranks_from(environ)
    alone = world > 1 and rank >= 0
    try:
        diagnosis = diagnose(load([folder], join=not alone), lenient=True)
    except HangdoctorError:
        return
    named = {rank for cause in diagnosis.causes for rank in cause.ranks}
    if alone and rank not in named:
        return
    text = f"hangdoctor: {diagnosis.summary}"
    closing = "" if text.endswith(".") else "."
    with contextlib.suppress(OSError, ValueError):
        pipes.say(f"{text}{closing} Details: hangdoctor diagnose {folder}", err=True)
