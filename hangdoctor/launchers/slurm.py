"""A running Slurm job: one overlapping step a node, beside the training.

    srun --jobid=J --overlap --gres=gpu:0 -w NODE -N1 -n1 ... hangdoctor agent --once ...

Without --overlap and --gres=gpu:0 the step would wait for what the training holds
(https://slurm.schedmd.com/srun.html). A report comes back over srun's standard output.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

import msgspec

from ..clock import SystemClock
from ..errors import (
    HangdoctorError,
    JobNotFound,
    JobNotRunning,
    LauncherError,
    NotPermitted,
    UsageError,
)
from ..model.capture import JobCapture
from ..readers.node import CaptureOptions
from ..text.ranges import format_hosts, number_in, parse_hosts
from . import gather, slurm_nodes
from .base import Progress
from .knock import Knocker
from .lost_nodes import Watch
from .remote import Command, Outcome, query, run_all

_JOB = re.compile(r"^(\d+(?:_\d+)?)(?:\.(\d+))?$")
_SQUEUE = ("squeue", "-h")
_QUERY_S = (
    10.0  # for one question to Slurm's controller; milliseconds, unless the machine is overloaded
)
_QUERY_AT_LEAST_S = 1.0
_AFTERWARDS_S = (2.0, 0.5)  # at most and at least, for what is not worth waiting for
# These lead to the cluster; all other variables of Slurm describe the caller's job or step and
# would be taken as options.
_KEEP = frozenset(
    {"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_CLUSTER_NAME", "SLURM_JWT"}
)
_FOREIGN = re.compile(
    r"^(SLURM|SRUN|SBATCH|SALLOC|SLURMD|OMPI|PMI|PMIX|PALS|TORCHELASTIC)_|"
    r"^(RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|GROUP_RANK|MASTER_ADDR|MASTER_PORT|PYTHONSTARTUP|PYTHONINSPECT)$"
)
_NOT_TRAINING = frozenset({"batch", "extern", "interactive"})
STEP_NAME = "hangdoctor"  # of our own steps, in squeue -s

_CONTROLLER = (
    r"[Uu]nable to contact slurm controller|Unable to establish control|Could not establish a configuration source|"
    r"Connection refused|Socket timed out"
)
_CONTROLLER_HELP = (
    "Try: scontrol ping. To reach the nodes by ssh instead: hangdoctor dump --hostfile F."
)
ENDED = (
    r"Invalid job id|already completing or completed|Expired or invalid job|has expired|Job is not running|"
    r"Requested job step [^\n]{0,200}not|Job/step"
)


# All of the line says why.
_BUSY = r"temporarily disabled|nodes are busy|Unable to create step"
# What srun says of a node that it cannot reach, in plain words.
_WORDS = (
    (r"Task launch for \S+ failed on node \S+: ([^\n]*)", "its slurmd does not answer ({})"),
    (
        r"Node failure on|[Nn]ode \S+ is not responding|Job credential|Zero Bytes were transmitted",
        "Slurm lost the node ({})",
    ),
    (_BUSY, "Slurm cannot start a step on it ({})"),
)


class Step(msgspec.Struct):
    """One step of the job, as ``squeue -s`` lists it."""

    id: str
    name: str
    tasks: int
    nodes: list[str]


def parse_job(text: str) -> tuple[str, str]:
    """``7`` -> ("7", ""), ``7.0`` -> ("7", "0"), ``12_3`` (a task of an array) -> ("12_3", "").

    Raises:
        UsageError: the text is neither.
    """
    match = _JOB.match(text.strip())
    if match is None:
        raise UsageError(
            f"'{text}' is not a Slurm job id",
            "Give a job id, or a job id and a step: --jobid 12345, --jobid 12345.0",
        )
    return match[1], match[2] or ""


def clean_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The caller's environment without what an enclosing job, step or rank has put there."""
    return {k: v for k, v in environ.items() if k in _KEEP or not _FOREIGN.match(k)}


