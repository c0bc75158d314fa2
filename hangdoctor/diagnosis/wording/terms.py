"""How ranks, nodes, processes, frames, operations and durations are written: `docs/voice.md`, "How
things are written".
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Sequence

from msgspec import structs

from ...model.capture import Frame
from ...stacks.user_code import is_comprehension
from ...text.durations import duration as duration
from ...text.group_words import group_words
from ...text.late import late
from ...text.plain import cut_at_word
from ...text.plural import choose as choose
from ...text.plural import count as count
from ...text.plural import ranks as ranks
from ...text.ranges import format_hosts, format_ranks
from ..findings import Doing, End, GroupRef, Home, Op, PartApart

_TRANSFERS = {"send": "to", "isend": "to", "recv": "from", "irecv": "from"}
LONGEST = 200  # characters of a verdict's sentence
_NODES = 4  # named in one place
_COMMAND = 40  # characters of a command line
_SIDES = 3  # operations that a sentence names, each with its ranks
# Of a path all but its last name; an address of the web has two strokes
_FOLDERS = late(r"(?<![\w:/.-])(?:\.{0,2}/)?(?:[\w.+@-]{1,80}/){2,30}(?=[\w.+@-])")
_ALARM = late(r"\b(?:FATAL )?(?:ERROR|Error)\b ?: {0,3}")
_LONG_WORDS = 70  # characters, above which words of alarm before the rest are left out
_ENOUGH = 30  # characters of a sentence
_LONGEST_LIST = 40  # characters of a group's members
_CALLS = {
    "clock_nanosleep": "sleeping",
    "nanosleep": "sleeping",
    "futex": "waiting for a lock or another thread",
    "wait4": "waiting for a child process",
    "waitid": "waiting for a child process",
    "pause": "waiting for a signal",
    "queue.get": "waiting for an element of a queue",
    "queue.put": "waiting for room in a queue",
}


def capital(text: str) -> str:
    """`text` with a capital first letter."""
    return text[:1].upper() + text[1:]


def on_sides(values: Sequence[str], sides: Sequence[Sequence[int]]) -> list[str]:
    """What each side has, with its ranks where they are known: ``shapes [8] on ranks 0-1``."""
    if len(sides) != len(values):
        return list(values)
    return [f"{value} on {ranks(side)}" for value, side in zip(values, sides, strict=True)]


def are(some: Sequence[int]) -> str:
    """``rank 3 is``, ``ranks 0-2 are``."""
    return f"{ranks(some)} {choose(some, 'is', 'are')}"


def have(some: Sequence[int]) -> str:
    """``rank 3 has``, ``ranks 0-2 have``."""
    return f"{ranks(some)} {choose(some, 'has', 'have')}"


def who(some: Sequence[int], homes: Sequence[Home], nodes: Sequence[str] = ()) -> str:
    """``Rank 3 (n2, pid 812)``; of several ranks the nodes alone."""
    name = capital(ranks(some))
    if len(some) == 1 and homes:
        home = homes[0]
        parts = [
            home.node,
            f"pid {home.pid}" if home.pid else "",
            f"GPU {home.gpu}" if home.gpu else "",
        ]
        inner = ", ".join(p for p in parts if p)
    else:
        at = sorted({h.node for h in homes if h.node} or set(nodes))
        inner = format_hosts(at) if len(at) <= _NODES else count(len(at), "node")
    return f"{name} ({inner})" if inner else name


def host_names(names: Iterable[str]) -> str:
    """``n[2-3]``; of many, how many."""
    known = sorted(set(names))
    return format_hosts(known) if len(known) <= _NODES else count(len(known), "node")


def the_nodes(names: Iterable[str]) -> str:
    """``Node n2``, ``Nodes n[2-3]``; of many, how many."""
    number = len(set(names))
    word = choose(number, "Node ", "Nodes ") if number <= _NODES else ""
    return f"{word}{host_names(names)}"


def share(part: float) -> str:
    """A share of 1 as ``61 %``."""
    return f"{part:.0%}".replace("%", " %")


def command(line: str) -> str:
    """A command line in a sentence, cut at a word."""
    return cut_at_word(line, _COMMAND)


def thread(name: str, tid: int) -> str:
    """A thread of a rank in a sentence: ``its thread 'saver'``; by its number where it has no name."""
    if not name:
        return f"thread {tid}"
    return "its main thread" if name == "MainThread" else f"its thread '{name}'"


def frame(of: Frame) -> str:
    """A frame in a sentence: ``load_batch (data.py:40)``; of a nested function its own name, of a
    comprehension that of the function around it.
    """
    around = of.name.rpartition(".<locals>.")[0] if is_comprehension(of) else ""
    name = (around or of.name).rpartition("<locals>.")[2]
    return f"{name} ({line(of)})" if line(of) else name


def long_frame(of: object) -> str:
    """A frame in evidence, ``function (folder/file.py:12)``: the last two parts of the path."""
    text = str(of)
    head, _, tail = text.rpartition(" (")
    parts = tail.rstrip(")").split("/")
    return f"{head} ({'/'.join(parts[-2:])})" if head else text


def site(text: str) -> str:
    """A recorded line, ``function (path:line)``, in a sentence: the file's name and the line
    alone.
    """
    return text.rpartition(" (")[2].rstrip(")").rpartition("/")[2]


def group(of: GroupRef) -> str:
    """``TP group 2-3``, ``group 'mine' (0-3)``; "" for the whole job."""
    if of.axis == "world":
        return ""
    return group_words(of.axis or of.name, _members(of.ranks))


def _members(ranks: tuple[int, ...]) -> str:
    """``0-7``; of a long list its ends: ``168,424,...,16296``."""
    text = format_ranks(ranks)
    if len(text) <= _LONGEST_LIST:
        return text
    return f"{ranks[0]},{ranks[1]},...,{ranks[-1]}"


def op(of: Op) -> str:
    """``all_reduce #12``, ``recv #5 from rank 1``, ``all_reduce in step (train.py:31)``."""
    name = f"{of.name or 'operation'} #{of.seq}" if of.seq >= 0 else of.name
    if of.name in _TRANSFERS and (of.peers or of.peer is not None):
        return f"{name} {_peer(of, _TRANSFERS[of.name])}"
    if of.seq < 0:
        return f"{name} in {frame(of.frame)}" if of.frame is not None else name
    where = group(of.group)
    return f"{name} of {where}" if where else name


