"""torchrun's agents that wait for other nodes, also those in `accelerate launch`: they start no rank
before all have come.

Which of them is missing no process here knows; how many have come, the host of the store does: each
agent is connected to it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import psutil
from msgspec import structs

from ..errors import NoRanksFound
from ..model.capture import NodeCapture
from ..model.start_up import StoreView, WaitingAgent
from ..text.ranges import number_in
from . import connections, launch_words, start_up
from .job_scripts import is_script, several
from .jobnames import names_job

_LAUNCHERS = ("torchrun", "accelerate")


def find(uid: int | None, slurm_job: str = "", *, ways: bool = True) -> list[WaitingAgent]:
    """The agents on this host that run no rank, of several nodes each, the newest first. `uid`: only
    this user's; `slurm_job`: only those of that job; `ways`: with their way to the rendezvous, to
    which one connection is attempted.
    """
    found = (_read(process, uid, slurm_job, ways) for process in psutil.process_iter())
    agents = [agent for agent in found if agent is not None]
    above = set[int]().union(*map(_ancestors, agents))
    return sorted((a for a in agents if a.pid not in above), key=lambda agent: agent.seconds)


def _ancestors(agent: WaitingAgent) -> list[int]:
    """The processes above it: `timeout 60 torchrun ...` has the same words, and waits for no one."""
    try:
        return [process.pid for process in psutil.Process(agent.pid).parents()]
    except psutil.Error:
        return []


def _meeting_with(one: WaitingAgent, agents: Sequence[WaitingAgent]) -> list[WaitingAgent]:
    """Those of the same job, which meet at the same place."""
    place = (one.launch.endpoint, one.launch.run)
    return [a for a in agents if (a.launch.endpoint, a.launch.run) == place]


def capture(
    uid: int | None, node: str, job: str = "", *, slurm_job: str = ""
) -> NodeCapture | None:
    """The agents of one job as a node without ranks; None where none waits. `job`: its name, the
    process of an agent, or the script that it is to start.

    Raises:
        NoRanksFound: all nodes have come, and the ranks are about to start.
        UsageError: it names the script of several jobs.
    """
    found = find(uid, slurm_job)
    named = _named(found, job)
    if not named:
        return None
    agents = _meeting_with(named[0], found)
    _only_job(job, named)
    here = max(agent.come for agent in agents)
    if here >= agents[0].launch.nodes:
        raise NoRanksFound(
            f"no rank has been started on {node} yet",
            f"torchrun (pid {agents[0].pid}) has {here} nodes at its rendezvous, as many as it needs: run this again in a minute.",
        )
    return as_capture(agents, node)


def of_job(uid: int | None, job: str = "", slurm_job: str = "") -> list[WaitingAgent]:
    """The agents of the job that is named, which wait for further nodes."""
    found = _named(find(uid, slurm_job, ways=False), job)
    return [agent for agent in found if agent.come < agent.launch.nodes]


def _named(agents: Sequence[WaitingAgent], job: str) -> list[WaitingAgent]:
    if not job:
        return list(agents)
    of_name = [a for a in agents if str(a.pid) == job or names_job(job, _key(a))]
    return of_name or [a for a in agents if a.script and is_script(job, a.script)]


def _only_job(job: str, named: Sequence[WaitingAgent]) -> None:
    """Raise where a script does not say which job is meant."""
    by_place = {(a.launch.endpoint, a.launch.run): a for a in reversed(named)}
    if len(by_place) > 1 and all(is_script(job, a.script) for a in named):
        here = [f"torchrun at {place[0]} (pid {a.pid})" for place, a in by_place.items()]
        raise several(job, len(by_place), ", ".join(here))


def _key(agent: WaitingAgent) -> str:
    run = agent.launch.run
    return f"torchrun:{run}" if run else agent.launch.endpoint


def as_capture(agents: Sequence[WaitingAgent], node: str) -> NodeCapture:
    """A node that has agents of one job and no rank."""
    return NodeCapture(node, _key(agents[0]), agents=list(agents), launch=agents[0].launch)


def _read(
    process: psutil.Process, uid: int | None, slurm_job: str, ways: bool
) -> WaitingAgent | None:
    try:
        argv = process.cmdline()
        if not any(name in word for word in argv[:8] for name in (*_LAUNCHERS, "torch.distrib")):
            return None
        if uid is not None and process.uids().real != uid:
            return None
        environ = process.environ()
        if slurm_job and environ.get("SLURM_JOB_ID") != slurm_job:
            return None
        agent = _of_words(process, argv, environ)
        if agent is None or not ways:
            return agent
        return structs.replace(agent, store=_way_to(agent.pid, agent.launch.endpoint))
    except (psutil.Error, OSError):
        return None


def _of_words(
    process: psutil.Process, argv: Sequence[str], environ: Mapping[str, str]
) -> WaitingAgent | None:
    launch = launch_words.launch_of(argv, environ)
    if launch is None or launch.launcher not in _LAUNCHERS or launch.nodes < 2:
        return None
    if launch_words.first_launcher(argv) not in _LAUNCHERS:
        return None  # srun and mpirun start them on other nodes
    if any("python" in child.name() for child in process.children()):
        return None  # its ranks, or what was started through it
    guests = connections.guests(process.pid)
    come = 1 + max(map(len, guests.values())) if guests else 0
    return WaitingAgent(
        process.pid,
        launch,
        come=min(come, launch.nodes),
        seconds=round(max(0.0, time.time() - process.create_time()), 1),
        script=launch_words.program_of(argv),
    )


def _way_to(pid: int, endpoint: str) -> StoreView | None:
    name, _, port = endpoint.rpartition(":")
    number = number_in(port)
    if not name or not 0 < number < 1 << 16:
        return None
    return start_up.store_of(pid, name.strip("[]"), number, {})
