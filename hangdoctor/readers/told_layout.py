"""The layout of a job in its own words, as its black boxes have it."""

from __future__ import annotations

from collections.abc import Sequence

from ..model.capture import RankCapture
from ..model.layout import Layout


def told_layout(ranks: Sequence[RankCapture]) -> Layout | None:
    """The layout as the job itself has said it to its black boxes; it comes before any guess."""
    return next(
        (r.ops.layout for r in ranks if r.ops is not None and r.ops.layout is not None), None
    )
