"""A job as PBS knows it from outside, by ``qstat -f``; and its nodes, reached by ssh.

https://github.com/openpbs/openpbs: doc/man1/qstat.1B, and src/include/job.h for the states.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from ..errors import JobNotFound, JobNotRunning, LauncherError, UsageError
from ..model.capture import Site
from . import gather
from .knock import Knocker
from .lost_nodes import Watch
from .remote import Command, Outcome, query
from .slurm_job import clean_environment
from .ssh import is_host, ssh_address, ssh_command

_QUERY_S = 10.0
_JOB = re.compile(r"\d+(\[\d*\])?(\.[A-Za-z0-9][\w.-]*)?")
_TEXT = re.compile(r"    (\S+) = (.*)")  # of TORQUE, and of PBS before it had JSON
_HELP = "See your jobs: qstat -u $USER"
_WAITS = {
    "Q": "queued",
    "H": "held",
    "W": "waiting for its start time",
    "T": "being moved",
    "M": "moved to another server",
}
_SUSPENDED = {"S": "by PBS", "U": "because its workstation is in use"}
_ENDED = {"F", "C", "X"}


class PbsJob(Struct):
    """What qstat says of a job."""

    id: str
    state: str = ""  # one letter
    hosts: list[str] = []  # each once, in PBS's order: the first has the job's script
    comment: str = ""
    exit_status: str = ""


class PbsJobReach:
    """The nodes of a running job, with one ssh a node; see `reach.Reach`."""

    means = "ssh"

    def __init__(self, job: str, python: str = "") -> None:
        """
        Raises:
            UsageError: `job` is no id of a PBS job.
        """
        self.job = parse_job(job)
        self.python = python
        self._nodes: list[str] = []

    def nodes(self) -> list[str]:
        """The nodes of the job; PBS is asked once.

        Raises:
            JobNotFound, JobNotRunning: PBS knows no such job, or it does not run.
            LauncherError: qstat is not here, or PBS does not answer.
        """
        if not self._nodes:
            self._nodes = running_hosts(look_up(self.job))
        return self._nodes

    def commands(self, words: Sequence[str], timeout_s: float) -> list[Command]:
        """One ssh a node; raises as `nodes`."""
        command = gather.shell_command(gather.own_command(words, self.python))
        return [ssh_command(node, command, timeout_s) for node in self.nodes()]

    def by_hand(self) -> str:
        """See `reach.TriedByHand`."""
        return "ssh {node} true"

    def unasked(self) -> dict[str, str]:
        """None: a job's nodes are all asked."""
        return {}

    def watch(self) -> Watch:
        """Knocks at sshd."""
        return Watch(Knocker(ssh_address))

    def site(self) -> Site:
        """PBS's commands; see `launchers.reach.HasSite`."""
        return site_of(self.job, f"--pbs {self.job}")


def site_of(job: str, target: str) -> Site:
    """PBS's own commands for a job, which `target` names to hangdoctor."""
    return Site(
        see="pbsnodes {node}",
        capture=f"hangdoctor dump {target}",
        restart=f"qdel {job}, then submit it again with qsub",
        memory="mem in its -l select",
    )


def parse_job(text: str) -> str:
    """The id without blanks around it.

    Raises:
        UsageError: it is no id of a PBS job.
    """
    if not _JOB.fullmatch(text.strip()):
        raise UsageError(
            f"'{text}' is not a PBS job id",
            "Give its number, with or without its server: --pbs 12345, --pbs 12345.server, --pbs '12345[3]'",
        )
    return text.strip()


def same_job(one: str, other: str) -> bool:
    """Whether two ids mean the same job: a server may be missing in one of them."""
    return one.partition(".")[0] == other.partition(".")[0] != ""


def look_up(job: str) -> PbsJob:
    """Ask PBS for a job, also for one that is over.

    Raises:
        JobNotFound: PBS knows no such job.
        LauncherError: qstat is not here, or PBS does not answer.
    """
    if shutil.which("qstat") is None:
        raise LauncherError(
            "qstat was not found",
            "Run hangdoctor where PBS's commands are, or inside the job with --pbs alone.",
        )
    env = clean_environment(os.environ)
    told = query(("qstat", "-f", "-F", "json", job), _QUERY_S, env)
    if "usage:" in told.errors.lower() or "invalid option" in told.errors:
        told = query(("qstat", "-f", job), _QUERY_S, env)
    if "Job has finished" in told.errors:
        told = query(("qstat", "-x", "-f", "-F", "json", job), _QUERY_S, env)
    found = parse_answer(told.output)
    if found is not None:
        return found
    raise _refusal(job, told)


