"""`--fault KIND@RANK:ITERATION[:WHERE]`: which faults exist, where each can strike, how one is
written.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from ..options import ConfigError

# Places in an iteration where a rank can be blocked, in the order in which it passes them.
PLACES = {
    "step": "at the start of the iteration, outside of any operation",
    "data": "in the rank, before it takes a micro-batch from its loader",
    "forward": "before a forward pass",
    "tp": "before a tensor parallel collective",
    "send": "before a pipeline send",
    "recv": "before a pipeline receive",
    "backward": "before a backward pass",
    "tied": "before the reduction of the tied embedding's gradient",
    "dp": "before the data parallel gradient reduction (after_dp: behind it)",
    "optimizer": "before the optimizer step",
    "evaluate": "before an evaluation",
    "checkpoint": "before a checkpoint save",
}
ANYWHERE = tuple(PLACES)
OUTSIDE = ("rendezvous", "groups", "destroy")  # passed once, in no iteration


@dataclass(frozen=True)
class Kind:
    """What a fault does; `places` it can strike at, the first one by default; `cause` is CONTRACT's
    name for it.
    """

    does: str
    places: tuple[str, ...]
    cause: str
    needs_gpu: bool = False


_HOLD = ("tp", *[p for p in ANYWHERE if p != "tp"])
_STEP = ("step", *[p for p in ANYWHERE if p != "step"])
_COLLECTIVE = ("tp", "dp")

KINDS: dict[str, Kind] = {
    "sleep": Kind("sleeps forever", _HOLD, "not_entered"),
    "read": Kind("reads from a pipe that no process writes to", _HOLD, "not_entered"),
    "lock": Kind("waits for a lock that its other thread never releases", _HOLD, "not_entered"),
    "busy": Kind("runs Python forever", _HOLD, "busy"),
    "stop": Kind("stops itself with SIGSTOP", _STEP, "stopped"),
    "kill": Kind("kills itself with SIGKILL", _STEP, "dead"),
    "exit": Kind("exits with code 0 early, without telling its peers", _STEP, "dead"),
    "io_wait": Kind(
        "enters uninterruptible sleep (state D): a vfork whose child opens a FIFO", _STEP, "io_wait"
    ),
    "gil": Kind("sleeps in C with the GIL held", _STEP, "interpreter_lock"),
    "fork_lock": Kind(
        "forks while another thread holds a lock, waits for the child, which waits for the lock",
        _STEP,
        "interpreter_lock",
    ),
    "data_stuck": Kind("its data loader worker blocks reading", ("worker",), "data_wait"),
    "data_dead": Kind(
        "its data loader worker is stopped as if dead: silent, not reaped", ("worker",), "data_wait"
    ),
    "checkpoint_fifo": Kind(
        "its checkpoint writer blocks on a FIFO", ("writer",), "checkpoint_wait"
    ),
    "skip": Kind("skips one collective", _COLLECTIVE, "order"),
    "extra": Kind("makes one collective too many", ("tp", "after_dp"), "order"),
    "wrong_group": Kind("calls the collective on another group", _COLLECTIVE, "order"),
    "wrong_op": Kind("broadcasts where its peers all-reduce", _COLLECTIVE, "mismatch"),
    "wrong_shape": Kind("all-reduces half of the tensor", _COLLECTIVE, "mismatch"),
    "wrong_dtype": Kind("all-reduces in another dtype", _COLLECTIVE, "mismatch"),
    "wrong_root": Kind(
        "broadcasts the micro-batch from another root than its peers", ("batch",), "mismatch"
    ),
    "missing_send": Kind("skips one pipeline send", ("send",), "p2p_unmatched"),
    "missing_recv": Kind("skips one pipeline receive", ("recv",), "p2p_unmatched"),
    "no_rendezvous": Kind("never joins the process group", ("rendezvous",), "start_stall"),
    "no_group": Kind("joins, and never makes its sub-groups", ("groups",), "start_stall"),
    "end": Kind(
        "makes one more collective while its peers tear down the groups", ("destroy",), "end_stall"
    ),
    "blackhole": Kind(
        "its connections swallow every byte, both ways, and stay open",
        _COLLECTIVE,
        "in_communication",
    ),
    "device_wait": Kind(
        "a kernel on its GPU does not finish", ("forward", *ANYWHERE), "device_wait", True
    ),
    "slow": Kind(
        "sleeps 0.5 s at each pass of the place (a forward pass: once a micro-batch), from this iteration on; no rank hangs",
        ("forward", *ANYWHERE),
        "slow",
    ),
}

# The names that hangdoctor gives to causes work too: each is the first kind that leads to it.
BY_CAUSE = {kind.cause: name for name, kind in reversed(KINDS.items())}

_FORM = re.compile(r"^([a-z_]+)@(\d+):(\d+)(?::([a-z_]+))?$")


@dataclass(frozen=True)
class Fault:
    """A fault by its coordinate: which kind, in which rank, iteration and place of the step."""

    kind: str
    rank: int
    iteration: int
    where: str


def parse_fault(text: str, world_size: int, has_gpu: bool = False) -> Fault:
    """One fault.

    Raises:
        ConfigError: not of the form, no such kind, rank or place.
    """
    match = _FORM.match(text.strip())
    if match is None:
        raise ConfigError(
            f"--fault '{text}': write KIND@RANK:ITERATION[:WHERE], for example sleep@3:5:tp"
        )
    kind, rank, iteration, where = match[1], int(match[2]), int(match[3]), match[4]
    kind = kind if kind in KINDS else BY_CAUSE.get(kind, kind)
    if kind not in KINDS:
        near = difflib.get_close_matches(kind, KINDS, 1)
        hint = f"did you mean '{near[0]}'?" if near else "one of: " + ", ".join(KINDS)
        raise ConfigError(f"--fault: no kind '{kind}'; {hint}")
    if rank >= world_size:
        raise ConfigError(
            f"--fault {text}: rank {rank} of a world of {world_size}; ranks are 0 to {world_size - 1}"
        )
    places = KINDS[kind].places
    if where is not None and where not in places:
        raise ConfigError(
            f"--fault: '{kind}' is not possible at '{where}'; it can at: {', '.join(places)}"
        )
    if KINDS[kind].needs_gpu and not has_gpu:
        raise ConfigError(f"--fault: '{kind}' needs a GPU")
    return Fault(kind, rank, iteration, where or places[0])


def parse_faults(text: str, world_size: int, has_gpu: bool = False) -> list[Fault]:
    """Faults separated by commas; none from an empty text.

    Raises:
        ConfigError: see `parse_fault`.
    """
    return [parse_fault(part, world_size, has_gpu) for part in text.split(",") if part.strip()]


def help_lines() -> list[str]:
    """The table of kinds for --help."""
    lines = [
        "Faults (--fault KIND@RANK:ITERATION[:WHERE]; WHERE defaults to the first one named; KIND may be a cause's name)"
    ]
    for name, kind in KINDS.items():
        places = (
            ", ".join(kind.places)
            if len(kind.places) < 6
            else f"{kind.places[0]}, or any of the places below"
        )
        lines.append(f"  {name}: {kind.does} [{kind.cause}] at {places}")
    return [*lines, "Places", *(f"  {name}: {text}" for name, text in PLACES.items())]
