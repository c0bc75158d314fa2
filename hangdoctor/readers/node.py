"""Capturing one node: all ranks in parallel, twice, under one deadline, with whatever each of them
still gives.
"""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

import psutil

from ..errors import NoRanksFound
from ..model.capture import NodeCapture, RankCapture
from ..model.layout import guess_layout
from ..text import redaction
from ..text.plain import readable
from ..text.plural import choose, count
from ..time_limit import OutOfTime, within
from . import (
    blackbox,
    discover,
    families,
    far_ends,
    file_locks,
    job_choice,
    launch_file,
    launched,
    loaded_modules,
    lock_files,
    lost_ranks,
    rank_environment,
    ray_ranks,
    spawned_as,
    start_up,
    starting_ranks,
    unnumbered,
    unread_pipes,
    waiting_agents,
    written_locks,
)
from .capture_options import CaptureOptions
from .ended_meanwhile import Leaving
from .node_session import FIRST, LAST, Session
from .told_layout import told_layout
from .told_world import take_told_world

__all__ = ["CaptureOptions", "capture_node"]

_FIND_S = (
    3.0  # at least, to look through the processes of this host: without ranks there is nothing else
)
_FIND_SHARE = 0.6  # of the whole time
_UNNUMBERED_PART = 0.15  # of that search, once more: ranks without a number
_SEARCH_PART = 0.8  # of it: /proc of every process; then who belongs to whom


def capture_node(options: CaptureOptions, node: str = "") -> NodeCapture:
    """Capture the ranks of this host.

    Raises:
        NoRanksFound: nothing here looks like a rank of that job.
    """
    begin = time.monotonic()
    node = node or os.environ.get("SLURMD_NODENAME") or platform.node()
    patience = max(_FIND_SHARE * options.timeout_s, _FIND_S)
    try:
        capture, ranks = within(patience, lambda: _find(options, node, _SEARCH_PART * patience))
    except OutOfTime:
        raise NoRanksFound(
            f"the processes of {node} could not be listed within {patience:.0f} s"
        ) from None
    session = Session(options, begin, capture)
    leaving = Leaving(ranks)
    try:
        _capture(session, ranks)
        session.note_ends(leaving)
    finally:
        leaving.close()
    session.take_gpus(ranks)
    capture.notes += _ptrace_note(ranks)
    capture.took_s = round(time.monotonic() - begin, 4)
    return capture


def _capture(session: Session, ranks: list[RankCapture]) -> None:
    """Both samples of all ranks, and what else each of them gives."""
    capture = session.capture
    session.ask_gpus(ranks)
    session.sample(ranks, FIRST)
    spawned_as.take(capture)
    session.attach_boxes(first=True)
    session.attach_recorders(first=True)
    session.capture_children(ranks)
    if any(r.rank == 0 for r in ranks):  # RAS speaks for the whole job: one node asks
        session.ask_ras(ranks)
    session.settle()
    session.sample(ranks, LAST)
    take_told_world(ranks)
    file_locks.attach(ranks)
    lock_files.attach(ranks)
    written_locks.attach(ranks)
    unread_pipes.attach(ranks)
    far_ends.attach(ranks)
    loaded_modules.attach(ranks)
    session.attach_start_up(ranks)
    session.attach_boxes()
    session.attach_recorders()
    capture.layout = told_layout(capture.ranks) or capture.layout
    session.close(ranks)


def _find(
    options: CaptureOptions, node: str, seconds: float
) -> tuple[NodeCapture, list[RankCapture]]:
    if options.pids:
        return _find_pids(options.pids, node)
    try:
        return _find_job(options, node, seconds)
    except NoRanksFound as error:
        error.help = _with_ended(error.help, options)
        raise


def _with_ended(help: str, options: CaptureOptions) -> str:
    """The help on a job that is not here, with the black boxes that it has left; with those of the
    newest job where it is not known whose name that was, as of a script.
    """
    name = options.job or (f"slurm-{options.slurm_job}" if options.slurm_job else "")
    own = blackbox.left_behind(name)
    if own and name:
        ended = "Ranks of it that have ended left black boxes here. Read them:"
        return f"{ended} hangdoctor diagnose {own[0]}. {help}"
    others = [] if options.slurm_job else own or blackbox.left_behind("")
    if not others:
        return help
    return (
        f"{help} Of the job that ended last, black boxes are here: hangdoctor diagnose {others[0]}."
    )


def _of_slurm(jobs: list[discover.Job], job: str, step: str) -> list[discover.Job]:
    """Those of a Slurm job; where its step is known by name, that one."""
    of_job = [j for j in jobs if any(f.environ.get("SLURM_JOB_ID") == job for f in j.ranks)]
    of_step = [j for j in of_job if step and j.key == f"slurm:{job}.{step}"]
    return of_step or of_job


