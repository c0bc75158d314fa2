"""What NCCL RAS tells of processes and their counts."""

from __future__ import annotations

from msgspec import Struct


class OwnNumbers(Struct, frozen=True):
    """Members of a communicator, where nothing says which of the job's ranks they are."""

    communicator: str
    ranks: tuple[int, ...]
    processes: tuple[tuple[str, int, str], ...] = ()  # host, process id, GPU


class LostByRas(Struct, frozen=True):
    """NCCL RAS lost the process; `members` is None where its ranks are the job's."""

    members: OwnNumbers | None
    hosts: tuple[str, ...]
    dead: bool = False  # given up by RAS, and not merely silent


class LostProcesses(Struct, frozen=True):
    """NCCL RAS lost processes and does not say which ranks they were."""

    processes: tuple[tuple[str, int, str], ...]  # host, process id, GPU
    dead: bool  # given up by RAS, and not merely silent


class ErrorByRas(Struct, frozen=True):
    """NCCL RAS reports an error of the process's own."""

    members: OwnNumbers | None
    error: str


class FewerByRas(Struct, frozen=True):
    """NCCL RAS counts fewer launches of `op`; `ahead`: few ranks, while most are behind."""

    members: OwnNumbers | None
    op: str
    launched: int
    ahead: tuple[int, ...] = ()
    ahead_at: int = 0


RasStory = LostByRas | LostProcesses | ErrorByRas | FewerByRas
