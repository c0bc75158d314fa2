"""What job logs tell of devices that a library names by itself, mostly without a rank."""

from __future__ import annotations

from msgspec import Struct


class SharedGpu(Struct, frozen=True):
    """Ranks that use one GPU; `gpu` is its bus number, `node` is "" where the log does not name it."""

    ranks: tuple[int, ...]
    gpu: str
    node: str = ""


class SharedGpus(Struct, frozen=True):
    """NCCL refused to begin, since ranks share GPUs: none of them failed before the others."""

    sides: tuple[SharedGpu, ...]
    advice: str = ""


class Device(Struct, frozen=True, order=True):
    """A device by its node's address and its number there, which need not be a local rank."""

    node: str
    number: int


class DevicesLost(Struct, frozen=True):
    """Devices from which a library's heartbeats stopped: who says so waited for them."""

    devices: tuple[Device, ...]
    meaning: str
    advice: str = ""


DeviceStory = SharedGpus | DevicesLost
