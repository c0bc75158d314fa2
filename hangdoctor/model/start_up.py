"""What a rank in set-up shows of its way to the store, what its launcher was asked to start, and who
is expected.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class StoreView(Struct, omit_defaults=True):
    """A rank's store (MASTER_ADDR, MASTER_PORT), as its own node sees it.

    `link`: "listens" on the port, "connected" to it, "asks" (its SYN has no answer), or "none".
    """

    name: str = ""
    port: int = 0
    addresses: list[str] = []  # that the name leads to on this node; none where it does not resolve
    link: Literal["", "listens", "connected", "asks", "none"] = ""
    refused: str = ""  # why a connection attempt from this node failed; "" where none was made


class Import(Struct, omit_defaults=True):
    """The module that a rank's main thread imports."""

    module: str  # "torch", "torch.distributed"
    file: str = ""
    seconds: float = 0.0  # since the process began
    mount: str = ""  # where the file's file system is mounted
    filesystem: str = ""  # its type, as in /proc/PID/mountinfo


class Launch(Struct, omit_defaults=True, frozen=True):
    """What a launcher was asked to start, by its command line. Numbers are 0 where it does not say."""

    launcher: str = ""  # "torchrun", "mpirun", ...
    nodes: int = 0  # that it needs
    nodes_at_most: int = 0  # where it takes more than it needs
    per_node: int = 0  # ranks
    world_size: int = 0  # ranks, of the nodes that it needs
    endpoint: str = ""  # of the rendezvous: "n1:29500"
    node_rank: int = -1  # of the node that it runs on; -1: the rendezvous gives it one
    names: tuple[str, ...] = ()  # of the nodes, in the order of their ranks
    run: str = ""  # torchrun's --rdzv-id


class WaitingAgent(Struct, omit_defaults=True, frozen=True):
    """torchrun's agent on a node, which runs no rank: it waits for other nodes."""

    pid: int
    launch: Launch
    come: int = 0  # nodes, as far as its store's connections show; 0 where the store is elsewhere
    seconds: float = 0.0  # since it was started
    store: StoreView | None = None  # its way to the rendezvous
    script: str = ""  # that it is to start, or the module, without its folder
