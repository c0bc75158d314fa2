"""Capturing one node: all ranks in parallel, twice, under one deadline, with whatever each of them
still gives.
"""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

from msgspec import Struct, structs

from ..errors import HangdoctorError, NoRanksFound
from ..model.capture import NodeCapture, Process, ProcessSample, RankCapture
from ..model.layout import guess_layout
from ..model.ras import RasReport
from ..stacks import place_rules
from ..text import redaction
from ..text.plain import readable
from ..time_limit import OutOfTime, each, within
from . import blackbox, discover, proc, pyspy, ras, turns
from . import rank_operations as boxes

_FIND_S = 10.0  # at least, to look through the processes of this host
_WORKERS = 32
_GENTLE_S = 0.5  # so long a reader of stacks leaves the processors to the ranks
_OVERTIME_S = 4.0  # for a reader to end once its time is over
_FIRST_SHARE = 0.5
_BOXES_S = 5.0  # for the black boxes of all ranks; milliseconds, unless their file system hangs
_MAX_CHILDREN = 16  # of one rank whose stacks are read; the state of all is kept
_WAITS_FOR_CHILDREN = frozenset({"data", "queue", "child"})


class CaptureOptions(Struct, frozen=True):
    """What to capture and how; sent to a node as JSON, so every field has a plain type."""

    job: str = ""  # key, or a part of it; "" is the newest
    slurm_job: str = ""  # ranks of this Slurm job only
    slurm_step: str = ""
    pids: list[int] = []
    user: str = ""
    settle_s: float = 1.0
    timeout_s: float = 20.0
    native: bool = False
    blocking: bool = False
    keep_raw: bool = True
    nccl_dump: bool = (
        False  # let ranks write their Flight Recorder's dump, where that overwrites none
    )


def capture_node(options: CaptureOptions, node: str = "") -> NodeCapture:
    """Capture the ranks of this host.

    Raises:
        NoRanksFound: nothing here looks like a rank of that job.
    """
    begin = time.monotonic()
    node = node or os.environ.get("SLURMD_NODENAME") or platform.node()
    patience = max(options.timeout_s, _FIND_S)
    try:
        capture, ranks = within(patience, lambda: _find(options, node))
    except OutOfTime:
        raise NoRanksFound(
            f"the processes of {node} could not be listed within {patience:.0f} s"
        ) from None
    session = _Session(options, begin, capture)
    session.sample(ranks)
    session.attach_boxes(first=True)
    session.capture_children(ranks)
    if any(r.rank == 0 for r in ranks):  # RAS speaks for the whole job: one node asks
        capture.ras = _ask_ras(session.left())
    left = options.timeout_s - (time.monotonic() - begin)
    time.sleep(max(0.0, min(options.settle_s, left)))
    session.sample(ranks)
    session.attach_boxes()
    capture.layout = boxes.told_layout(capture.ranks) or capture.layout
    for rank in ranks:
        _close(rank)
    capture.oom_kills = max((proc.oom_kills(r.pid) for r in ranks if not r.gone), default=0)
    capture.notes += _ptrace_note(ranks)
    capture.took_s = round(time.monotonic() - begin, 4)
    return capture


def _find(options: CaptureOptions, node: str) -> tuple[NodeCapture, list[RankCapture]]:
    if options.pids:
        return _find_pids(options.pids, node)
    try:
        return _find_job(options, node)
    except NoRanksFound as error:
        ended = (
            blackbox.left_behind(options.job or f"slurm-{options.slurm_job}")
            if options.job or options.slurm_job
            else []
        )
        if ended:
            error.help = f"Ranks of it that have ended left black boxes here. Read them: hangdoctor diagnose {ended[0]}. {error.help}"
        raise


def _find_job(options: CaptureOptions, node: str) -> tuple[NodeCapture, list[RankCapture]]:
    jobs = discover.find_jobs(options.user)
    if options.slurm_job:
        prefix = f"slurm:{options.slurm_job}." + options.slurm_step
        jobs = [
            j
            for j in jobs
            if any(f.environ.get("SLURM_JOB_ID") == options.slurm_job for f in j.ranks)
        ]
        exact = [j for j in jobs if j.key == prefix] if options.slurm_step else jobs
        jobs = exact or jobs
    job, notes = discover.select_job(jobs, options.job)
    ranks = [discover.to_capture(f, node) for f in job.ranks]
    first = job.ranks[0]
    capture = NodeCapture(
        node, job.key, notes=notes, layout=guess_layout(first.argv, first.environ, first.world_size)
    )
    capture.ranks = ranks + discover.lost_ranks(job, node)
    return capture, ranks


