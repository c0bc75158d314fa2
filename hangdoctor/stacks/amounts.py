"""Which variables of a program say how many rounds it means to go: micro-batches, steps, messages.

All ranks that run one function mostly have the same number in such a variable. One that has another makes more or
fewer calls than its partners expect. It counts only where the source around the line has a loop up to it: a rank's part
of the data may have another size than the others'.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ..text.late import late
from ..text.ranges import number_in

# Before the name of such a variable among a frame's values
AMOUNT = "amount:"
_MOST = 12  # of one frame
_NEAR = 60  # lines above and below
_SCHEDULES = "torch/distributed/pipelining/schedules.py"
_OF_MEGATRON = "pipeline_parallel/schedules.py"
# What programs go through round by round; those of the second kind may be a rank's part of the data, too
_ROUNDS = (
    r"(?:(?:micro_?|mini_?)?batch(?:es)?|micros?|mbs?|steps?|rounds?|chunks?|iters?|iterations?|messages?|msgs?|requests?|episodes?"
    r"|rollouts?|transfers?|exchanges?|updates?|accum\w{0,20}|epochs?|sweeps?|passes|turns?|waves?|hops?|phases?|repeats?)"
)
_PARTS = r"(?:samples?|items?|records?|parts?|shards?|tensors?|tasks?)"
_SEVERAL = (
    r"(?:(?:micro_?|mini_?)?batches|micros|mbs|steps|rounds|chunks|iters|iterations|messages|msgs|requests|episodes|rollouts"
    r"|transfers|exchanges|updates|epochs|sweeps|passes|turns|waves|hops|phases|repeats)"
)
_AMOUNT = late(
    rf"^(?:n|num|number|count|total|limit|times)$|^(?:\w{{1,20}}_)?{_SEVERAL}$"
    rf"|^(?:n|num|number|no|max|total|count)_?(?:of_)?(?:\w{{1,20}}_)?(?:{_ROUNDS}|{_PARTS})$"
    rf"|^(?:{_ROUNDS}|{_PARTS})(?:_\w{{1,20}})?_(?:count|num|number|total|per_\w{{1,20}})$"
)


def amounts(numbers: Mapping[str, int], lines: Sequence[str], number: int) -> dict[str, int]:
    """Those of a frame's whole numbers, by their names with the prefix; its line is `number` (from 1) of these."""
    named = [name for name in sorted(numbers) if _AMOUNT.search(name)]
    around = "\n".join(lines[max(0, number - _NEAR) : number + _NEAR]) if named else ""
    bounds = [name for name in named if _is_bound(name, around)]
    return {AMOUNT + name: numbers[name] for name in bounds[:_MOST]}


def of_pipeline(file: str, name: str, shown: Mapping[str, str]) -> dict[str, int]:
    """The number of micro-batches of a step of ``torch.distributed.pipelining``, by the lists of
    their arguments as py-spy shows them, or of Megatron's; {} of other frames, and where the lists
    are too long to be shown whole.
    """
    if file.endswith(_OF_MEGATRON) and name.startswith("forward_backward_pipelining"):
        number = number_in(shown.get("num_microbatches", ""))
        return {AMOUNT + "num_microbatches": number} if number > 0 else {}
    if not (file.endswith(_SCHEDULES) and name.rpartition(".")[2] == "_step_microbatches"):
        return {}
    known = [_length(shown.get(of, "")) for of in ("kwarg_mbs", "arg_mbs")]
    most = max(known)
    return {AMOUNT + "n_microbatches": most} if most > 0 else {}


def _length(shown: str) -> int:
    """How many elements a list has; 0 where it does not show."""
    if not (shown.startswith("[") and shown.endswith("]")) or "..." in shown:
        return 0
    depth, commas = 0, 0
    for character in shown[1:-1]:
        depth += (character in "([{") - (character in ")]}")
        commas += character == "," and depth == 0
    return commas + 1 if len(shown) > len("[]") else 0


def _is_bound(name: str, text: str) -> bool:
    """Whether a loop goes up to it: ``range(n - warm_up)``, ``while sent < n``."""
    own = rf"(?<![\w.]){re.escape(name)}\b"
    return (
        re.search(rf"\brange\([^\n]{{0,120}}?{own}|\bwhile\b[^\n]{{0,120}}?[<>]=? ?{own}", text)
        is not None
    )