def _peer(of: Op, way: str) -> str:
    """``to rank 1``, ``each to the rank before``, ``each to one of ranks 0,2``."""
    if of.beside:
        return f"each {way} the rank {of.beside}"
    if of.peers:
        return f"each {way} one of {ranks(of.peers)}"
    return f"{way} {f'rank {of.peer}' if of.peer is not None and of.peer >= 0 else 'any rank'}"


def op_in_function(of: Op) -> str:
    """``recv from rank 1 in backward (pipe.py:9)``: of a send or receive the line, too."""
    place = place_of(of) if of.name in _TRANSFERS else ""
    return f"{op(of)} in {place}" if place else op(of)


def op_at_line(of: Op) -> str:
    """``all_reduce (train.py:31)``: the line without its function, where a sentence has several."""
    if of.frame is None or of.seq >= 0 or of.name in _TRANSFERS:
        return op(of)
    at = line(of.frame)
    return f"{of.name} ({at})" if at else op(of)


def part_apart(of: PartApart) -> str:
    """``rank 1 sends 0 items to rank 4, which expects 96``."""
    receiver = "itself" if of.receiver == of.sender else f"rank {of.receiver}"
    if not of.exact:
        return f"rank {of.sender} sends another number of items to {receiver} than that one expects"
    return f"rank {of.sender} sends {of.sent} items to {receiver}, which expects {of.expected}"


def partners(sends_to: Sequence[int], receives_from: Sequence[int]) -> str:
    """``sends to rank 1 and receives from ranks 2-3``, ``exchanges with rank 3``."""
    if sends_to and list(sends_to) == list(receives_from):
        return f"exchanges with {ranks(sends_to)}"
    parts = [f"sends to {ranks(sends_to)}"] if sends_to else []
    parts += [f"receives from {ranks(receives_from)}"] if receives_from else []
    return " and ".join(parts)


def in_operations(sides: Sequence[tuple[Sequence[int], Op]]) -> str:
    """``ranks 0,2 in all_gather (train.py:43), rank 1 in barrier (train.py:60)``."""
    shown = sides if len(sides) == _SIDES + 1 else sides[:_SIDES]
    words = [f"{ranks(some)} in {op_at_line(one)}" for some, one in shown]
    more = [rank for some, _ in sides[len(shown) :] for rank in some]
    return ", ".join(words + ([f"{ranks(more)} in other operations"] if more else []))


def place_of(of: Op) -> str:
    """The user's line that made an operation: ``send_on (pipe.py:9)``; "" where it is not known."""
    if of.frame is not None:
        return frame(of.frame)
    function, bracket, _ = of.site.rpartition(" (")
    return f"{function} ({site(of.site)})" if bracket else ""


def short_op(of: Op) -> str:
    """An operation where its group or its line was said before: ``all_reduce #12``,
    ``all_reduce``.
    """
    return f"{of.name} #{of.seq}" if of.seq >= 0 else of.name


def _called_in(own: Frame, caller: Frame | None) -> str:
    """The frame of a call; where a framework made it, also the user's that it was made for."""
    if caller is None or caller == own:
        return long_frame(own)
    return f"{long_frame(caller)}, called from {long_frame(own)}"