def _find_pids(pids: list[int], node: str) -> tuple[NodeCapture, list[RankCapture]]:
    """Processes by number: their rank where the environment shows, else their place in the list."""
    import psutil

    ranks: list[RankCapture] = []
    notes: list[str] = []
    for i, pid in enumerate(pids):
        try:
            process = psutil.Process(pid)
            argv, started, user = process.cmdline(), process.create_time(), process.username()
            ppid = process.ppid()
        except psutil.NoSuchProcess:
            notes.append(f"there is no process {pid} on this host")
            continue
        except psutil.Error:
            notes.append(f"no permission to read process {pid}")
            continue
        try:
            numbers, why = discover.rank_of(process.environ()), "has no rank in its environment"
        except psutil.Error:
            numbers, why = None, "does not allow its environment to be read"
        if numbers is None:
            notes.append(f"process {pid} {why}; it is reported as rank {i}")
        rank, world, local, local_world = numbers or (i, len(pids), -1, 0)
        ranks.append(
            RankCapture(
                pid=pid,
                ppid=ppid,
                argv=redaction.arguments([readable(word) for word in argv[:200]]),
                started=started,
                user=readable(user),
                rank=rank,
                node=node,
                world_size=world,
                local_rank=local,
                local_world_size=local_world,
            )
        )
    if not ranks:
        raise NoRanksFound("; ".join(notes), "List your processes: ps -u $USER -o pid,args")
    return NodeCapture(node, "pids:" + ",".join(map(str, pids)), ranks, notes=notes), ranks


