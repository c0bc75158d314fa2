"""Devices that logs name, in words: shared GPUs, and those whose heartbeats stopped."""

from __future__ import annotations

from collections.abc import Sequence

from ..findings import Finding
from ..findings.log_devices import Device, DevicesLost, SharedGpu, SharedGpus
from . import stories, terms
from .advice import by_story
from .terms import choose

_MOST = 3  # devices that a sentence names


@stories.tell.register
def _(story: SharedGpus, finding: Finding) -> str:
    sides = [_shared(side) for side in story.sides[:_MOST]]
    more = len(story.sides) - len(sides)
    rest = [f"{terms.count(more, 'more GPU')} alike"] if more else []
    return terms.capital("; ".join([*sides, *rest]))


def _shared(side: SharedGpu) -> str:
    uses = choose(side.ranks, "uses", "use")
    others = " as other ranks" if len(side.ranks) == 1 else ""
    at = f" on {side.node}" if side.node else ""
    return f"{terms.ranks(side.ranks)} {uses} the same GPU{others} ({side.gpu}{at})"


@stories.tell.register
def _(story: DevicesLost, finding: Finding) -> str:
    was = choose(story.devices, "was", "were")
    return f"{terms.capital(_devices(story.devices))} {was} lost first: {story.meaning}"


def _devices(devices: Sequence[Device]) -> str:
    """``device 1 of 10.0.0.4``; of several each."""
    named = [f"device {device.number} of {device.node}" for device in devices[:_MOST]]
    more = len(devices) - len(named)
    return ", ".join([*named, *([f"{more} more"] if more else [])])


@by_story.register
def _(story: SharedGpus, finding: Finding) -> str:
    return story.advice


@by_story.register
def _(story: DevicesLost, finding: Finding) -> str:
    return story.advice.replace("{node}", story.devices[0].node)
