"""What a launcher's command line says of the job: how many nodes and ranks, and where they meet.

The words are read up to the program that is started: what follows belongs to the training. Of several
launchers in one line (`srun torchrun`) the last one that says a number of ranks counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import structs

from ..errors import UsageError
from ..model.start_up import Launch
from ..text.late import late
from ..text.plain import readable
from ..text.ranges import MAX_RANKS, number_in, parse_hosts
from .launch_files import MOST_NODES, accelerate_config, count_in, host_slots

_MOST_WORDS = 400
_PORT = 29500  # torchrun's own, also accelerate's and DeepSpeed's
# Flags of torchrun and accelerate that take no value.
_BARE = frozenset(
    {
        *("standalone", "no-python", "run-path", "use-env", "module", "m", "logs-specs-none"),
        *("multi-gpu", "cpu", "use-deepspeed", "use-fsdp", "tpu", "quiet", "debug"),
        *("no-local-rank", "no-ssh-check", "force-multi", "enable-each-rank-log", "oversubscribe"),
        *("allow-run-as-root", "exclusive", "label", "overlap", "v", "q", "l", "u"),
    }
)
_TWO_VALUES = frozenset({"mca", "genv", "env", "gmca"})  # of Open MPI and Hydra
_ATTACHED = late(r"-([nN])(\d.*)")  # srun -n8
_MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate",
    "deepspeed.launcher.runner": "deepspeed",
}
_OF_SLURM = {"ntasks": "SLURM_NTASKS", "nodes": "SLURM_JOB_NUM_NODES"}
_PROGRAMS = {
    **dict.fromkeys(("mpirun", "mpiexec", "orterun", "prun"), "mpirun"),
    **{name: name for name in ("torchrun", "srun", "deepspeed", "accelerate")},
}
Flags = Mapping[str, str]


def launch_of(argv: Sequence[str], environ: Mapping[str, str] | None = None) -> Launch | None:
    """What this command line starts; None where no launcher with a number of ranks is in it.

    `environ`: the launcher's own, which may have the list of nodes, or the world size of a program
    that is started without a launcher.
    """
    words = [readable(word) for word in argv[:_MOST_WORDS]]
    environ = environ or {}
    names = _names_by_scheduler(environ)
    found: Launch | None = None
    for place, name in _launchers(words):
        flags = _flags(words[place + 1 :])
        flags = _told_besides(name, flags, environ) | flags
        own = _READERS[name](flags)
        if own is None:
            continue
        names = own.names or names
        found = structs.replace(own, launcher=name)
    if found is None:
        world = number_in(environ.get("WORLD_SIZE", ""))
        found = Launch(world_size=world) if 1 < world < MAX_RANKS else None
    if found is None or (found.world_size < 2 and found.nodes < 2):
        return None
    fits = found.nodes in (0, len(names))
    return structs.replace(found, nodes=found.nodes or len(names), names=names) if fits else found


def _launchers(words: Sequence[str]) -> list[tuple[int, str]]:
    """(place of its last word, kind) of each launcher, up to the training's own program."""
    found: list[tuple[int, str]] = []
    for place, word in enumerate(words):
        before = words[place - 1] if place else ""
        if before == "-m" and word in _MODULES:
            found.append((place, _MODULES[word]))
        elif word.endswith(".py") and Path(word).name not in ("torchrun.py", "deepspeed.py"):
            break
        else:
            name = _PROGRAMS.get(Path(word).name.partition(".")[0], "")
            if name:
                found.append((place, name))
    return found


def first_launcher(argv: Sequence[str]) -> str:
    """torchrun, accelerate, deepspeed, srun or mpirun: the one that this process itself is; "" where
    the line names none.
    """
    found = _launchers([readable(word) for word in argv[:_MOST_WORDS]])
    return found[0][1] if found else ""


def program_of(argv: Sequence[str]) -> str:
    """The script or module that the last launcher of a command line starts, without its folder;
    "" where the line names no launcher or no program.
    """
    words = [readable(word) for word in argv[:_MOST_WORDS]]
    launchers = _launchers(words)
    if not launchers:
        return ""
    rest = words[launchers[-1][0] + 1 :]
    _, place = _read_flags(rest)
    if rest[place : place + 1] == ["--"]:
        place += 1
    return Path(rest[place]).name if place < len(rest) else ""


def _flags(words: Sequence[str]) -> dict[str, str]:
    return _read_flags(words)[0]


def _read_flags(words: Sequence[str]) -> tuple[dict[str, str], int]:
    """({flag without its dashes: value} up to the first word that is neither, where the first one
    counts; the place of that word).
    """
    found: dict[str, str] = {}
    place = 1 if words[:1] == ["launch"] else 0  # accelerate launch
    while place < len(words) and words[place].startswith("-") and words[place] != "--":
        word = words[place]
        attached = _ATTACHED.fullmatch(word)
        name, equals, value = word.lstrip("-").replace("_", "-").partition("=")
        place += 1
        if attached is not None and not word.startswith("--"):
            name, value = attached[1], attached[2]
        elif equals:
            value = word.partition("=")[2]
        elif name not in _BARE:
            value = words[place] if place < len(words) else ""
            place += 2 if name in _TWO_VALUES else 1
        found.setdefault(name, value)
    return found, place


