"""What to capture of a node, and how."""

from __future__ import annotations

from msgspec import Struct


class CaptureOptions(Struct, frozen=True):
    """What to capture and how; sent to a node as JSON, so every field has a plain type."""

    job: str = ""  # key, or a part of it; "" is the newest
    slurm_job: str = ""  # ranks of this Slurm job only
    slurm_step: str = ""
    pids: list[int] = []
    user: str = ""
    settle_s: float = 1.0
    timeout_s: float = 20.0
    native: bool = False
    blocking: bool = False
    keep_raw: bool = True
    nccl_dump: bool = (
        False  # let ranks write their Flight Recorder's dump, where that overwrites none
    )