class _Session:
    """One capture in progress: the deadline and the place for raw output."""

    def __init__(self, options: CaptureOptions, begin: float, capture: NodeCapture) -> None:
        self.options = options
        self.begin = begin
        self.capture = capture
        self.round = 0
        # Of the time that is left: a reader that hangs must leave some for the second sample.
        self.share = _FIRST_SHARE
        self.boxes_hang = False
        # Never all ranks of a node at once, and half of its processors at most.
        limit = min(turns.processors() // 2, len(capture.ranks) - 1, _WORKERS)
        self.turns = turns.Turns(limit)
        self.gentle_s = _GENTLE_S

    def left(self) -> float:
        return max(0.0, self.options.timeout_s - (time.monotonic() - self.begin))

    def sample(self, processes: list[RankCapture]) -> None:
        """One sample of every process, /proc first, then stacks."""
        self._sample_all(list(processes))
        self.round += 1
        self.share = 1.0

    def _sample_all(self, processes: list[Process]) -> None:
        begin = time.monotonic()
        number = self.round
        try:
            ended = each(
                processes,
                lambda p: self._sample_one(p, number),
                _WORKERS,
                self.left() + _OVERTIME_S,
            )
        except BaseException:
            pyspy.end_all()
            raise
        if not ended:
            self.capture.notes.append(
                "some processes could not be read in time: their /proc does not answer"
            )
        self.capture.pyspy_s = round(self.capture.pyspy_s + time.monotonic() - begin, 4)

    def _sample_one(self, process: Process, number: int) -> None:
        sample = proc.sample_process(process.pid, round(time.monotonic() - self.begin, 4))
        if number != self.round:
            return  # too late: the capture has gone on without it
        process.samples.append(sample)
        if sample.state in ("", "Z", "X"):
            sample.stack_error = (
                "the process has ended" if not sample.state else "the process is a zombie"
            )
            return
        hold = (self.options.native or self.options.blocking) and may_attach(sample)
        with self.turns.one(self.left() * self.share):
            result = pyspy.dump(
                process.pid,
                self.left() * self.share,
                blocking=hold and self.options.blocking,
                native=hold and self.options.native,
                gentle_s=self.gentle_s,
            )
        if result.hurried:
            self.gentle_s = 0.0  # the machine is full: whoever waits for room would wait for long
        if (self.options.native or self.options.blocking) and not hold:
            self.capture.notes.append(
                f"process {process.pid} is in state {sample.state} and was read without stopping it"
            )
        sample.stack_error = result.error
        if result.raw and self.options.keep_raw:
            self.capture.raw[
                f"{process.pid}.{self.round}.json"
                if not result.error
                else f"{process.pid}.{self.round}.err"
            ] = result.raw
        _join_stacks(sample, result)

    def attach_boxes(self, first: bool = False) -> None:
        """The operations of all ranks; their folder may be on a file system that does not answer."""
        if self.boxes_hang:
            return
        patience = max(0.5, min(_BOXES_S, self.left() / 2))
        copies = [
            structs.replace(r) for r in self.capture.ranks
        ]  # what comes too late must not change the capture
        try:
            notes = within(
                patience,
                lambda: boxes.attach(
                    copies, first=first, nccl_dump=self.options.nccl_dump and not first
                ),
            )
        except OutOfTime:
            self.boxes_hang = True
            why = "is the file system of HANGDOCTOR_DIR hanging?"
            self.capture.notes.append(
                f"the black boxes could not be read within {patience:.1f} s: {why}"
            )
            return
        for rank, copy in zip(self.capture.ranks, copies, strict=True):
            rank.pid, rank.ops, rank.ops_before, rank.calls = (
                copy.pid,
                copy.ops,
                copy.ops_before,
                copy.calls,
            )
        self.capture.notes += [n for n in notes if n not in self.capture.notes]

    def capture_children(self, ranks: list[RankCapture]) -> None:
        """Stacks of a rank's children, where it waits for them; otherwise only who they are."""
        wanted: list[Process] = []
        family = discover.parents()
        for rank in ranks:
            rank.children = discover.children_of(rank.pid, family)
            _, place = place_rules.rank_thread(rank.samples[-1].threads if rank.samples else [])
            if place.kind in _WAITS_FOR_CHILDREN or (rank.children and not place.communicates):
                wanted += rank.children[:_MAX_CHILDREN]
        if wanted:
            self._sample_all(wanted)
            for child in wanted:
                _close(child)


def may_attach(sample: ProcessSample) -> bool:
    """True where ptrace is safe: the process sleeps or runs, and no thread of it is in
    uninterruptible I/O.
    """
    return sample.state in ("S", "R") and not any(t.state == "D" for t in sample.threads)


def _join_stacks(sample: ProcessSample, result: pyspy.StackResult) -> None:
    """Put py-spy's stacks on the threads that /proc told of."""
    known = {t.tid: t for t in sample.threads}
    for stack in result.threads:
        thread = known.get(stack.tid)
        if thread is None:
            sample.threads.append(stack)
            continue
        thread.name, thread.frames, thread.gil, thread.active = (
            stack.name,
            stack.frames,
            stack.gil,
            stack.active,
        )
    # Threads without Python in them (autograd's pools, gloo's, CUDA's) are kept only where they
    # tell something.
    sample.threads = [
        t for t in sample.threads if t.frames or t.state == "D" or not result.threads
    ][:400]


def _ask_ras(left_s: float) -> RasReport | None:
    """NCCL's RAS on this node; most jobs have none, and the connection is refused at once."""
    try:
        return ras.query(timeout_s=min(3.0, left_s))
    except HangdoctorError:
        return None


def _close(process: Process) -> None:
    """What only the end of a capture knows: whether it still lives, who traces it, whether it is
    frozen.
    """
    state = proc.stat_fields(process.pid)[:1]
    if not state or state[0] in "ZX":
        process.gone = True
        process.exit_code = proc.exit_code(process.pid)
        return
    process.tracer = int(proc.status_fields(process.pid).get("TracerPid", "0") or 0)
    process.frozen = proc.is_frozen(process.pid)


def _ptrace_note(ranks: list[RankCapture]) -> list[str]:
    """One line on what to allow, where the right to read the processes was missing."""
    errors = {s.stack_error for r in ranks for s in r.samples if "not permitted" in s.stack_error}
    if not errors:
        return []
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    told = (
        f" (kernel.yama.ptrace_scope is {scope.read_text().strip()} on this node)"
        if scope.exists()
        else ""
    )
    return [f"stacks could not be read: {errors.pop()}{told}; the verdict rests on /proc alone"]
