"""Writes operations into the box: the one part of the probe that runs at every operation."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import threading
import weakref
from operator import index
from time import time_ns
from types import CodeType, FrameType
from typing import Any

from . import format as fmt
from . import record_core as hot
from . import torchnames
from .box import BoxWriter
from .event_table import EventTable
from .group_table import GroupEntry, Groups
from .odd_calls import describe_otherwise
from .record_core import Core, Thread
from .signatures import Describe, NotAnOperation, is_constant, render
from .sites import Sites

_HANDLES_MAX = 65536
_TRIES = (
    64  # slots of unfinished operations that a new record steps over before it takes one of them
)
_STEPS_WORD, _STEP_SINCE_WORD = fmt.H_STEPS[0] // 8, fmt.H_STEP_SINCE[0] // 8
_pack_into = fmt.RECORD.pack_into
_LOW = 0xFFFFFFFF
_NOT_LEFT = (0, 0)  # when it left, and how

Token = tuple[int, int]  # word where the record begins, its serial number


def teach_extension() -> None:
    """Show the extension how torch's tensors tell their shape; where it cannot use that, Python
    describes each call.
    """
    getters = torchnames.tensor_getters() if hot.native is not None else None
    if getters is not None:
        with contextlib.suppress(TypeError):  # a torch whose tensors are made otherwise
            hot.native.set_tensor(*getters)


_frame = sys._getframe


class _Local(threading.local):
    def __init__(self) -> None:
        self.thread = Thread()


local = _Local()  # `local.thread`: one slow look-up an operation instead of one an attribute


def global_rank(entry: GroupEntry, root: Any, group_root: Any) -> int:
    """The root or peer of a call; -1 for one that is no rank: torch refuses that itself, and the
    probe goes on.
    """
    told = root if group_root is None else group_root
    kind = type(told)
    if (
        kind is not int
    ):  # a tensor, or whatever else answers by code of the job: torch alone asks it
        if not (issubclass(kind, int) or kind.__module__ == "numpy"):
            return -1
        try:
            told = index(told)
        except TypeError:
            return -1
    if group_root is not None:
        return entry.members[told] if 0 <= told < len(entry.members) else -1
    return told if 0 <= told < 1 << 31 else -1


def _can_be_followed(work: Any) -> bool:
    """Whether there are weak references to it: not to objects of a class with `__slots__` alone."""
    return bool(type.__dict__["__weakrefoffset__"].__get__(type(work)))


class Recorder(Core):
    """One box with everything that is remembered about it; a forked child starts without."""

    groups: Groups

    def __init__(self, box: BoxWriter) -> None:
        self.box = box
        self.careful = False
        self.uncounted = False  # the job's library is one whose calls are not recorded
        self.polls = False  # and uses the processor while it waits
        self.groups = Groups(box)
        self.sites = Sites(box)
        self.events = EventTable(box)
        self._sites = self.sites.known
        self.iteration = -1
        self.steps = 0
        self.outstanding: dict[int, tuple[Any, tuple[Token, ...]]] = {}
        self._threads = itertools.count()
        begin, records, _ = box.regions["ring"]
        self.attach(box.map, begin // 8, records)
        teach_extension()
        self._first = begin // 8
        self._mask = records - 1
        self.words = box.words
        self._map = box.map
        self._signatures: dict[tuple[Any, ...], int] = {}
        self._stores = 0

    # ----------------------------------------------------------------- records

    def _slot(self) -> Token:
        """The next slot of the ring; those of unfinished operations are stepped over."""
        words = self.words
        for _ in range(_TRIES):
            serial = self.next_serial()
            at = self._first + (serial & self._mask) * fmt.RECORD_WORDS
            if words[at + fmt.LEFT_WORD] or not words[at]:
                break
        return at, serial

    def write(
        self,
        entry: GroupEntry | None,
        seq: int,
        signature: int,
        site: int,
        *,
        peer: int = -1,
        flags: int = 0,
        inline: str = "",
    ) -> Token:
        """Enter an operation: one record, and the thread's slot that points to it."""
        group, uid = (fmt.NO_GROUP, 0) if entry is None else (entry.index, entry.uid_word)
        thread = local.thread
        if thread.recorder is not self:
            self.enlist(thread)
        at, serial = self._slot()
        self.words[at + fmt.UID_WORD] = uid
        what = serial, seq, time_ns(), group, signature, site
        who = thread.index, peer, self.iteration
        state = flags, uid & _LOW, *_NOT_LEFT, serial & _LOW
        _pack_into(self._map, at * 8, *what, *who, *state)
        if inline:
            self.box.inline(at * 8, inline)
        self.words[thread.word + 1] = serial
        return at, serial

    def enter(
        self, thread: Thread, describe: Describe, args: Any, kwargs: Any, frame: FrameType
    ) -> tuple[int, int, GroupEntry] | None:
        """Enter a collective; None where it is none for this rank (not a member, a compiler
        tracing).
        """
        try:
            key, group, root, group_root, async_op = describe(*args, **kwargs)
        except NotAnOperation:
            return None
        except Exception as error:
            described = describe_otherwise(describe, args, kwargs, error)
            if described is None:
                return None  # wrong arguments: torch itself says so
            key, group, root, group_root, async_op = described
        groups = self.groups
        entry = groups.default if group is None else groups.by_id.get(id(group))
        if entry is None:
            entry = groups.find(group)
            if entry is None:
                return None
        signature = self._signatures.get(key)
        if signature is None:
            signature = self._new_signature(key)
        site = self._sites.get((id(frame.f_code), frame.f_lasti))
        if site is None:
            site = self.sites.find(frame)
        seq = entry.seq = entry.seq + 1
        peer = -1 if root is None and group_root is None else global_rank(entry, root, group_root)
        if signature < 0:
            flags = fmt.INLINE_SIGNATURE | (fmt.ASYNC if async_op else 0)
            return *self.write(
                entry, seq, 0, site, peer=peer, flags=flags, inline=render(key)
            ), entry
        # What follows is `write`, spelled out: a call and three tuples less at every operation.
        if thread.recorder is not self:
            self.enlist(thread)
        serial = self.next_serial()
        at = self._first + (serial & self._mask) * 16
        if self.careful and not self.words[at + 7] and self.words[at]:
            at, serial = self._slot()
        uid = self.words[at + 15] = entry.uid_word
        _pack_into(
            self._map, at * 8, serial, seq, time_ns(), entry.index, signature, site, thread.index, peer,
            self.iteration, 1 if async_op else 0, uid & _LOW, 0, 0, serial & _LOW,
        )  # fmt: skip
        self.words[thread.word + 1] = serial
        return at, serial, entry

    def enter_directed(
        self, described: Any, flags: int, frame: FrameType
    ) -> tuple[Token, GroupEntry] | None:
        """Enter a send or a receive, counted by peer and direction; `flags`: the direction, and the
        tag above.
        """
        key, group, root, group_root, async_op = described
        entry = self.groups.default if group is None else self.groups.by_id.get(id(group))
        if entry is None:
            entry = self.groups.find(group)
            if entry is None:
                return None
        peer = -1 if root is None and group_root is None else global_rank(entry, root, group_root)
        seq = entry.next_directed(peer, flags & (fmt.SEND | fmt.RECV)) if peer >= 0 else 0
        flags |= fmt.ASYNC if async_op else 0
        return self.enter_known(entry, seq, key, frame, peer=peer, flags=flags), entry

    def enter_known(
        self,
        entry: GroupEntry,
        seq: int,
        key: tuple[Any, ...],
        frame: FrameType,
        *,
        peer: int = -1,
        flags: int = 0,
    ) -> Token:
        """Enter an operation whose number is known; `key` as `signatures` has it, `peer` or root a
        global rank.
        """
        signature = self._signatures.get(key)
        if signature is None:
            signature = self._new_signature(key)
        site = self._sites.get((id(frame.f_code), frame.f_lasti))
        if site is None:
            site = self.sites.find(frame)
        if signature < 0:
            flags |= fmt.INLINE_SIGNATURE
            return self.write(entry, seq, 0, site, peer=peer, flags=flags, inline=render(key))
        return self.write(entry, seq, signature, site, peer=peer, flags=flags)

    def enter_call(
        self, entry: GroupEntry, seq: int, key: tuple[Any, ...], peer: int, flags: int
    ) -> Token:
        """The same of a call whose site is the innermost frame that is not the probe's."""
        signature = self._signatures.get(key, 0)
        if signature > 0 and hot.native is not None:
            found = self.enter_here(local.thread, entry, seq, signature, peer, flags)
            if found is not None:
                return found
        frame = _frame().f_back or _frame()
        return self.enter_known(entry, seq, key, frame, peer=peer, flags=flags)

    def add_detail(self, token: Token, text: str) -> None:
        """More about an operation that was just entered, in the record itself where it has room."""
        at, serial = token
        flags = at * 2 + fmt.FLAGS_HALF
        if text and self.words[at] == serial and not self.box.halves[flags] & fmt.INLINE_SIGNATURE:
            self.box.inline(at * 8, text)
            self.box.halves[flags] |= fmt.INLINE_DETAIL

    def enter_named(
        self, op: str, entry: GroupEntry | None, frame: FrameType, detail: str = ""
    ) -> Token:
        """Enter an operation of the store or of set-up, counted by its name."""
        if entry is not None:
            seq = entry.next_named(op)
        else:
            seq = self._stores = self._stores + 1
        signature = self.box.intern(f"{op}\t\t\t")
        flags = fmt.INLINE_DETAIL if detail else 0
        return self.write(entry, seq, signature, self.sites.find(frame), flags=flags, inline=detail)

    def mark(self, kind: int, number: int, text: int = 0) -> None:
        """What the job says of itself, with its time: a record that is over at once and counts as
        no operation.
        """
        thread = local.thread
        if thread.recorder is not self:
            self.enlist(thread)
        if hot.native is not None:
            self.write_mark(thread.index, kind, number, text)
            return
        at, serial = self._slot()
        now = time_ns()
        self.words[at + fmt.UID_WORD] = 0
        what = serial, number & 0xFFFFFFFFFFFFFFFF, now, fmt.NO_GROUP, text, 0
        who = thread.index, kind, self.iteration
        state = fmt.MARK, 0, now, 0, serial & _LOW
        _pack_into(self._map, at * 8, *what, *who, *state)

    def step(self) -> None:
        """An optimizer has made a step."""
        self.steps += 1
        self.words[_STEPS_WORD] = self.steps
        self.words[_STEP_SINCE_WORD] = time_ns()
        if self.iteration < 0:  # the job names none: its steps stand for them, in the ring too
            self.mark(fmt.ITERATION, self.steps)

    def resolve_source(self, token: Token, entry: GroupEntry, source: int | None) -> None:
        """A receive from anyone has found its sender: count it where the sender counts it."""
        at, serial = token
        if source is None or self.words[at] != serial:
            return
        seq = entry.next_directed(source, fmt.RECV)
        self.box.halves[at * 2 + fmt.PEER_HALF] = source & 0xFFFFFFFF
        self.words[at + 1] = seq

    # ----------------------------------------------------------------- the end of an operation

    def over(self, tokens: tuple[Token, ...]) -> None:
        """Mark operations that went well as left."""
        if hot.native is not None:
            self.leave(tokens)
        else:
            self.finish(tokens)

    def finish(self, tokens: tuple[Token, ...], outcome: int = 0) -> None:
        """Mark operations as left or completed, unless the ring has gone over them."""
        for at, serial in tokens:
            if self.words[at] == serial and not self.words[at + fmt.LEFT_WORD]:
                if outcome:
                    self.box.halves[at * 2 + fmt.OUTCOME_HALF] = outcome
                self.words[at + fmt.LEFT_WORD] = time_ns()

    def refuse(self, token: Token, entry: GroupEntry | None, error: BaseException) -> None:
        """The operation ended in an exception. One that torch refused before it began is not
        counted.
        """
        at, serial = token
        counted = entry is not None and self.words[at] == serial and entry.seq == self.words[at + 1]
        if counted and entry is not None and isinstance(error, (TypeError, ValueError)):
            entry.seq -= 1
            self.words[at + 1] = 0
        self.finish((token,), fmt.FAILED)

    def follow(self, work: Any, tokens: tuple[Token, ...]) -> None:
        """Remember a handle, so that its completion is known; only weakly, its tensors are the
        job's.
        """
        self.mark_started(tokens)
        if work is None or len(self.outstanding) >= _HANDLES_MAX or not _can_be_followed(work):
            self.finish(tokens, fmt.DROPPED)
            return
        key = id(work)
        outstanding = self.outstanding

        def dropped(_: Any) -> None:
            item = outstanding.pop(key, None)
            if item is not None:
                self.finish(item[1], fmt.DROPPED)

        outstanding[key] = (weakref.ref(work, dropped), tokens)

    def mark_started(self, tokens: tuple[Token, ...]) -> None:
        """Their call has returned, or they are parts of one call that is not over before all are done."""
        self.careful = True
        for at, serial in tokens:
            if self.words[at] == serial:
                self.box.halves[at * 2 + fmt.OUTCOME_HALF] = fmt.STARTED

    def waiting(self, tokens: tuple[Token, ...]) -> None:
        """This thread waits for the handle of an earlier operation."""
        thread = local.thread
        if thread.recorder is not self:
            self.enlist(thread)
        self.words[thread.word + 3] = time_ns()
        self.words[thread.word + 2] = tokens[0][1]

    def waited(self) -> None:
        """The thread waits no longer."""
        thread = local.thread
        if thread.recorder is self:
            self.words[thread.word + 2] = 0

    # ----------------------------------------------------------------- rare things

    def _new_signature(self, key: tuple[Any, ...]) -> int:
        """Intern a signature; -1 where there is no room for it and it goes into the record."""
        signature = self.box.intern(render(key), share=0.5) or -1
        if signature > 0:
            self._signatures[key] = signature
        return signature

    # ----------------------------------------------------------------- what the extension asks

    def describe_call(
        self, describe: Describe, args: Any, kwargs: Any, reduce: Any
    ) -> tuple[Any, ...] | None:
        """(signature, group, root, group_root, async_op, whether to remember the signature); None
        where it is not an operation.
        """
        try:
            key, group, root, group_root, async_op = describe(*args, **kwargs)
        except NotAnOperation:
            return None
        except Exception as error:
            described = describe_otherwise(describe, args, kwargs, error)
            if described is None:
                return None
            key, group, root, group_root, async_op = described
        signature = self._signatures.get(key) or self._new_signature(key)
        return signature, group, root, group_root, async_op, reduce is None or is_constant(reduce)

    def judge(self, code: CodeType) -> int:
        """1 for code whose frames are skipped on the way to the call site, else 0; 2 more where the
        code may go away.
        """
        return self.sites.judge(code)

    def locate(self, frame: FrameType, code: CodeType | None) -> int:
        """Twice the id of the call site, and 1 more where it is in `code`, and may be remembered by
        that and its instruction.
        """
        return self.sites.locate(frame, code)

    # ----------------------------------------------------------------- threads and ranks

    def enlist(self, thread: Thread) -> None:
        """Give this thread its slot; threads beyond the table take over those of dead ones, or
        share the last.
        """
        table, room, width = self.box.regions["threads"]
        index = next(self._threads)
        self.careful = self.careful or index > 0
        if index >= room:
            alive = {int(name) for name in os.listdir("/proc/self/task")}
            words = [(table + i * width) // 8 for i in range(room)]
            index = next((i for i, w in enumerate(words) if self.words[w] not in alive), room - 1)
        # Not current_thread(): that would enter threads of C++ into the job's list of threads.
        name = next((t.name for t in threading.enumerate() if t.ident == threading.get_ident()), "")
        thread.word = self.box.add_thread(index, threading.get_native_id(), name)
        thread.index = index
        thread.recorder = self

    def learn_world(self) -> None:
        """After init_process_group: rank, world size, backend and groups."""
        self.uncounted = False
        rank, world = torchnames.own_rank()
        self.box.put(fmt.H_RANK, rank)
        self.box.put(fmt.H_WORLD, world)
        backend = torchnames.backend_name()
        self.box.put_text(fmt.H_BACKEND, backend)
        self.box.put_text(fmt.H_TORCH, torchnames.version())
        self.box.put(fmt.H_FLAGS, fmt.RUNS_AHEAD if "nccl" in backend else 0)
        self.box.put(fmt.H_STATE, fmt.RUNNING)
        self.groups.sync()
        teach_extension()
