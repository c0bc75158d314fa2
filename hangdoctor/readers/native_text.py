"""Native stacks as people paste them: the processes of a text of gdb, pstack, eu-stack or lldb.

A text may hold one stack, all threads of a process, or several processes, by headings, by the
commands of the debugger, or one after the other.
"""

from __future__ import annotations

import re

from msgspec import Struct

from ..errors import BadInput
from ..model.capture import Frame, ThreadSample
from ..stacks import aborts
from ..text.late import late
from . import native_frames, native_headings
from .debugger_values import DebuggerValues
from .native_headings import Heading
from .pyspy_text import TextProcess

_RANK_FILE = late(
    r"(?:^|[-_.])(?:global[-_]?)?(?<!local[-_.])(?:rank|task)[-_.]?([0-9]{1,7})(?=[-_.]|$)", re.I
)
# Of mpirun, mpiexec and srun themselves: they wait for the ranks, and are none.
_OF_LAUNCHER = late(r"^(?:orterun|prterun|prte_\w+|HYD\w*_\w+|slurm_step_launch\w*|_launch_app)$")
_CHOSEN = late(r"^\((?:gdb|lldb)\) (?:f|fr|frame|up|down)(?: [\w .-]{1,40})?$")  # of the last stack
_ADDRESS = late(r"=0x[0-9a-f]{6,16}\b")  # of an object, which another process has elsewhere
_VALUE = late(r"\b([A-Za-z_]\w{0,40})=(-?[0-9]{1,20})(?=[,)\s])")
_CUT = Frame("??", "", 0)  # the innermost frames were left out
_MOST = 4096  # processes
_MOST_VALUES = 4  # arguments of one function


class Pasted(Struct):
    """One process of the text, while it is read."""

    ranks: tuple[int, ...] = ()
    pid: int = 0
    node: str = ""
    number: int = -1
    threads: list[ThreadSample] = []
    at: list[int] = []  # the debugger's numbers of these threads; 0: it named none
    earlier: list[ThreadSample] = []
    signal: int = 0
    lines: list[str] = []  # of the last stack, with the arguments of its functions


def rank_of(name: str) -> int:
    """The rank that the name of a file or a heading shows; -1 where it shows none."""
    match = _RANK_FILE.search(name)
    return int(match[1]) if match is not None else -1


def parse(text: str, node: str) -> list[TextProcess]:
    """The processes of a text; none where it has no native frame."""
    reader = _Reader()
    for line in native_frames.joined(text.splitlines()):
        reader.line(line)
    launchers = native_headings.launchers(text)
    read = [one for one in reader.found if one.threads]
    found = [one for one in read if one.pid not in launchers and not _is_launcher(one)]
    found = _printed_once(found)
    if read and not found:
        raise BadInput("the stacks are of launchers alone, which are no ranks")
    if len(found) == 1 and not found[0].ranks and rank_of(node) >= 0:
        found[0].ranks, node = (rank_of(node),), ""  # tail's heading, of a file for each rank
    return [process for one in found for process in _processes(one, node)][:_MOST]


def _printed_once(found: list[Pasted]) -> list[Pasted]:
    """Without stacks that only repeat the one before them, to the addresses and arguments."""
    kept: list[Pasted] = []
    for one in found:
        nameless = not (one.ranks or one.pid or one.signal) and one.number < 0
        again = kept and nameless and one.lines == kept[-1].lines and one.node == kept[-1].node
        alone = len(one.threads) == 1 and any(_ADDRESS.search(line) for line in one.lines)
        if not (again and alone and len(kept[-1].threads) == 1):
            kept.append(one)
    return kept


def _is_launcher(one: Pasted) -> bool:
    frames = [frame for thread in one.threads for frame in thread.frames]
    return any(_OF_LAUNCHER.match(frame.name) for frame in frames)


