"""A job to be started: the command of a rank, how many ranks there are, and where its files go."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Job:
    """What every system needs. `directives` are further words for the scheduler, one a line of the
    script; `cores` those of a rank (0: as many as the scheduler gives), `gpus` those of a node.
    """

    name: str
    command: tuple[str, ...]
    nodes: int
    per_node: int
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    directives: tuple[str, ...] = ()
    minutes: int = 60
    cores: int = 0
    gpus: int = 0

    @property
    def ranks(self) -> int:
        """How many in all."""
        return self.nodes * self.per_node


def rank_command(*words: str) -> tuple[str, ...]:
    """What starts one rank of the trainer, by this Python."""
    return (sys.executable, "-u", "-m", "hangdoctor.train", *words)


def torchrun_words(job: Job) -> list[str]:
    """The job on this host by torchrun, on a free port; its run is called as the job is."""
    python, *words = job.command
    torchrun = [python, "-m", "torch.distributed.run", "--nnodes=1", "--rdzv-backend=c10d"]
    torchrun += ["--rdzv-endpoint=localhost:0", f"--rdzv-id={job.name}"]
    program = [word for word in words if word != "-u"]
    return [*torchrun, f"--nproc-per-node={job.ranks}", *program]


def torchrun_command(job: Job) -> list[str]:
    """The same inside `hangdoctor run`."""
    return [sys.executable, "-m", "hangdoctor", "run", "--", *torchrun_words(job)]