def op_at(of: Op | None) -> str:
    """An operation with its line: ``all_reduce #12 (train.py:31)``."""
    return f"{op(of)}{in_brackets(of)}" if of is not None else "nothing"


def in_brackets(of: Op) -> str:
    """`` (train.py:31)``, `` (metric.py:614, called from train.py:31)``; "" without a recorded line."""
    if not of.site:
        return ""
    caller = f", called from {line(of.called_from)}" if of.called_from is not None else ""
    return f" ({site(of.site)}{caller})"


def line(of: Frame) -> str:
    """``train.py:31``; of a library without its lines the file alone."""
    return of.place.rpartition("/")[2]


def op_after(of: Op | None, said: Op | None) -> str:
    """The same where the sentence has said `said` before: its group is not said twice."""
    if of is None or said is None or of.group != said.group:
        return op_at(of)
    return op_at(structs.replace(of, group=GroupRef(axis="world")))


def long_op(of: Op | None) -> str:
    """An operation in evidence, with its group and its line."""
    if of is None:
        return "nothing"
    text = op(of)
    if of.seq < 0 and of.frame is not None:
        call = op(structs.replace(of, frame=None))
        return f"{call} in {_called_in(of.frame, of.caller)}"
    return f"{text} at {long_frame(of.site)}" if of.site else text


def doing(of: Doing) -> str:
    """``sleeping``, ``blocked in recvfrom``, ``computing``."""
    if of.act == "running":
        return "computing"
    if of.act == "retrying":
        return f"retrying after {of.call}"
    if of.act == "working":
        return "still working"
    if of.act == "loading":
        return "waiting for its data loader"
    if of.act == "still":
        return "not moving"
    if of.act == "idle":
        return "idle between two calls of Ray"
    call, _, target = of.call.partition("(")
    if call in _CALLS:
        return _CALLS[call]
    path = target.rpartition(" -> ")[2].rstrip(")")
    return f"blocked in {call} on {_short_target(path)}" if path else f"blocked in {call}"


def _short_target(path: str) -> str:
    """What a descriptor leads to: ``a pipe``, ``a socket``, the name of a file."""
    for kind in ("pipe", "socket"):
        if path.startswith(f"{kind}:["):
            return f"a {kind}"
    return path.rpartition("/")[2] or path


def signal_name(number: int) -> str:
    """``SIGKILL``, ``signal 99``."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def end(of: End) -> str:
    """``exit code 1``, ``killed by SIGKILL (its cgroup counts 2 kills for lack of memory)``."""
    if of.told is not None:
        return of.told.says
    memory = f"its cgroup shows {count(of.oom_kills, 'out-of-memory kill')}" if of.oom_kills else ""
    if of.code is None:
        return f"how it ended is unknown ({memory})" if memory else "how it ended is unknown"
    if of.code >= 0:
        return f"exit code {of.code}"
    killed = f"killed by {signal_name(-of.code)}"
    return f"{killed} ({memory})" if memory and -of.code == signal.SIGKILL else killed


def cut(text: str, width: int) -> str:
    """`text`, at most `width` characters, its tabs as blanks."""
    text = text.replace("\t", " ")
    return text if len(text) <= width else text[: width - 1].rstrip() + "…"


def without_folders(text: str) -> str:
    """`text` with the names of files alone, where it has their long paths."""
    return _FOLDERS.sub("", text)


def _without_alarm(text: str, width: int) -> str:
    """What stands behind the last word of alarm, where the whole is too long and that alone says enough."""
    alarms = list(_ALARM.finditer(text)) if len(text) > width else []
    said = text[alarms[-1].end() :] if alarms else ""
    return said if len(said) >= _ENOUGH else text


def words_of(text: str, width: int) -> str:
    """A line's own words in a sentence: what is too long loses folders, and words of alarm before the rest."""
    text = text.replace("\t", " ")
    if len(text) > width:
        text = without_folders(text)
    return both_ends(_without_alarm(text, min(width, _LONG_WORDS)), width)


def both_ends(text: str, width: int) -> str:
    """Begin and end of `text`, at most `width` characters: what was wrong often stands last."""
    text = text.replace("\t", " ")
    if len(text) <= width:
        return text
    text = _without_alarm(without_folders(text), width)
    if len(text) <= width:
        return text
    begin = text[: width * 3 // 5].rpartition(" ")[0]
    end = text[len(text) - (width - len(begin) - 3) :].partition(" ")[2]
    return f"{begin} … {end}" if begin and end else cut(text, width)


def tail(text: str, width: int) -> str:
    """The end of `text`, at most `width` characters: where a progress bar has its count."""
    text = text.replace("\t", " ")
    return text if len(text) <= width else "…" + text[len(text) - width + 1 :].lstrip()
