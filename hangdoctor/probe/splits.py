"""How many elements a call of an uneven all_to_all sends to each member and expects of each: where two
members disagree, it never ends, and nothing else in a record shows that.

They lie in the record itself, as long as they have room there: one character a number for 23 members,
more for fewer. Nothing here runs code of the job: only plain numbers in lists and numpy's own arrays
are looked at.
"""

from __future__ import annotations

from . import format as fmt
from .mpi_calls import whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    Splits = Callable[[Sequence[Any], dict[str, Any]], str]

_LONGEST = 6  # characters a number: more than any tensor needs
_LISTS = (list, tuple)


def packed(sends: Sequence[int], receives: Sequence[int]) -> str:
    """The text for a record: `=` where all numbers are whole and `~` where they are cut, how many
    characters each has, and the numbers; "" where there is no room.
    """
    members = len(sends)
    if not members or len(receives) != members or min(*sends, *receives) < 0:
        return ""
    digits = min(_LONGEST, (fmt.INLINE_BYTES - 3) // (2 * members))
    if not digits:
        return ""
    limit = fmt.SPLIT_BASE**digits
    mark = "=" if max(*sends, *receives) < limit else "~"
    numbers = (_spelled(n % limit, digits) for n in (*sends, *receives))
    return f"{mark}{digits}{''.join(numbers)}"


def _spelled(number: int, digits: int) -> str:
    found = []
    for _ in range(digits):
        number, digit = divmod(number, fmt.SPLIT_BASE)
        found.append(fmt.SPLIT_DIGITS[digit])
    return "".join(reversed(found))


def _numbers(given: Any) -> list[int]:
    """Plain numbers; none where it is another thing."""
    kind = type(given)
    if kind.__name__ == "ndarray" and kind.__module__ == "numpy":
        given = given.ravel().tolist() if given.size <= fmt.INLINE_BYTES else ()
    if type(given) not in _LISTS or len(given) > fmt.INLINE_BYTES:
        return []
    found = [whole(number) for number in given]
    return [] if -1 in found else found


def of_single(args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    """Of torch's all_to_all_single: rows of the tensors."""
    receives = args[2] if len(args) > 2 else kwargs.get("output_split_sizes")
    sends = args[3] if len(args) > 3 else kwargs.get("input_split_sizes")
    return packed(_numbers(sends), _numbers(receives))


def of_vectors(args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    """Of MPI's Alltoallv, whose buffers are [data, counts, ...] or [data, (counts, displacements), ...]."""
    sends = args[0] if args else kwargs.get("sendbuf")
    receives = args[1] if len(args) > 1 else kwargs.get("recvbuf")
    return packed(_counts(sends), _counts(receives))


def _counts(spec: Any) -> list[int]:
    given: Any = spec[1] if type(spec) in _LISTS and len(spec) > 1 else ()
    pair = type(given) in _LISTS and len(given) == 2 and type(given[0]) is not int
    return _numbers(given[0] if pair else given)