class SlurmLauncher:
    """Captures the nodes of a running job."""

    def __init__(self, job: str, step: str = "", python: str = "") -> None:
        self.job = job
        self.step = step
        self.python = python
        self.env = clean_environment(os.environ)
        self.clock = SystemClock()
        self.deadline: float | None = None  # of what is under way, on the monotonic clock

    def capture(self, options: CaptureOptions, progress: Progress) -> JobCapture:
        """Capture the nodes of the training's step by overlapping steps; see `base.Launcher`.

        Raises:
            LauncherError: the job is not there, not running, or another user's; or Slurm does not
                answer.
        """
        begin, taken = self.clock.monotonic(), self.clock.wall()
        deadline = self.deadline = begin + options.timeout_s
        self.job, job_nodes = self._running_job()
        nodes, step, notes = self._choose(job_nodes)
        progress(f"asking {len(nodes)} nodes of job {self.job}: {format_hosts(nodes)}")
        left = max(0.5, deadline - self.clock.monotonic())
        options = msgspec.structs.replace(options, slurm_job=self.job, slurm_step=step)
        agent = gather.agent_command(gather.node_options(options, left), self.python)
        watch = Watch(Knocker(slurm_nodes.Addresses(nodes, self.env).find))
        outcomes = self._ask(nodes, agent, deadline, progress, watch)
        gathered = gather.sort_out(outcomes)
        progress(gather.summary(gathered, len(nodes)))
        if not gathered.captures:
            self._refuse(list(gathered.silent.values()), len(nodes))
        whys = self._whys(gathered, options.timeout_s)
        capture = gather.join(gathered, nodes, whys, options)
        capture.job = f"slurm:{self.job}.{step}" if not gathered.captures and step else capture.job
        capture.notes += notes
        capture.taken, capture.took_s = taken, self.clock.monotonic() - begin
        return capture

    def nodes(self) -> list[str]:
        """The nodes of the running job.

        Raises:
            LauncherError: as `capture`.
        """
        self.job, nodes = self._running_job()
        return nodes

    def ask(
        self, nodes: list[str], agent: list[str], deadline: float, progress: Progress
    ) -> list[Outcome]:
        """One overlapping step a node, until `deadline` (of time.monotonic); after `nodes`."""
        return self._ask(nodes, agent, deadline, progress)

    def stay(self, flags: Sequence[str]) -> list[Command]:
        """One agent a node that stays beside the training, as commands to run.

        Raises:
            LauncherError: as `capture`.
        """
        self.job, job_nodes = self._running_job()
        nodes, step, _ = self._choose(job_nodes)
        job = f"{self.job}.{step}" if step else self.job
        agent = gather.staying_agent([*flags, "--jobid", job], self.python)
        overlap = self._overlap()
        return [step_command(self.job, n, agent, overlap) for n in nodes]

    def on_nodes(
        self, arguments: Sequence[str], timeout_s: float, progress: Progress
    ) -> list[Outcome]:
        """Run ``hangdoctor ARGUMENTS --job slurm-J.STEP`` once on every node of the training, under
        a deadline.

        Raises:
            LauncherError: as `capture`.
        """
        deadline = self.deadline = self.clock.monotonic() + timeout_s
        self.job, job_nodes = self._running_job()
        nodes, step, _ = self._choose(job_nodes)
        progress(f"asking {len(nodes)} nodes of job {self.job}: {format_hosts(nodes)}")
        command = gather.own_command([*arguments, "--job", f"slurm-{self.job}.{step}"], self.python)
        outcomes = self._ask(nodes, command, deadline, progress)
        return [_in_words(o) for o in outcomes]

    def on_node(self, node: str, arguments: Sequence[str]) -> list[Command]:
        """``hangdoctor ARGUMENTS --job slurm-J.STEP`` on one node, to be run by the caller; the
        second where Slurm refuses the first.

        Raises:
            LauncherError: as `capture`.
        """
        self.job, job_nodes = self._running_job()
        _, step, _ = self._choose(job_nodes)
        words = [*arguments, "--job", f"slurm-{self.job}.{step}"]
        command, overlap = gather.own_command(words, self.python), self._overlap()
        return [
            step_command(self.job, node, command, overlap, gres=gres) for gres in ("gpu:0", "none")
        ]

    # ----------------------------------------------------------------- what Slurm knows

    def _patience(self, most: float, least: float) -> float:
        """Seconds for one question: at most half of what is left, so that the next has some, too."""
        if self.deadline is None:
            return most
        return min(most, max(least, (self.deadline - self.clock.monotonic()) / 2))

    def _slurm(self, argv: Sequence[str]) -> Outcome:
        """One question to Slurm.

        Raises:
            LauncherError: the command is not here, or the controller does not answer.
        """
        patience = self._patience(_QUERY_S, _QUERY_AT_LEAST_S)
        try:
            outcome = query(argv, patience, self.env)
        except LauncherError as error:
            raise LauncherError(
                str(error),
                "Run this on a login node, or load Slurm's module. If ssh reaches the nodes: hangdoctor dump --hostfile F.",
            ) from error
        if outcome.code is None:
            raise LauncherError(
                f"{argv[0]} did not answer within {patience:.0f} s: Slurm's controller is down or overloaded",
                _CONTROLLER_HELP,
            )
        if outcome.code and re.search(_CONTROLLER, outcome.errors):
            raise LauncherError(
                f"the query to Slurm failed: {gather.last_words(outcome.errors)}", _CONTROLLER_HELP
            )
        return outcome

    def _running_job(self) -> tuple[str, list[str]]:
        """(job id, its nodes).

        Raises:
            JobNotFound, JobNotRunning, NotPermitted: it cannot be captured, and why.
        """
        job = self.job
        answer = self._slurm([*_SQUEUE, "-t", "all", "-j", job, "-o", "%A|%T|%U|%u|%i|%r|%N"])
        rows = [line.split("|", 6) for line in answer.output.splitlines() if line.count("|") >= 6]
        if not rows:
            said = gather.last_words(answer.errors)
            if answer.code and "Invalid job id" not in said:
                raise LauncherError(
                    f"squeue -j {job} failed: {said or f'exit code {answer.code}'}",
                    "Run this command by hand.",
                )
            raise JobNotFound(
                f"Slurm knows no job {job}",
                "It ended a while ago, or the id is wrong. Running jobs: squeue --me; ended jobs: sacct -j "
                + job,
            )
        running = [row for row in rows if row[1] == "RUNNING"]
        if len(running) > 1:
            names = ", ".join(row[4] for row in running[:8])
            raise JobNotFound(
                f"job {job} is an array or group of {len(running)} running jobs",
                f"Choose one of them: {names}",
            )
        number, state, uid, user, _, reason, hosts = (running or rows)[0]
        if state != "RUNNING":
            raise _not_running(job, state, reason)
        if number_in(uid) >= 0 and number_in(uid) != os.getuid():
            raise NotPermitted(
                f"job {job} belongs to {user}, and only that user may start a step in it, not even root",
                f"Run it as that user: sudo -u {user} hangdoctor dump --jobid {job}",
            )
        return number, parse_hosts(hosts)

    def _steps(self) -> list[Step]:
        answer = self._slurm([*_SQUEUE, "-s", "-j", self.job, "-o", "%i|%A|%N|%j"])
        steps: list[Step] = []
        for line in answer.output.splitlines():
            if line.count("|") >= 3:
                number, tasks, nodes, name = line.split("|", 3)
                steps.append(
                    Step(number.partition(".")[2], name, number_in(tasks, 0), parse_hosts(nodes))
                )
        return steps

    def _choose(self, job_nodes: list[str]) -> tuple[list[str], str, list[str]]:
        """(nodes to ask, the training's step or "" where it is not a step of its own, notes).

        Raises:
            JobNotFound: the step that was asked for is not there.
        """
        steps = self._steps()
        if self.step:
            wanted = [s for s in steps if s.id == self.step]
            if not wanted:
                there = ", ".join(f"{self.job}.{s.id} ({s.name})" for s in steps) or "none"
                raise JobNotFound(
                    f"job {self.job} has no running step {self.step}",
                    f"It has ended, or the number is wrong. Running now: {there}",
                )
            return wanted[0].nodes, self.step, []
        own = [s for s in steps if s.id not in _NOT_TRAINING and s.name != STEP_NAME]
        if not own:
            return job_nodes, "", []  # started from the batch script by mpiexec, torchrun, pdsh ...
        best = max(own, key=lambda s: (s.tasks, len(s.nodes), number_in(s.id, 0)))
        notes = []
        if len(own) > 1:
            others = ", ".join(
                f"{self.job}.{s.id} ({s.name}, {s.tasks} tasks)" for s in own if s is not best
            )
            notes.append(
                f"step {self.job}.{best.id} ({best.name}, {best.tasks} tasks) is captured; also running: {others}"
            )
        return best.nodes, best.id, notes

    # ----------------------------------------------------------------- the steps of our own

    def _ask(
        self,
        nodes: list[str],
        agent: list[str],
        deadline: float,
        progress: Progress,
        watch: Watch | None = None,
    ) -> list[Outcome]:
        overlap = self._overlap()
        commands = [step_command(self.job, n, agent, overlap) for n in nodes]
        outcomes = run_all(commands, deadline, self.env, progress, watch=watch)
        if all("Invalid generic resource" in o.errors for o in outcomes):
            # A cluster without GPUs in its configuration does not know the word.
            commands = [step_command(self.job, n, agent, overlap, gres="none") for n in nodes]
            outcomes = run_all(commands, deadline, self.env, progress, watch=watch)
        return outcomes

    def _overlap(self) -> bool:
        """True where this srun has --overlap (20.11); before, steps shared their resources without
        it.
        """
        match = re.search(r"(\d+)\.(\d+)", self._slurm(["srun", "--version"]).output)
        return match is None or (int(match[1]), int(match[2])) >= (20, 11)

    def _refuse(self, silent: Sequence[Outcome], asked: int) -> None:
        """Raise where no node reported and all say the same: it is not the nodes, then."""
        if len(silent) != asked:
            return
        if self._has_ended():
            raise JobNotRunning(
                f"job {self.job} ended while it was being captured", f"See: sacct -j {self.job}"
            )
        table: list[tuple[str, type[HangdoctorError], str, str]] = [
            (
                r"[Pp]ermission denied|not authorized|Access denied",
                NotPermitted,
                f"Slurm does not allow you to start a step in job {self.job}",
                f"Only the job's own user may do that: squeue -j {self.job}",
            ),
            (_CONTROLLER, LauncherError, "Slurm's controller stopped answering", _CONTROLLER_HELP),
            (
                r"unrecognized option|invalid option",
                LauncherError,
                f"this srun does not know an option that we use: {gather.last_words(silent[0].errors)}",
                "Slurm 19.05 or later is needed.",
            ),
        ]
        error = gather.refused(
            [o.errors if not gather.set_up_trouble(o.errors) else "" for o in silent], table
        )
        if error is not None:
            raise error

    def _has_ended(self) -> bool:
        """True where Slurm says so now; a srun to a dead node can wait on past the end of its job."""
        asked = [*_SQUEUE, "-t", "all", "-j", self.job, "-o", "%T"]
        answer = query(asked, self._patience(*_AFTERWARDS_S), self.env)
        return (
            answer.code is not None
            and "RUNNING" not in answer.output.split()
            and not re.search(_CONTROLLER, answer.errors)
        )

    def _whys(self, gathered: gather.Gathered, waited_s: float) -> dict[str, str]:
        """Why each silent node is silent, with its state in Slurm."""
        if not gathered.silent:
            return {}
        states = slurm_nodes.states(list(gathered.silent), self.env, self._patience(*_AFTERWARDS_S))
        return {
            n: gather.why_silent(
                _in_words(o), gathered.damaged.get(n, ""), waited_s, states.get(n, "")
            )
            for n, o in gathered.silent.items()
        }


