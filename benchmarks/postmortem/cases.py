"""The held cases: written before the tool was tried on any of them, and not used to develop it.

Each says how the job is started, which fault it has, how it is ended, and which verdicts are right.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Start = Literal["torchrun", "each", "two nodes", "spawn", "without run"]
End = Literal["", "TERM", "INT", "KILL run", "KILL ranks"]

CRASH = ("dead", "error")
HELD = ("not_entered", "busy", "io_wait", "data_wait")


@dataclass(frozen=True)
class Case:
    """One job."""

    name: str
    start: Start
    program: str
    words: tuple[str, ...]
    kinds: tuple[str, ...]  # that are right; none where no rank is to be named
    ranks: tuple[frozenset[int], ...]  # the sets of ranks that are right
    world: int = 4
    end: End = ""  # how the driver ends it
    environ: dict[str, str] = field(default_factory=dict)
    wider: frozenset[int] = frozenset()  # ranks that are no victims either


def case(
    start: Start,
    program: str,
    words: str,
    kinds: tuple[str, ...],
    *ranks: int | tuple[int, ...],
    world: int = 4,
    end: End = "",
    wider: tuple[int, ...] = (),
    **environ: str,
) -> Case:
    """One job; `ranks`: each a set that is right."""
    sets = tuple(frozenset([r] if isinstance(r, int) else r) for r in ranks)
    name = f"{start}: {program} {words}" + (f", {end}" if end else "")
    return Case(
        name=name,
        start=start,
        program=program,
        words=tuple(words.split()),
        kinds=kinds,
        ranks=sets,
        world=world,
        end=end,
        environ=environ,
        wider=frozenset(wider),
    )


CASES = (
    # A rank's own end, in groups of rows and columns.
    case("torchrun", "grid", "raise 3 2", ("error",), 3),
    case("torchrun", "grid", "chained 0 1", ("error",), 0),
    case("torchrun", "grid", "device 2 5", ("error",), 2),
    case("torchrun", "grid", "kill 1 3", ("dead",), 1),
    case("torchrun", "grid", "term 2 4", ("dead",), 2),
    case("torchrun", "grid", "bus 3 1", ("dead",), 3),
    case("torchrun", "grid", "abort 0 3", ("dead",), 0),
    case("torchrun", "grid", "exit 1 6", ("dead",), 1),
    case("torchrun", "grid", "logged 2 3", CRASH, 2),
    case("torchrun", "grid", "leave 3 4", ("not_entered", "end_stall", "order", *CRASH), 3),
    case("torchrun", "grid", "exit_zero 1 5", ("not_entered", "end_stall", *CRASH), 1),
    case("torchrun", "grid", "memory 5 2", CRASH, 5, world=6),
    case("torchrun", "grid", "null 4 7", ("dead",), 4, world=6),
    case("torchrun", "grid", "kill 1 2 kill 4 2", ("dead",), 1, 4, (1, 4), world=6),
    # Before the groups are made.
    case("torchrun", "grid", "word 2 0", CRASH, 2),
    case("torchrun", "grid", "raise 0 0", ("error",), 0),
    case("torchrun", "chain", "assertion 1 import", CRASH, 1),
    # A chain of sends and receives.
    case("torchrun", "chain", "raise 2 received", ("error",), 2),
    case("torchrun", "chain", "kill 1 sent", ("dead",), 1),
    case("torchrun", "chain", "endless 3 received", ("error",), 3),
    case("torchrun", "chain", "fpe 0 closing", ("dead",), 0),
    case("torchrun", "chain", "thread 3 closing", ("dead",), 3),
    # DistributedDataParallel and its data loader.
    case("torchrun", "ddp", "raise 1 loader", ("error",), 1, world=3),
    case("torchrun", "ddp", "raise 2 worker", ("error",), 2, world=3),
    case("torchrun", "ddp", "kill 1 worker", CRASH, 1, world=3),
    case("torchrun", "ddp", "assertion 0 forward", ("error",), 0, world=3),
    case("torchrun", "ddp", "chained 2 gradient", ("error",), 2, world=3),
    case("torchrun", "ddp", "exit 1 step", ("dead",), 1, world=3),
    case("torchrun", "ddp", "raise 0 save", ("error",), 0, world=3),
    # Ranks without variables, that one program starts.
    case("spawn", "spawn", "4 raise 1 3", ("error",), 1),
    case("spawn", "spawn", "4 kill 2 2", ("dead",), 2),
    case("spawn", "spawn", "3 exit 0 4", ("dead",), 0, world=3),
    case("spawn", "spawn", "3 null 1 5", ("dead",), 1, world=3),
    # One `hangdoctor run` a rank, and one a node.
    case("each", "grid", "raise 2 3", ("error",), 2),
    case("each", "grid", "kill 0 4", ("dead",), 0),
    case("each", "chain", "exit 3 sent", ("dead",), 3),
    case("two nodes", "grid", "kill 2 3", ("dead",), 2),
    case("two nodes", "grid", "raise 1 5", ("error",), 1),
    # Restarts: the last attempt is the one that ended the job.
    case("torchrun", "grid", "raise 3 2", ("error",), 3, RESTARTS="1"),
    case("torchrun", "grid", "once_kill 1 2 raise 2 4", CRASH, 2, RESTARTS="1"),
    case("torchrun", "grid", "once_raise 2 3", CRASH, (), 2, RESTARTS="1"),
    # A hang, and then its end.
    case("torchrun", "grid", "sleep 2 3", HELD, 2, end="TERM"),
    case("torchrun", "grid", "spin 1 4", HELD, 1, end="INT"),
    case("torchrun", "grid", "stop 3 2", ("stopped", "dead", *HELD), 3, end="KILL ranks"),
    case("torchrun", "grid", "sleep 0 5", HELD, 0, end="KILL run"),
    case("torchrun", "chain", "fifo 1 received", ("p2p_unmatched", *HELD), 1, end="TERM"),
    case("torchrun", "grid", "sleep 3 2", HELD, 3, LIMIT_S="6"),
    case("spawn", "spawn", "4 sleep 2 3", HELD, 2, end="KILL ranks"),
    case("each", "grid", "sleep 1 3", HELD, 1, end="TERM"),
    # A job that went on, and was ended.
    case("torchrun", "grid", "", (), (), end="TERM", TURNS="100000"),
    case("torchrun", "grid", "", (), (), end="KILL ranks", TURNS="100000"),
    case("each", "grid", "", (), (), end="TERM", TURNS="100000"),
    # Boxes alone: their parent was not `hangdoctor run`, or it was killed.
    case("without run", "grid", "raise 1 3", ("error",), 1),
    case("without run", "grid", "kill 2 3", CRASH, 2),
    case("without run", "chain", "exit 1 sent", CRASH, 1),
    case("without run", "grid", "abort 3 5", CRASH, 3),
    case("without run", "grid", "sleep 2 4", HELD, 2, end="KILL ranks"),
    case("without run", "grid", "", (), (), end="KILL ranks", TURNS="100000"),
)
