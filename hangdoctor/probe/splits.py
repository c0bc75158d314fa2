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
_ROOM = fmt.INLINE_BYTES - 3  # for the numbers
_BITS = (fmt.SPLIT_BASE - 1).bit_length()  # of a character
_ONE, _TWO = fmt.SPLIT_BASE - 1, fmt.SPLIT_BASE**2 - 1
_PLAIN = {int}
_pairs: list[str] = []  # all texts of two characters, made when the first is asked for
_LISTS = (list, tuple)


def packed(sends: Sequence[int], receives: Sequence[int]) -> str:
    """The text for a record: `=` where all numbers are whole and `~` where they are cut, how many
    characters each has, and the numbers; "" where there is no room.
    """
    members = len(sends)
    room = min(_LONGEST, _ROOM // (2 * members)) if members else 0
    if not room or len(receives) != members:
        return ""
    numbers = [*sends, *receives]
    if min(numbers) < 0:
        return ""
    needed = max(1, -(-max(numbers).bit_length() // _BITS))
    digits = min(needed, room)
    return f"{'=' if digits == needed else '~'}{digits}{_spelled(numbers, digits)}"


def _spelled(numbers: Sequence[int], digits: int) -> str:
    """So many characters of each, its last ones."""
    if digits == 1:
        return "".join([fmt.SPLIT_DIGITS[n & _ONE] for n in numbers])
    if not _pairs:
        _pairs.extend(a + b for a in fmt.SPLIT_DIGITS for b in fmt.SPLIT_DIGITS)
    pairs = _pairs
    if digits == 2:
        return "".join([pairs[n & _TWO] for n in numbers])
    found = []
    for number in numbers:
        ends = [pairs[number >> at & _TWO] for at in range((digits - 2) * _BITS, -1, -2 * _BITS)]
        if digits % 2:
            ends.append(fmt.SPLIT_DIGITS[number & _ONE])
        found += ends
    return "".join(found)


def _numbers(given: Any) -> Sequence[int]:
    """Plain numbers; none where it is another thing."""
    kind = type(given)
    if kind.__name__ == "ndarray" and kind.__module__ == "numpy":
        given = given.ravel().tolist() if given.size <= fmt.INLINE_BYTES else ()
    if type(given) not in _LISTS or len(given) > fmt.INLINE_BYTES:
        return ()
    numbers: Sequence[int] = given
    if {*map(type, numbers)} <= _PLAIN:
        return numbers
    found = [whole(number) for number in given]
    return () if -1 in found else found


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


def _counts(spec: Any) -> Sequence[int]:
    given: Any = spec[1] if type(spec) in _LISTS and len(spec) > 1 else ()
    pair = type(given) in _LISTS and len(given) == 2 and type(given[0]) is not int
    return _numbers(given[0] if pair else given)
