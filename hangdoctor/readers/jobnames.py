"""What a job is called: its key as `dump` prints it, and the name that its black boxes carry.

Either names it, or a part of one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from ..probe import identity
from ..text.job_names import short_job
from ..text.late import late
from ..text.plain import readable

if TYPE_CHECKING:
    import psutil

_TELLING = 3  # digits: one or two are a part of too many names
# What a key says about its own kind, and what distinguishes two launchers: boxes of ranks that have
# ended carry neither.
_ONLY_IN_KEYS = late(r"^(?:torchrun|mpi|pals|parent):|/\d+$")


def job_key(environ: Mapping[str, str], ppid: int) -> str:
    """Name of the job that a rank belongs to: torchrun's run id, Slurm's job and step, or the
    rendezvous address.
    """
    run_id = environ.get("TORCHELASTIC_RUN_ID", "none")
    if environ.get("SLURM_JOB_ID") and environ.get("SLURM_STEP_ID"):
        return f"slurm:{environ['SLURM_JOB_ID']}.{environ['SLURM_STEP_ID']}"
    if run_id != "none":
        return f"torchrun:{run_id}"
    if environ.get("MASTER_ADDR") and environ.get("MASTER_PORT"):
        return f"{environ['MASTER_ADDR']}:{environ['MASTER_PORT']}"
    for name, prefix in (
        ("PMIX_NAMESPACE", "mpi:"),
        ("PALS_APID", "pals:"),
        ("PBS_JOBID", "pbs:"),
        ("SLURM_JOB_ID", "slurm:"),
    ):
        if environ.get(name):
            return prefix + environ[name]
    return f"parent:{ppid}"


def key_of(process: psutil.Process, environ: Mapping[str, str]) -> str:
    """The same of a living process. Where nothing but its parent tells, and that is a `hangdoctor run`
    for this rank alone, what started that one: a shell's loop over the ranks.

    Raises:
        psutil.Error: it is gone, or not ours to read.
    """
    ppid = process.ppid()
    key = job_key(environ, ppid)
    if key != f"parent:{ppid}":
        return readable(key)
    parent = process.parent()
    if parent is not None and is_own_run(parent.cmdline()):
        return f"parent:{parent.ppid()}"
    return key


def is_own_run(argv: Sequence[str]) -> bool:
    """Whether it is `hangdoctor run`, also as ``python -m hangdoctor run``."""
    pairs = pairwise(argv[:5])
    return any((word.rpartition("/")[2], verb) == ("hangdoctor", "run") for word, verb in pairs)


def box_name(environ: Mapping[str, str]) -> str:
    """The name that a rank's black box carries; "" where only the rank itself can tell."""
    known = any(environ.get(name) for name in ("SLURM_JOB_ID", "PBS_JOBID", "MASTER_PORT"))
    return readable(identity.job_key(environ)) if known else ""


def keys_of(pid: int) -> list[str]:
    """Keys of the job that a living process belongs to, without and with its launcher; none where
    that may not be read.
    """
    import psutil  # not where a job is over, and many of its files are read

    try:
        process = psutil.Process(pid)
        ppid = process.ppid()
        key = key_of(process, process.environ())
    except (psutil.Error, OSError):
        return []
    return [key, f"{key}/{ppid}"]


def names_job(wanted: str, *names: str) -> bool:
    """Whether `wanted` is one of a job's names, as it is or as it is printed, or a part of one,
    whatever stands between its words; "" names every job.

    A part does not begin or end within a number; one or two digits count at the beginning alone.
    """
    if not wanted:
        return True
    asked = {_plain(wanted), _plain(_ONLY_IN_KEYS.sub("", wanted))} - {""}
    known = {_plain(form) for name in names for form in (name, short_job(name))}
    return any(_is_part(part, name) for part in asked for name in known)


def _is_part(part: str, name: str) -> bool:
    if part.isdigit() and len(part) < _TELLING:
        return re.match(rf"(?:[a-z]+-)?{part}(?!\d)", name) is not None
    before = r"(?<!\d)" if part[0].isdigit() else ""
    after = r"(?!\d)" if part[-1].isdigit() else ""
    return re.search(f"{before}{re.escape(part)}{after}", name) is not None


def is_exactly(wanted: str, *names: str) -> bool:
    """Whether `wanted` is one of the names, however it is punctuated."""
    known = {_plain(form) for name in names for form in (name, short_job(name))}
    return bool(wanted) and _plain(wanted) in known


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower())
