"""The text that torch's analyzer of recorder dumps (torchfrtrace) prints, where the dumps are gone.

Each block names one operation, the ranks that should be in it and those that are not, or that differ.
It trusts the first rank that it reads and calls all that wait elsewhere missing too. Put back
together as records of the ranks, the blocks show who waits for whom.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from ..errors import BadInput
from ..files import read_regular
from ..model.operations import Group, Operation, OpState, RankOps, group_uid
from ..text.late import late
from ..text.plain import readable
from ..text.ranges import MAX_RANKS
from . import fr_trace_table
from .flight_recorder_entry import public_name

_MAX_BYTES = 64 << 20
_MOST_MEMBERS = 1 << 18  # of all blocks: each becomes a record
_WORLD = "default_pg"
_BEGINS = late(
    r"^(?:Not all ranks joining collective(?:[,:] sequence number:)?|Collective sequence number:"
    r"|Input/output mismatch in the collective sequence number:|Collective(?= \d{1,15} at entry \d{1,15} errors))"
    r" (?P<seq>\d{1,15})\b"
)
_FIELD = late(r"^(?P<name>[a-z][a-z ]{3,24}): (?P<value>.+)$")
_NUMBER = late(r"\d{1,7}")
_TRANSFER = late(r"^(?P<op>send|recv) (?P<one>\d{1,7})(?:->|<-)(?P<other>\d{1,7})$")
_CULPRIT = late(
    r"Culprit rank (?P<rank>\d{1,7}); Error type: \w{1,40}"
    r"(?:, Expected (?P<what>collective type|input sizes|output sizes|dtypes|state): "
    r"'(?P<usual>[^']{0,300})' does not (?:\s*)match found [a-z ]{4,20}: '(?P<own>[^']{0,300})')?"
)
_HEAD = ("Not all ranks joining collective", "Collective sequence number:", "Culprit rank ")


class Block(Struct):
    """One operation that the analyzer found fault with."""

    seq: int
    record: int = 0
    group: str = ""
    op: str = ""
    missing: frozenset[int] = frozenset()
    members: tuple[int, ...] | range = ()
    shapes: str = ""
    state: str = "scheduled"
    # Rank -> (what differs, its own value): "collective type", "input sizes" ...
    differ: dict[int, tuple[str, str]] = {}


def is_fr_trace(head: bytes) -> bool:
    """Whether a file begins as the analyzer's output does: warnings may come before it."""
    text = head.decode(errors="replace")
    blocks_of = any(word in text for word in _HEAD) and "group info: " in text
    return blocks_of or fr_trace_table.is_table(text)


def read_file(path: Path) -> dict[int, RankOps]:
    """The records of the ranks, as far as the text shows them.

    Raises:
        BadInput: it cannot be read, or has no block whose members are listed.
    """
    try:
        text = read_regular(path, _MAX_BYTES).decode(errors="replace")
    except OSError as error:
        raise BadInput(f"{path.name}: {error.strerror}") from error
    if fr_trace_table.is_table(text):
        text = "\n".join([text, *fr_trace_table.as_blocks(text)])
    found = records(list(blocks(text)))
    if not found:
        raise BadInput(
            f"{path.name}: the analyzer's output does not list the members of any group",
            "Pass the folder with the ranks' dump files instead.",
        )
    return found


def blocks(text: str) -> Iterator[Block]:
    """The blocks of the text in order."""
    block: Block | None = None
    for line in text.splitlines():
        head = _BEGINS.match(line.strip())
        if head is not None:
            if block is not None:
                yield block
            block = Block(int(head["seq"]))
            continue
        field = _FIELD.match(line.strip())
        if block is not None and field is not None:
            _read_field(block, field["name"], field["value"])
    if block is not None:
        yield block


def _read_field(block: Block, name: str, value: str) -> None:
    if name == "group info":
        block.group = readable(value[:200])
    elif name == "internal record id":
        block.record = next(_numbers(value), 0)
    elif name == "collective":
        block.op = readable(value[:100])
    elif name == "missing ranks":
        block.missing = frozenset(_numbers(value))
    elif name == "expected ranks":
        block.members = _members(block, value)
    elif name == "input sizes":
        block.shapes = readable(value[:300])
    elif name == "collective state":
        block.state = value.strip()
    elif name == "error msg":
        block.differ = {
            int(m["rank"]): (m["what"] or "", readable(m["own"] or ""))
            for m in _CULPRIT.finditer(value)
        }


def _numbers(text: str) -> Iterator[int]:
    return (n for match in _NUMBER.findall(text[:200_000]) if (n := int(match)) < MAX_RANKS)


def _members(block: Block, value: str) -> tuple[int, ...] | range:
    """``{0, 1}``; before torch 2.7 only their number, which is enough for the whole job."""
    numbers = list(_numbers(value))
    if "{" in value or "[" in value:
        return tuple(sorted(set(numbers)))
    if numbers and block.group.endswith(_WORLD):
        return range(numbers[0])
    return ()


# ---------------------------------------------------------------------- back to records


def records(found: list[Block]) -> dict[int, RankOps]:
    """What each rank that the blocks name had pending, as its recorder would have told.

    Raises:
        BadInput: more members than `_MOST_MEMBERS`.
    """
    known = [b for b in found if b.members and (b.state != "completed" or b.differ)]
    if sum(len(b.members) + len(b.missing) for b in known) > _MOST_MEMBERS:
        raise BadInput("the analyzer's output has more members of groups than are read")
    for block in known:  # those who are missing are members, listed as expected or not
        block.members = tuple(sorted({*block.members, *block.missing}))
    world = 1 + max((b.members[-1] for b in known), default=-1)
    ops: dict[int, RankOps] = {}
    pending: dict[int, list[Operation]] = {}
    for block in sorted(known, key=lambda b: (b.record, b.seq)):
        uid = group_uid(block.members)
        group = Group(uid, list(block.members), block.group.partition(":")[2])
        for rank in block.members:
            own = ops.setdefault(rank, _empty(rank, world))
            if group.uid not in own.completed:
                own.groups.append(group)
                own.completed[uid] = block.seq - 1
            if rank not in block.missing:
                pending.setdefault(rank, []).append(_operation(block, uid, rank))
    for rank, own in ops.items():
        own.operations = pending.get(rank, [])
        _settle(own)
    return ops


def _empty(rank: int, world: int) -> RankOps:
    return RankOps(
        rank=rank,
        world_size=world,
        source="flight_recorder",
        groups=[],
        runs_ahead=True,
        only_active=True,
        completed={},
    )


def _operation(block: Block, uid: str, rank: int) -> Operation:
    what, own = block.differ.get(rank, ("", ""))
    name = block.op.rpartition(":")[2]
    match = _TRANSFER.match(name)
    peer = -1
    if match is not None and int(match["other"]) < len(block.members):
        peer = block.members[int(match["other"])]
        name = match["op"]
    told = own if what == "state" else block.state
    state: OpState = "done" if told == "completed" else "entered"
    return Operation(
        group=uid,
        seq=block.seq,
        op=public_name(own if what == "collective type" else name),
        state=state,
        peer=peer,
        shapes=own if what == "input sizes" else block.shapes,
        dtype=own if what == "dtypes" else "",
    )


def _settle(own: RankOps) -> None:
    """What it has completed by the blocks is its counter too."""
    for op in own.operations:
        if op.state == "done":
            own.completed[op.group] = max(own.completed[op.group], op.seq)