def step_command(
    job: str, node: str, agent: Sequence[str], overlap: bool = True, gres: str = "gpu:0"
) -> Command:
    """The srun for one node.

    Memory and GPUs stay with the training, no MPI is set up, and no folder but / is needed.
    """
    srun = [
        "srun",
        f"--jobid={job}",
        *(["--overlap"] if overlap else []),
        f"--gres={gres}",
        "-w",
        node,
        "-N1",
        "-n1",
        "--mem=0",
        "--mpi=none",
        "--input=none",
        "--export=ALL",
        "--chdir=/",
        f"--job-name={STEP_NAME}",
    ]
    return Command(node, [*srun, *agent])


def _not_running(job: str, state: str, reason: str) -> JobNotRunning:
    words = state.lower().replace("_", " ")
    why = f" ({reason})" if reason not in ("", "None") else ""
    if state in ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"):
        return JobNotRunning(
            f"job {job} has not started: it is {words}{why}",
            "Capture it once it runs: squeue -j " + job,
        )
    if state == "CONFIGURING":
        return JobNotRunning(
            f"job {job} has not started: its nodes are being set up", "Try again in a minute."
        )
    if state in ("SUSPENDED", "STOPPED"):
        return JobNotRunning(
            f"job {job} is {words} by Slurm: all of its processes are stopped, which is why it hangs",
            f"Resume it: scontrol resume {job}",
        )
    if state in ("COMPLETING", "STAGE_OUT", "SIGNALING"):
        return JobNotRunning(f"job {job} is ending ({words})", f"See: sacct -j {job}")
    return JobNotRunning(
        f"job {job} has ended: {words}{why}", f"See: sacct -j {job}, and the end of its log."
    )


def _in_words(outcome: Outcome) -> Outcome:
    """What srun said, as a person would say it."""
    if re.search(ENDED, outcome.errors):
        return msgspec.structs.replace(outcome, errors="the job ended while it was being captured")
    for pattern, words in _WORDS:
        lines = ((re.search(pattern, line), line) for line in outcome.errors.splitlines())
        match, line = next((found for found in lines if found[0] is not None), (None, ""))
        if match is not None:
            said = line if pattern is _BUSY else match[match.lastindex or 0]
            return msgspec.structs.replace(
                outcome, errors=words.format(gather.last_words(said) or said.strip())
            )
    return outcome
