"""Devices whose heartbeats to HCCL had stopped, by the word of those that waited for them."""

from __future__ import annotations

from collections.abc import Sequence

from ...model.log_facts import AnyFact, DeviceLost, RuleText
from ..confidence import Ground, sure
from ..findings import Finding
from ..findings.log_devices import Device, DevicesLost
from .candidate import First
from .scene import Scene

RULE = "hccl_heartbeat"


def lost_devices(scene: Scene, text: RuleText, alike: Sequence[AnyFact]) -> First | None:
    """All that are named; None where the lines do not say which."""
    facts = scene.of(DeviceLost)
    devices = sorted({Device(fact.node, fact.device) for fact in facts})
    if not devices:
        return None
    finding = Finding(
        kind="unreachable",
        ranks=[],
        story=DevicesLost(tuple(devices), text.meaning, text.advice),
        confidence=sure(Ground.LOG_HEARTBEAT),
        nodes=sorted({device.node for device in devices}),
    )
    return First(finding, [*facts, *alike], True)
