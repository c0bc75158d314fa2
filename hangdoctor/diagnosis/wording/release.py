"""What lets a rank go on, by what holds it."""

from __future__ import annotations

import shlex
from functools import singledispatch

from ...model.capture import Frame
from .. import findings as f
from ..findings import Finding, Op
from . import terms


def on_node(finding: Finding) -> str:
    """`` on n2``, for a command to be run there; with how to get there where that is not known."""
    node = finding.homes[0].node if finding.homes else ""
    if node and finding.site is not None and finding.site.enter:
        return f" in {node} ({finding.site.enter.format(node=node)})"
    return f" on {node}" if node else ""


def pid_of(finding: Finding) -> int:
    """The process of the first rank; 0 where it is not known, or has ended."""
    if finding.over:
        return 0
    return finding.homes[0].pid if finding.homes else 0


def native_stack(pid: int) -> str:
    """The command that shows a process's native frames, and what it does to the process."""
    return f"py-spy dump --native --pid {pid} (pauses it for about a second)"


def natively(finding: Finding, pid: int) -> str:
    """`` on n2: py-spy dump ...``: where and how to see the native frames of a process."""
    if finding.site is not None and finding.site.capture:
        return f": {finding.site.capture} --native (pauses each process for about a second)"
    return f"{on_node(finding)}: {native_stack(pid)}"


def open_at(frame: Frame | None) -> str:
    """``less +40 /app/data.py``; "" where the file's whole path is not known."""
    if frame is None or not frame.file.startswith("/") or frame.line < 1:
        return ""
    return f"less +{frame.line} {shlex.quote(frame.file)}"


def two_lines(mine: Op | None, theirs: Op | None) -> str:
    """The lines of two calls, ``train.py:31 with eval.py:9``; ``the lines in the evidence`` where
    the records do not have both.
    """
    first, second = _recorded_line(mine), _recorded_line(theirs)
    if not first or not second:
        return "the lines in the evidence"
    return f"{first} with {second}" if first != second else f"what the ranks pass at {first}"


def _recorded_line(op: Op | None) -> str:
    if op is None or not op.site:
        return ""
    return terms.line(op.called_from) if op.called_from is not None else terms.site(op.site)


PIECES = "do that in smaller pieces, or in a process of its own (multiprocessing)"


@singledispatch
def release(holding: object, finding: Finding) -> str:
    """What to do about what holds the rank of a finding."""
    raise TypeError(f"no advice for {type(holding).__name__}")


@release.register
def _(holding: f.Debugger, finding: Finding) -> str:
    at = f" in {terms.frame(finding.frame)}" if finding.frame is not None else ""
    answer = f"Remove the breakpoint{at}, or answer {holding.tool} at the terminal of the job"
    return f"{answer}; PYTHONBREAKPOINT=0 switches breakpoint() off."


@release.register
def _(holding: f.TypedInput, finding: Finding) -> str:
    return "Remove the prompt from the code, or start the job with its input from /dev/null."


@release.register
def _(holding: f.ChildEnded, finding: Finding) -> str:
    return f"Find out why process {holding.pid} ended: the end of its log{_and_dmesg(finding)}. It can no longer answer the rank."


def _and_dmesg(finding: Finding) -> str:
    return f", and{on_node(finding)}: dmesg -T | tail"


@release.register
def _(holding: f.ChildStopped, finding: Finding) -> str:
    if holding.tracer:
        return f"Continue or detach the debugger, process {holding.tracer}{on_node(finding)}."
    return f"Resume it{on_node(finding)}: kill -CONT {holding.pid}."


@release.register
def _(holding: f.OnChild, finding: Finding) -> str:
    child = f"process {holding.pid}{on_node(finding)}"
    if holding.unread:
        pipe = "is blocked writing into a pipe that the rank does not read"
        read = "communicate() instead of wait(), or read the pipe first"
        return f"Its child, {child} ({holding.command}), {pipe}: {read}."
    again = (
        " subprocess.run(..., timeout=S) turns this into an error." if holding.by_subprocess else ""
    )
    return f"Look at what {child} waits for ({holding.command}); killing it lets the rank go on, perhaps with an error.{again}"


@release.register
def _(holding: f.AtWorker, finding: Finding) -> str:
    place, stack = open_at(holding.frame), native_stack(holding.pid)
    see = "; ".join(part for part in (place, stack) if part)
    here = terms.capital(on_node(finding).strip()) or "See"
    why = f"See why {terms.frame(holding.frame)} does not end. {here}: {see}"
    return f"{why}. DataLoader(timeout=...) turns this into an error."


@release.register
def _(holding: f.OnFifo, finding: Finding) -> str:
    at = terms.frame(finding.frame) if finding.frame is not None else "its stack"
    return f"It opens a FIFO that has no process at the other end: see the path opened in {at}, and start its reader or writer."


