"""Which members a call asks for that makes a process group: the call hangs where ranks ask for others.

Only plain lists, tuples and ranges of plain numbers are looked at; anything else is the job's.
"""

from __future__ import annotations

from ..model.group_id import group_uid
from . import format as fmt
from .group_table import as_range, members_text

TYPE_CHECKING = False
if TYPE_CHECKING:  # loaded by every Python below `hangdoctor run`: no more imports than needed
    from collections.abc import Sequence
    from typing import Any

_MAKERS = ("new_group", "_new_group_with_tag")
_LOCAL = "use_local_synchronization"  # by the members alone: the calls of others do not answer
_LOCAL_AT = {"new_group": 4, "_new_group_with_tag": 5}
_MOST = 1 << 16  # members that are looked at; sorting as many takes some milliseconds


def asked_members(function: str, args: Sequence[Any], kwargs: dict[str, Any], world: int) -> str:
    """``0-3,8``, or how many with the group's uid where a record has no room for all; ``local 0-3`` of a group
    that its members make alone, since other ranks rightly ask for others; "" where nothing shows them.
    """
    if function not in _MAKERS:
        return ""
    local = _is_local(function, args, kwargs)
    ranks = args[0] if args else kwargs.get("ranks")
    if ranks is None:
        ranks = range(world)
    if type(ranks) not in (list, tuple, range) or not 0 < len(ranks) <= _MOST:
        return ""
    if type(ranks) is not range and any(type(rank) is not int for rank in ranks):
        return ""
    members = sorted(ranks)
    text = members_text(as_range(members))
    if local:
        text = f"local {text}"
        return text if len(text) <= fmt.INLINE_BYTES else ""
    if len(text) <= fmt.INLINE_BYTES:
        return text
    return f"{len(members)} ranks, {group_uid(members)}"


def _is_local(function: str, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    at = _LOCAL_AT[function]
    told = args[at] if len(args) > at else kwargs.get(_LOCAL)
    return told is not None and told is not False
