"""Lines beneath another one that belong to whoever said it, without its prefix.

A logger that prints a traceback in one message has its prefix on the first line alone; Ray prints
which worker died in indented lines beneath its error.
"""

from __future__ import annotations

import re

import msgspec
from msgspec import Struct

from ...model.log_facts import AnyFact, KnownError, NodeLost, PythonError
from ...text.late import late
from . import workers
from .prefix import Said

_HOST = late(r"[A-Za-z0-9][\w.:-]{0,127}")
_BEGIN = "Traceback (most recent call last):"
_OF_TASK = late(r"^ray::.{0,200}?\(pid=(\d{1,9}), ip=([\w.:-]{1,80})")
_HEAD_OF_TASK = late(r"ray::[\w.<>]{1,120}\(\) ?\(pid=(\d{1,9}), ip=([\w.:-]{1,80})\)$")
_OF_DEVICE = late(r"Exception in device=[A-Z]{2,8}:(\d{1,5}): ")  # torch_xla, above a traceback
_OF_CREATION = late(
    r"error raised in its creation task, ray::.{0,200}?\(pid=(\d{1,9}), ip=([\w.:-]{1,80})"
)
_OWNER = late(r"Owner Ip address: ([\w.:-]{1,80})")
_MOST = 400  # lines of one message
_NAMES = 12  # lines beneath an error of Ray's
# Why Ray's actor ended, where that was not its own doing: the rules that know it.
_REASONS = {
    "because its owner has died": "ray_owner",
    "because its node has died": "ray_node",
    "because it was killed by `ray.kill`": "ray_killed",
    "because all references to the actor were removed": "ray_killed",
}


class _Message(Struct):
    """One of several lines, and who began it."""

    head: Said
    left: int = _MOST
    flat: bool = False  # the paste has lost its indentation
    source_next: bool = False
    of_device: bool = False

    def takes(self, text: str) -> bool:
        """Whether a line belongs to it, and is not its last one."""
        self.left -= 1
        inside = text.startswith((" ", "\t")) or not text.strip()
        inside |= self.of_device and text.rstrip() == _BEGIN
        return (inside or self._goes_on_flat(text)) and self.left > 0

    def _goes_on_flat(self, text: str) -> bool:
        """Whether a line without indentation is a frame, or the source below one, of a message that has none."""
        is_frame = text.startswith('File "')
        self.flat = is_frame if self.left == _MOST - 1 else self.flat
        is_source, self.source_next = self.source_next and not is_frame, is_frame
        return self.flat and (is_frame or is_source)


class Beneath:
    """Takes the lines of one file one after the other."""

    def __init__(self) -> None:
        self._open: _Message | None = None  # whose other lines have no speaker
        self._shipped: dict[int, _Message] = {}  # whose other lines have its process alone
        self._died: AnyFact | None = None  # the error that Ray's lines are about
        self._named = 0

    def inherit(self, said: Said, of_file: Said) -> Said:
        """The line as its message's speaker says it, where it has no speaker of its own."""
        nameless = said.speaker() == of_file.speaker()
        begins = said.text.rstrip().endswith(_BEGIN) and not said.text.startswith("Traceback")
        if not nameless:
            self._open = _Message(said) if begins and not said.level else None
            return self._of_process(said, begins)
        task = _HEAD_OF_TASK.match(said.text.rstrip()) if said.text.startswith("ray::") else None
        if task is not None:
            self._begin_task(said, task)
            return said
        device = _OF_DEVICE.match(said.text) if said.text.startswith("Exception in") else None
        if device is not None:
            return self._of_device(msgspec.structs.replace(said, rank=int(device[1])))
        if self._open is None:
            return said
        whose = _as(self._open.head, said)
        if not self._open.takes(said.text):
            self._open = None  # the last line, which has the error's name
        return whose

    def _of_device(self, said: Said) -> Said:
        """torch_xla's line on a process of it, whose traceback is below; of two such lines nothing shows whose."""
        above = self._open
        second = above is not None and above.of_device and above.left == _MOST
        self._open = None if second else _Message(said, of_device=True)
        return said

    def _begin_task(self, said: Said, task: re.Match[str]) -> None:
        """The lines of one of Ray's processes come next, which Ray's own line names."""
        self._open = _Message(msgspec.structs.replace(said, pid=int(task[1]), node=task[2]))

    def _of_process(self, said: Said, begins: bool) -> Said:
        """The same where an outer launcher has put the process before each line, as Ray does, and the speaker's
        own prefix stands on the first line alone.
        """
        named = said.rank >= 0 or bool(said.worker)
        if not said.pid or (begins and named and not said.level):
            if said.pid:
                self._shipped[said.pid] = _Message(said)
            return said
        message = self._shipped.get(said.pid)
        if message is None:
            return said
        if named or said.node != message.head.node:
            del self._shipped[said.pid]
            return said
        if not message.takes(said.text):
            del self._shipped[said.pid]
        return _as(message.head, said)

    def is_report(self, error: PythonError, said: Said) -> bool:
        """Whether Ray reports a worker's error, whose frames and name come in the next lines."""
        match = _OF_TASK.search(error.message) if error.error == "RayTaskError" else None
        match = match or _OF_CREATION.search(error.message)
        if match is None:
            return False
        self._begin_task(said, match)
        return True

    def creates(self, text: str, said: Said) -> None:
        """A line on an error in a creation task, which no traceback has: its frames and name come below, too."""
        match = _OF_CREATION.search(text)
        if match is not None:
            self._begin_task(said, match)

    def name(self, fact: AnyFact) -> bool:
        """An error; whether it is Ray's on the end of an actor, which its next lines say more of."""
        if not isinstance(fact, PythonError | KnownError) or fact.rule != "actor_died":
            return False
        self._died, self._named = fact, _NAMES
        return True

    def gives_reason(self, text: str) -> bool:
        """Whether a line is Ray's reason for the end of its actor, which then follows from another's."""
        rule = next((rule for words, rule in _REASONS.items() if words in text), "")
        died = self._died
        if not rule or not isinstance(died, PythonError | KnownError):
            return False
        died.role, died.rule = "consequence", rule
        owner = _OWNER.search(text)
        if rule == "ray_owner" and owner is not None:
            died.rule, died.values = "ray_owner_at", {"ip": owner[1]}
        return True

    def lost_node(self) -> NodeLost | None:
        """The node of the actor, where its reason is that this had died."""
        died = self._died
        if (
            not isinstance(died, PythonError | KnownError)
            or died.rule != "ray_node"
            or not died.node
        ):
            return None
        return NodeLost(nodes=[died.node], by="Ray")

    def look(self, text: str) -> bool:
        """Whether a line says which worker an error of Ray's is about."""
        if self._died is None:
            return False
        self._named -= 1
        told = workers.attribute(text)
        if told is not None:
            _tell(self._died, *told)
        if self._named <= 0:
            self._died = None
        return told is not None


def _as(head: Said, said: Said) -> Said:
    """A line as the speaker of its message says it."""
    whose = msgspec.structs.replace(head, text=said.text)
    whose.at = said.at or head.at
    return whose


def _tell(fact: AnyFact, name: str, value: str) -> None:
    if name == "pid" and value.isdigit() and len(value) < 10:
        fact.pid = int(value)
    elif name == "name":
        fact.worker = value
    elif name == "ip" and _HOST.fullmatch(value) and set(value) != {"x"}:
        fact.node = fact.node or value