@release.register
def _(holding: f.OnDescriptor, finding: Finding) -> str:
    here, path = on_node(finding), holding.path
    if path.startswith("pipe:["):
        what = (
            "The pipe is full and no process reads it"
            if holding.writes
            else "No process writes into the pipe"
        )
        if holding.far is not None:
            end = "reads nothing" if holding.writes else "writes nothing"
            return _far_side(holding.far, end, here, "pipe")
        inode = path[len("pipe:[") : -1]
        return f"{what}. Find the process at its other end{here}: find /proc/[0-9]*/fd -lname 'pipe:?{inode}?' 2>/dev/null."
    if path.startswith("socket:["):
        what = "reads nothing" if holding.writes else "sends nothing"
        if holding.far is not None:
            return _far_side(holding.far, what, here, "connection")
        see = f"ss -np | grep 'pid={pid_of(finding)},fd={holding.number})'"
        return f"The other end of its connection {what}. To see its address{here}: {see}."
    if holding.locks:
        see = f"timeout 5 fuser -v {shlex.quote(path)}"
        if holding.own_lock:
            why = "opened it a second time, or a process that it started keeps it"
            return f"The rank itself holds the lock on {path}: it {why}. See both{here}: {see}."
        return f"{path} is locked by another process. Find it{here}: {see}. The lock ends with that process."
    what = "No process reads what is written to" if holding.writes else "Nothing comes from"
    see = f"timeout 5 ls -l {shlex.quote(path)}; timeout 5 fuser -v {shlex.quote(path)}"
    return f"{what} {path}. See what it is and which process has it open{here}: {see}."


def _far_side(far: f.FarSide, what: str, here: str, by: str) -> str:
    """Where the answer has to come from."""
    if far.rank >= 0:
        at = "; ".join(f"{name} at {terms.frame(frame)}" for name, frame in far.threads[:3])
        where = f", with {at}" if at else ""
        return f"The other end of its {by} is rank {far.rank} (pid {far.pid}){where}. See why that {what}."
    if far.pid:
        see = f"ps -o pid,ppid,user,stat,etime,args -p {far.pid}"
        if "python" in far.command.split(" ", 1)[0]:
            see = f"py-spy dump --pid {far.pid}"
        return f"The other end of its {by} is process {far.pid} ({far.command}), which {what}. See what it does{here}: {see}."
    return f"The other end of its {by}, {far.address}, {what}: see that server. A timeout on the call turns this into an error."


@release.register
def _(holding: f.OnLock, finding: Finding) -> str:
    at = f" in {terms.frame(finding.frame)}" if finding.frame is not None else ""
    if holding.result and holding.threads:
        return _of_tasks(holding, at)
    if not holding.threads:
        why = "the lock was taken twice, or by a thread that has ended"
        return (
            f"It waits for a lock{at} and has no other Python thread that could release it: {why}."
        )
    threads = "; ".join(f"{name} at {terms.frame(frame)}" for name, frame in holding.threads[:2])
    return f"It waits{at} for another thread of its own: {threads}. Find out which of them holds the lock."


def _of_tasks(holding: f.OnLock, at: str) -> str:
    threads = "; ".join(f"{name} at {terms.frame(frame)}" for name, frame in holding.threads[:2])
    waits = f"It waits{at} for the result of a task: {threads}."
    if holding.starved:
        return f"{waits} All threads of the pool wait for results of other tasks, and none is left to run these: give these a pool of their own."
    return f"{waits} See why these do not end."


@release.register
def _(holding: f.BehindThread, finding: Finding) -> str:
    thread = terms.capital(terms.thread(holding.name, holding.tid))
    keeps = f"{thread} keeps the GIL from the others in {terms.frame(holding.frame)}"
    return f"{keeps}: {PIECES}. To see how long it does, capture again with a larger --settle."


@release.register
def _(holding: f.LostThread, finding: Finding) -> str:
    who = terms.ranks(finding.ranks)
    why = "it has ended, after an exception or its last batch, or was never started"
    again = "So that the process ends with the thread, catch its exception and call os._exit(1)"
    return f"See in the log of {who} why its thread '{holding.name}' is gone: {why}. {again}."


@release.register
def _(holding: f.OnPool, finding: Finding) -> str:
    lost = f"None of its {holding.workers} workers has the task: the one that had it has ended"
    see = f"see the end of the log{_and_dmesg(finding)}"
    return f"{lost}, and a multiprocessing.Pool does not say so; {see}. concurrent.futures.ProcessPoolExecutor raises an error instead."


@release.register
def _(holding: f.OnQueue, finding: Finding) -> str:
    at = f" in {terms.frame(finding.frame)}" if finding.frame is not None else ""
    state = f"The queue{at} is {'full' if holding.full else 'empty'}"
    if not holding.threads:
        do = "take from" if holding.full else "put into"
        why = "that thread has ended (after an exception?) or was never started"
        return f"{state}, and the rank has no other Python thread to {do} it: {why}."
    threads = "; ".join(f"{name} at {terms.frame(frame)}" for name, frame in holding.threads[:3])
    does = "takes from" if holding.full else "puts into"
    return f"{state}. See why no other thread of the rank {does} it: {threads}."