class _Reader:
    """What the lines so far have been about."""

    def __init__(self) -> None:
        self.found: list[Pasted] = []
        self.current: Pasted | None = None
        self.fresh = False  # the current process was named, and has no stack yet
        self.last = -1  # number of the last frame; -1 where a stack is to begin
        self.goes_on = False
        self.chosen = False  # the debugger shows one frame of this stack again
        self.values = DebuggerValues()

    def line(self, line: str) -> None:
        frame = native_frames.read(line)
        if frame is None and _CHOSEN.match(line.strip()[:80]) is not None:
            self.chosen = self.last >= 0
            return
        if frame is not None and self.chosen:
            self.chosen = False
            return
        if frame is not None:
            self._frame(frame.number, frame.frame)
            self._keep_line(line)
            return
        rank = self.values.feed(line)
        if rank >= 0 and self.current is not None and not self.current.ranks:
            self.current.ranks = (rank,)
        heading = native_headings.read(line)
        if heading is None:
            return
        if heading.thread:
            self._thread(heading)
        elif heading.signal:
            self._crashed(heading.signal)
        elif heading.goes_on:
            self.goes_on, self.last = True, -1
        elif heading.left:
            self._left(heading.pid)
        else:
            self._begin(heading)

    def _keep_line(self, line: str) -> None:
        own = self._process()
        frames = [f for f in own.threads[-1].frames if f is not _CUT]
        if len(frames) == 1:
            own.lines = []
        own.lines.append(" ".join(line.split()))

    def _begin(self, heading: Heading) -> None:
        """Another process, or more about one whose stacks are still to come."""
        self.last, self.goes_on = -1, False
        if self.current is None or not self.fresh:
            self.current = Pasted()
            self.found.append(self.current)
        self.fresh = True
        own = self.current
        own.ranks = heading.ranks or own.ranks
        own.pid, own.node = heading.pid or own.pid, heading.node or own.node
        own.number = heading.number if heading.number >= 0 else own.number

    def _crashed(self, signal: int) -> None:
        """A core file, or a process that its debugger has stopped at its end."""
        if self.current is not None and self.current.threads and not self.goes_on:
            self.current = None
        own = self._process()
        own.signal, self.fresh = signal, True

    def _left(self, pid: int) -> None:
        if self.current is not None and not self.current.pid:
            self.current.pid = pid
        self.current, self.last, self.fresh = None, -1, False

    def _process(self) -> Pasted:
        if self.current is None:
            self.current = Pasted()
            self.found.append(self.current)
        self.fresh = False
        return self.current

    def _thread(self, heading: Heading) -> None:
        own = self._process()
        if heading.thread in own.at:
            own = self._again()
        elif own.at == [
            0
        ]:  # printed first, as the debugger attached; it comes again with its number
            own.threads, own.at = [], []
        own.threads.append(ThreadSample(tid=heading.tid, name=heading.name))
        own.at.append(heading.thread)
        self.last = -1

    def _again(self) -> Pasted:
        """Threads or stacks that come again: a later sample, or another process."""
        own = self._process()
        if self.goes_on:
            own.earlier = own.earlier or own.threads
            own.threads, own.at = [], []
            self.goes_on = False
            return own
        self.current = Pasted()
        self.found.append(self.current)
        return self.current

    def _frame(self, number: int, frame: Frame) -> None:
        own = self._process()
        if own.at and self.last == -1 and (own.threads[-1].frames or self.goes_on):
            own = self._again()
        begins = number <= self.last
        if begins and number == self.last == 0 and own.threads[-1].frames[0].name == frame.name:
            own.threads[-1].frames.clear()  # shown alone before, where the process was stopped
        elif begins:
            own = self._again()
        if not own.threads:
            own.threads.append(ThreadSample(tid=own.pid))
            own.at.append(0)
        frames = own.threads[-1].frames
        if not frames and number:
            frames.append(_CUT)
        frames.append(frame)
        self.last = number


def _processes(one: Pasted, node: str) -> list[TextProcess]:
    """It, once for each of the ranks that its heading names."""
    main = _main(one.threads, one.at)
    main.name = "MainThread"
    pid = one.pid or (main.tid if one.at[one.threads.index(main)] else 0)
    for thread in one.earlier:
        if thread.tid == main.tid:
            thread.name = "MainThread"
    ranks = one.ranks or (-1,)
    end = aborts.own_end(main.frames)
    crash = aborts.signalled(main.frames, one.lines if len(one.threads) == 1 else [])
    if end is not None and end.frame is not None and len(one.threads) == 1:
        _add_values(end.frame, one.lines[end.place : end.place + 1])
    return [
        TextProcess(
            pid if len(ranks) == 1 else 0,
            "",
            one.node or node,
            one.threads,
            earlier=one.earlier,
            rank=rank,
            signal=one.signal or (end.how if end is not None else crash),
            number=one.number,
        )
        for rank in ranks
    ]


def _add_values(frame: Frame, lines: list[str]) -> None:
    """The whole numbers among the arguments of the function that ended its process."""
    for line in lines:
        frame.values = {name: int(number) for name, number in _VALUE.findall(line)[:_MOST_VALUES]}


def _main(threads: list[ThreadSample], at: list[int]) -> ThreadSample:
    """The first thread of the process: gdb's and lldb's number 1, where there is one."""
    if 1 in at:
        return threads[at.index(1)]
    return min(threads, key=lambda thread: thread.tid)
