"""After how many seconds the job's own process groups give up waiting."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from hangdoctor.text.ranges import number_in

from .tracked_rank import Tracked

_LONGEST_S = 1e9  # a job says "for ever" by any number, and a message has limits
# torch's defaults, https://docs.pytorch.org/docs/stable/distributed.html
_NCCL_S, _GLOO_S = 600.0, 1800.0


def group_timeout(ranks: Collection[Tracked], recorded: Collection[float]) -> float:
    """Seconds until the first group of these ranks gives up: as `recorded` in boxes or named in the
    environment, else torch's default; 0 where nothing says and no rank has a box.
    """
    named = [_timeout_of(rank.found.environ) for rank in ranks]
    known = [seconds for seconds in named if seconds] + list(recorded)
    boxes = [rank for rank in ranks if rank.box is not None]
    if not recorded and boxes:
        known.append(_NCCL_S if any(rank.ahead for rank in boxes) else _GLOO_S)
    return min([_LONGEST_S, *known]) if known else 0.0


def _timeout_of(environ: Mapping[str, str]) -> float:
    """Seconds after which NCCL's own watchdog, or DeepSpeed's groups, give up, where the job's
    environment says so.
    """
    heartbeat, minutes = (
        environ.get(n, "") for n in ("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "DEEPSPEED_TIMEOUT")
    )
    told = [float(number_in(heartbeat)), 60.0 * number_in(minutes)]
    return min((seconds for seconds in told if seconds >= 0), default=0.0)
