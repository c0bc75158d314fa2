"""Which variables of a program say how many rounds it means to go: micro-batches, steps, messages.

All ranks that run one function mostly have the same number in such a variable. One that has another makes more or
fewer calls than its partners expect.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..text.late import late

# Before the name of such a variable among a frame's values
AMOUNT = "amount:"
_MOST = 12  # of one frame
_THINGS = (
    r"(?:(?:micro_?|mini_?)?batch(?:es)?|mbs?|steps?|rounds?|chunks?|iters?|iterations?|samples?|messages?|msgs?|requests?|items?"
    r"|records?|parts?|shards?|episodes?|rollouts?|tensors?|transfers?|exchanges?|updates?|accum\w{0,20}|epochs?)"
)
_AMOUNT = late(
    rf"^(?:n|num|number|count|total|limit|rounds|times|chunks|microbatches|micro_batches)$"
    rf"|^(?:n|num|number|no|max|total|count)_?(?:of_)?(?:\w{{1,20}}_)?{_THINGS}$"
    rf"|^{_THINGS}(?:_\w{{1,20}})?_(?:count|num|number|total|per_\w{{1,20}})$"
)


def amounts(numbers: Mapping[str, int]) -> dict[str, int]:
    """Those of a frame's whole numbers, by their names with the prefix."""
    found = {AMOUNT + name: n for name, n in numbers.items() if _AMOUNT.search(name)}
    return dict(sorted(found.items())[:_MOST])
