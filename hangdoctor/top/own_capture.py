"""A `hangdoctor dump` of this host that `top` runs when asked, and what it has seen in stacks alone."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ..errors import BadInput, CollectorError
from ..files import read_regular
from ..model.diagnosis import Diagnosis
from ..text.job_names import short_job
from ..text.plain import safe_name
from ..watch import unrecorded
from ..watch.live_ranks import RankRow

_CAPTURE_S = 90.0
_MAX_DIAGNOSIS = 512 << 20


class OwnCapture:
    """The newest one."""

    def __init__(self) -> None:
        # Time of day, and by rank the operation that its black box does not record: set at once,
        # since another thread marks.
        self._seen: tuple[float, dict[int, str]] = (0.0, {})

    def run(self, job: str) -> str:
        """The verdict, and its bundle in the current folder.

        Raises:
            CollectorError: it failed, or did not end.
        """
        bundle = f"hangdoctor-{safe_name(short_job(job))}-{time.strftime('%Y%m%d-%H%M%S')}"
        flags = ["--local", "--quiet", "--job", job, "--bundle", bundle]
        command = [sys.executable, "-m", "hangdoctor", "dump", *flags]
        at = time.time()
        try:
            done = subprocess.run(
                command, capture_output=True, stdin=subprocess.DEVNULL, timeout=_CAPTURE_S
            )
        except subprocess.TimeoutExpired:
            raise CollectorError(
                "the capture did not finish", "Try: hangdoctor dump --local"
            ) from None
        said = done.stdout.decode(errors="replace").strip()
        if done.returncode or not said:
            words = done.stderr.decode(errors="replace").strip().splitlines()
            raise CollectorError(words[0] if words else "the capture failed")
        self._seen = (at, _seen_in_stacks(Path(bundle)))
        return f"{said} ({bundle})"

    def mark(self, rows: Sequence[RankRow]) -> None:
        """Say of ranks that have made no progress since in which operation their stacks were."""
        at, ops = self._seen
        unrecorded.mark(rows, ops, time.time() - at)


def _seen_in_stacks(bundle: Path) -> dict[int, str]:
    """Rank -> operation; empty where the bundle cannot be read: its verdict has been shown."""
    try:
        data = read_regular(bundle / "diagnosis.json", _MAX_DIAGNOSIS)
        ranks = msgspec.json.decode(data, type=Diagnosis).ranks
    except (OSError, BadInput, msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return {one.rank: one.unrecorded for one in ranks if one.unrecorded}