def _find_job(
    options: CaptureOptions, node: str, seconds: float
) -> tuple[NodeCapture, list[RankCapture]]:
    held: set[int] = set()  # processes that do not answer
    jobs, unread = discover.search(options.user, seconds, held)
    uid, rest_s = discover.uid_of(options.user), _UNNUMBERED_PART * seconds
    jobs = families.with_families(jobs, uid, rest_s, held)
    if options.slurm_job:
        jobs = _of_slurm(jobs, options.slurm_job, options.slurm_step)
    if not (job_choice.named(jobs, options.job) if options.job else jobs):
        waiting = waiting_agents.capture(uid, node, options.job, slurm_job=options.slurm_job)
        if waiting is not None:
            return waiting, []
    if not jobs:
        _say_what_is_there(uid, node)
    job, chosen = job_choice.select_job(jobs, options.job)
    job = starting_ranks.with_children(job)
    ranks = [discover.to_capture(f, node) for f in job.ranks]
    first = job.ranks[0]
    capture = NodeCapture(
        node,
        job.key,
        notes=list(job.notes),
        layout=guess_layout(first.argv, first.environ, first.world_size),
        expected=start_up.expected_ranks(first.environ),
        launch=launch_file.of_ranks(first),
        chosen=chosen,
    )
    if unread:
        # Whoever is missing may be among them: that is no sign of a rank that has ended.
        processes = f"{unread} {choose(unread, 'process', 'processes')} of {node}"
        capture.notes.append(
            f"{processes} could not be read within {seconds:.1f} s: ranks among them are not shown"
        )
        capture.ranks = ranks
    else:
        lost = lost_ranks.lost_ranks(job, node)
        capture.ranks = ranks + lost
        capture.notes += lost_ranks.notes(lost)
    return capture, list(ranks)


def _say_what_is_there(uid: int | None, node: str) -> None:
    """Raise with what a person may do, where processes here may belong to a job without ranks."""
    by_hand = unnumbered.by_hand(uid, node)
    if by_hand:
        raise NoRanksFound(f"no process on {node} has a rank in its environment", by_hand)
    if ray_ranks.has_node():
        raise NoRanksFound(
            f"no rank processes found on {node}, which is a node of Ray",
            "Only Ray knows which of its actors are the ranks, and they may not have started yet: "
            "hangdoctor dump --ray asks it. For single processes: hangdoctor dump --pid P.",
        )


def _find_pids(pids: list[int], node: str) -> tuple[NodeCapture, list[RankCapture]]:
    """Processes by number: their rank where a black box or the environment shows it, else their
    place in the list. A process that only started the ranks stands for these.
    """
    notes: list[str] = []
    if len(pids) == 1:
        waiting = waiting_agents.capture(None, node, str(pids[0]))
        if waiting is not None:
            return waiting, []
        family = families.job_below(pids[0])
        if family is not None:
            ranks = [discover.to_capture(f, node) for f in family.ranks]
            first = any(f.pid == pids[0] for f in family.ranks)  # as of Lightning's launcher
            what = "started the other ranks: all" if first else "is no rank: its"
            notes = [f"process {pids[0]} {what} {len(ranks)} ranks are shown"]
            key = f"pids:{pids[0]}"
            return NodeCapture(node, key, ranks, notes=notes + family.notes), ranks
    key = "pids:" + ",".join(map(str, pids))
    ranks, others = _without_launchers(pids, node, notes)
    for place, pid in enumerate(others, start=len(ranks)):
        rank = _rank_by_pid(place, len(pids), pid, node, notes=notes)
        if rank is not None:
            ranks.append(rank)
    if not ranks:
        raise NoRanksFound("; ".join(notes), "List your processes: ps -u $USER -o pid,args")
    return NodeCapture(node, key, ranks, notes=notes), ranks


def _without_launchers(
    pids: list[int], node: str, notes: list[str]
) -> tuple[list[RankCapture], list[int]]:
    """(ranks that the launchers among these processes started; the other processes, and of a
    launcher without ranks the program that it runs).
    """
    ranks: dict[int, RankCapture] = {}
    others: list[int] = []
    for pid in pids:
        launcher = launched.is_launching(pid)
        if not launcher and _numbers_of(pid)[0] is not None:
            others.append(pid)
            continue
        below, more = launched.ranks_below(pid)
        if not launcher and len({found.job for found in below}) > 1:
            below = []  # a shell, or the first process of a host: which of its jobs is meant?
        program = 0 if below or not launcher else launched.program_below(pid)
        if below:
            started = count(len(below), "rank")
            what = "is a launcher" if launcher else "has no rank"
            notes += [f"process {pid} {what}: the {started} below it are shown", *more]
            ranks |= {found.pid: discover.to_capture(found, node) for found in below}
        elif program:
            notes.append(f"process {pid} is a launcher: process {program} below it is shown")
            others.append(program)
        else:
            others.append(pid)
    return list(ranks.values()), [pid for pid in others if pid not in ranks]


def _rank_by_pid(i: int, size: int, pid: int, node: str, notes: list[str]) -> RankCapture | None:
    """One of the processes that were named; None, with a note, where there is none to read."""
    try:
        process = psutil.Process(pid)
        argv, started, user = process.cmdline(), process.create_time(), process.username()
        ppid = process.ppid()
    except psutil.NoSuchProcess:
        notes.append(f"there is no process {pid} on this host")
        return None
    except psutil.Error:
        notes.append(f"no permission to read process {pid}")
        return None
    numbers, why = _numbers_of(pid)
    if numbers is None:
        notes.append(f"process {pid} {why}; it is reported as rank {i}")
    rank, world, local, local_world = numbers or (i, size, -1, 0)
    return RankCapture(
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


def _numbers_of(pid: int) -> tuple[tuple[int, int, int, int] | None, str]:
    """(rank, world size, local rank, local world size) of a process, or why there are none."""
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
        box = unnumbered.box_of(pid, raw)
        if box is not None:
            return (box.rank, box.world_size, box.local_rank, 0), ""
        return rank_environment.rank_of(
            psutil.Process(pid).environ()
        ), "has no rank in its environment"
    except (psutil.Error, OSError):
        return None, "does not allow its environment to be read"


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