def _refusal(job: str, told: Outcome) -> LauncherError:
    said = gather.last_words(told.errors)
    if re.search("Unknown Job|illegally formed job", told.errors):
        return JobNotFound(f"PBS knows no job {job}", _HELP)
    if told.code is None:
        return LauncherError(f"qstat did not answer within {_QUERY_S:.0f} s", "Try: qstat -B")
    if "maintain job history" in told.errors:
        return JobNotRunning(f"job {job} has ended", _AFTERWARDS)
    return LauncherError(f"qstat failed: {said or f'exit code {told.code}'}", "Try: qstat -B")


def parse_answer(text: str) -> PbsJob | None:
    """The one job of ``qstat -f``, in JSON or as lines; None where there is none."""
    job, attributes = _from_json(text) if text.lstrip().startswith("{") else _from_lines(text)
    if not job:
        return None
    hosts = _host_names(attributes.get("exec_host", ""), "/")
    return PbsJob(
        job,
        attributes.get("job_state", ""),
        hosts or _host_names(attributes.get("exec_vnode", ""), ":"),
        comment=attributes.get("comment", ""),
        exit_status=attributes.get("Exit_status", attributes.get("exit_status", "")),
    )


def _from_json(text: str) -> tuple[str, dict[str, str]]:
    try:
        told = json.loads(text, strict=False)
        [(job, attributes)] = told["Jobs"].items()
        return str(job), {name: str(value) for name, value in attributes.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        # Some versions print variables of the job's environment without quoting what is in them.
        pairs = re.findall(r'^\s*"(\w+)":\s*"?(.*?)"?,?\s*$', text, re.M)
        begun = re.search(r'"Jobs":\s*\{\s*"([^"]+)"', text)
        return (begun[1], dict(reversed(pairs))) if begun else ("", {})


def _from_lines(text: str) -> tuple[str, dict[str, str]]:
    """``Job Id: 7.server``, lines ``    name = value``, and long values go on behind a tab."""
    lines = text.replace("\n\t", "").splitlines()
    job = next((line.partition(":")[2].strip() for line in lines if line.startswith("Job Id:")), "")
    pairs = (_TEXT.fullmatch(line) for line in lines)
    return job, {pair[1]: pair[2].strip() for pair in pairs if pair}


def _host_names(text: str, behind: str) -> list[str]:
    """``n1/0*48+n2/0`` (or ``(n1:ncpus=48+n1:mem=1)+(n2:ncpus=1)``): n1, n2, as far as they are names."""
    parts = (part.strip("() \n").partition(behind)[0] for part in text.split("+"))
    names = (part.partition("[")[0] for part in parts)
    return [name for name in dict.fromkeys(names) if is_host(name)]


_AFTERWARDS = (
    "Diagnose its output: hangdoctor diagnose JOBNAME.o* (and see qstat -x -f, or tracejob)."
)


def running_hosts(job: PbsJob) -> list[str]:
    """The nodes of a job that runs.

    Raises:
        JobNotRunning: it has not started, is suspended, is ending or over; or PBS names no node.
    """
    state, why = job.state, f" ({job.comment})" if job.comment else ""
    if state in _WAITS:
        raise JobNotRunning(
            f"job {job.id} has not started: it is {_WAITS[state]}{why}",
            f"Capture it once it runs: qstat {job.id}",
        )
    if state == "B":
        element = re.sub(r"\[\d*\]", "[1]", job.id)
        raise JobNotRunning(
            f"job {job.id} is an array",
            f"Choose one of its jobs: qstat -t {job.id}; --pbs '{element}'",
        )
    if state in _SUSPENDED:
        raise JobNotRunning(
            f"job {job.id} is suspended {_SUSPENDED[state]}: all of its processes are stopped, which is why it hangs",
            f"Resume it: qsig -s resume {job.id}",
        )
    if state == "E":
        raise JobNotRunning(f"job {job.id} is ending", _AFTERWARDS)
    if state in _ENDED:
        status = f" with exit status {job.exit_status}" if job.exit_status else ""
        raise JobNotRunning(f"job {job.id} has ended{status}{why}", _AFTERWARDS)
    if not job.hosts:
        raise JobNotRunning(
            f"PBS names no node of job {job.id} (state {state or 'unknown'})",
            f"See: qstat -f {job.id}",
        )
    return job.hosts


def here(job: str, environ: Mapping[str, str]) -> bool:
    """Whether this process runs inside that job, with its file of nodes."""
    inside = same_job(environ.get("PBS_JOBID", ""), job)
    return inside and Path(environ.get("PBS_NODEFILE") or "/nonexistent").exists()