def _told_besides(launcher: str, flags: Flags, environ: Mapping[str, str]) -> dict[str, str]:
    """What its flags need not say: torchrun takes each of them from PET_FLAG, too, as Kubeflow's
    operator sets them, srun those of its job, accelerate from its configuration.
    """
    if launcher == "srun":
        return {flag: environ[name] for flag, name in _OF_SLURM.items() if name in environ}
    if launcher == "accelerate":
        return accelerate_config(flags.get("config-file", ""), environ)
    if launcher != "torchrun":
        return {}
    told = {name: value for name, value in environ.items() if name.startswith("PET_")}
    return {name[4:].lower().replace("_", "-"): value for name, value in told.items()}


def _first(flags: Flags, *names: str) -> str:
    return next((flags[name] for name in names if name in flags), "")


def _torchrun(flags: Flags) -> Launch | None:
    least, _, most = _first(flags, "nnodes").partition(":")
    nodes = count_in(least, MOST_NODES) or 1
    per_node = count_in(_first(flags, "nproc-per-node")) or (
        0 if _first(flags, "nproc-per-node") else 1
    )
    static = _first(flags, "rdzv-backend") in ("", "static")
    where = _first(flags, "rdzv-endpoint")
    if not where and nodes > 1:
        where = _endpoint(_first(flags, "master-addr"), _first(flags, "master-port"))
    return Launch(
        nodes=nodes,
        nodes_at_most=count_in(most, MOST_NODES),
        per_node=per_node,
        world_size=nodes * per_node,
        endpoint=where if ":" in where or not where else f"{where}:{_PORT}",
        node_rank=max(0, number_in(_first(flags, "node-rank"))) if static else -1,
        run=_first(flags, "rdzv-id"),
    )


def _endpoint(name: str, port: str) -> str:
    return f"{name or '127.0.0.1'}:{count_in(port) or _PORT}"


def _accelerate(flags: Flags) -> Launch | None:
    nodes = count_in(_first(flags, "num-machines"), MOST_NODES) or 1
    world = count_in(_first(flags, "num-processes"))
    where = _endpoint(
        _first(flags, "main-process-ip"),
        _first(flags, "main-process-port"),
    )
    even = world % nodes == 0
    return Launch(
        nodes=nodes,
        per_node=world // nodes if even else 0,
        world_size=world,
        endpoint=where if nodes > 1 else "",
        node_rank=max(0, number_in(_first(flags, "machine-rank"))),
    )


def _deepspeed(flags: Flags) -> Launch | None:
    per_node = count_in(_first(flags, "num-gpus", "num-accelerators"))
    slots = host_slots(_first(flags, "hostfile", "H"))
    nodes = count_in(_first(flags, "num-nodes"), MOST_NODES)
    if slots and not nodes and not _first(flags, "include", "i", "exclude", "e"):
        names = tuple(slots)
        sizes = {per_node or n for n in slots.values()}
        own = sizes.pop() if len(sizes) == 1 else 0
        world = own * len(names) or sum(slots.values())
        return Launch(nodes=len(names), per_node=own, world_size=world, names=names)
    return Launch(nodes=nodes, per_node=per_node, world_size=nodes * per_node)


def _srun(flags: Flags) -> Launch | None:
    nodes = count_in(_first(flags, "N", "nodes").partition("-")[0], MOST_NODES)
    per_node = count_in(_first(flags, "ntasks-per-node"))
    world = count_in(_first(flags, "n", "ntasks")) or nodes * (per_node or 1)
    return _numbers(world, nodes, per_node, _hosts(_first(flags, "nodelist", "w")))


def _mpirun(flags: Flags) -> Launch | None:
    told = _first(flags, "host", "H", "hosts")
    slots = {name: count_in(n) or 1 for name, _, n in (h.partition(":") for h in told.split(","))}
    slots.pop("", None)
    if not slots:
        slots = host_slots(_first(flags, "hostfile", "machinefile", "f"))
    per_node = count_in(_first(flags, "ppn", "npernode", "N"))
    mapped = re.fullmatch(r"ppr:(\d{1,6}):node.*", _first(flags, "map-by"))
    per_node = per_node or (count_in(mapped[1]) if mapped is not None else 0)
    world = count_in(_first(flags, "n", "np", "c")) or sum(slots.values())
    return _numbers(world, 0, per_node, tuple(slots))


def _numbers(world: int, nodes: int, per_node: int, names: tuple[str, ...]) -> Launch:
    """With what follows from the other numbers."""
    nodes = nodes or len(names)
    if not nodes and per_node:
        nodes = -(-world // per_node)
    if not per_node and nodes and world % nodes == 0:
        per_node = world // nodes
    return Launch(nodes=nodes, per_node=per_node, world_size=world, names=names)


_READERS: Mapping[str, Callable[[Flags], Launch | None]] = {
    "torchrun": _torchrun,
    "accelerate": _accelerate,
    "deepspeed": _deepspeed,
    "srun": _srun,
    "mpirun": _mpirun,
}


def _names_by_scheduler(environ: Mapping[str, str]) -> tuple[str, ...]:
    told = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST", "")
    return _hosts(told) or tuple(host_slots(environ.get("PBS_NODEFILE", "")))


def _hosts(text: str) -> tuple[str, ...]:
    try:
        return tuple(parse_hosts(text)) if text else ()
    except UsageError:
        return ()
