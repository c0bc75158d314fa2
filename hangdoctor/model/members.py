"""Which nodes a job has now, where what started agents on them follows the job."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class Members(Struct, frozen=True):
    """The nodes of a job at one moment."""

    expected: frozenset[str] = frozenset()  # that have, or are to have, an agent; empty: unknown
    ended: Mapping[str, bool] = {}  # node whose ranks have ended with it -> whether cleanly
