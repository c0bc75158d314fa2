"""What the environment and the command line of a process say of it as a rank."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..probe.launch_variables import RANK_NAMES, place_of
from ..text.late import late
from ..text.ranges import MAX_RANKS, number_in

_LAUNCHERS = late(
    r"(^|/)(torchrun|srun|sbatch|salloc|slurmstepd|mpiexec(\.\w+)?|mpirun(\.\w+)?|orted|prted|prterun|hydra_pmi_proxy|deepspeed|"
    r"accelerate|hangdoctor|hd-signals|pdsh|ssh|nohup|timeout|tee|py-spy)$"
)
_LAUNCHER_MODULES = late(
    r"^(torch\.distributed\.(run|launch|elastic\S*)|deepspeed\.launcher\.\S+|accelerate\.commands\.\S+|"
    r"hangdoctor(?!\.train\b)\S*)$"
)
_PYTHON = late(r"^(python|pypy)[\d.]*$|^pt_main_thread$")
_NAMES = tuple(f"{name}=".encode() for name in RANK_NAMES)


def rank_of(environ: Mapping[str, str]) -> tuple[int, int, int, int] | None:
    """(rank, world size, local rank, local world size) as the environment shows; None without a
    rank.

    World size is 0, the local ones -1 and 0, where they are not told.
    """
    place = place_of(environ, _number)
    if place is None:
        return None
    return place.rank, max(place.size, 0), place.local_rank, max(place.local_size, 0)


def _number(environ: Mapping[str, str], name: str) -> int:
    """A number below `MAX_RANKS`. Anyone's program may use these names for something else: a date,
    a score.
    """
    number = number_in(environ.get(name, "").strip())
    return number if 0 <= number < MAX_RANKS else -1


def is_launcher(argv: list[str]) -> bool:
    """True for torchrun, srun, mpiexec and similar launchers, also as ``python -m
    torch.distributed.run``.
    """
    words = argv[:4]
    if not words:
        return False
    if _LAUNCHERS.search(words[0]):
        return True
    if not _PYTHON.match(Path(words[0]).name):
        return False
    for i, word in enumerate(argv[1:6], start=1):
        if word == "-m":
            return i + 1 < len(argv) and _LAUNCHER_MODULES.match(argv[i + 1]) is not None
        if not word.startswith("-"):
            return _LAUNCHERS.search(word) is not None
    return False


def names_a_rank(environ: bytes) -> bool:
    """Whether one of the variables may be in it: raw, as in /proc, and so at little cost."""
    return any(name in environ for name in _NAMES)


def is_python(pid: int, argv: list[str]) -> bool:
    """Whether a Python runs there, by its program or by the name that it was called."""
    try:
        exe = Path(f"/proc/{pid}/exe").readlink().name
    except OSError:
        exe = ""
    called = Path(argv[0]).name if argv else ""
    return any(_PYTHON.match(name) is not None for name in (exe, called))


def gpu_of(environ: Mapping[str, str], local_rank: int) -> str:
    """The GPU that a rank most likely uses: its entry of CUDA_VISIBLE_DEVICES, else its local rank;
    "" without one.
    """
    visible = environ.get("CUDA_VISIBLE_DEVICES", environ.get("HIP_VISIBLE_DEVICES"))
    if visible is None:
        return ""
    devices = [d.strip() for d in visible.split(",") if d.strip()]
    if not devices:
        return "none"
    if len(devices) == 1:
        return devices[0]
    return devices[local_rank] if 0 <= local_rank < len(devices) else ",".join(devices)
