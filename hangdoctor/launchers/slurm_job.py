"""A running job as Slurm's controller knows it: its nodes, its steps, and which step is the
training.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

import msgspec

from ..clock import SystemClock
from ..errors import JobNotFound, LauncherError, NotPermitted, UsageError
from ..text.ranges import number_in, parse_hosts
from . import gather
from .remote import Outcome, query
from .slurm_words import CONTROLLER_HELP, controller_is_silent, not_running

STEP_NAME = "hangdoctor"  # of our own steps, in squeue -s
AFTERWARDS_S = (2.0, 0.5)  # at most and at least, for what is not worth waiting for
_JOB = re.compile(r"^(\d+(?:_\d+)?)(?:\.(\d+))?$")
_SQUEUE = ("squeue", "-h")
# For one question to Slurm's controller; milliseconds, unless the machine is overloaded.
_QUERY_S = 10.0
_QUERY_AT_LEAST_S = 1.0
# These lead to the cluster; all other variables of Slurm describe the caller's job or step and
# would be taken as options.
_KEEP = frozenset(
    {"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_CLUSTER_NAME", "SLURM_JWT"}
)
_FOREIGN = re.compile(
    r"^(SLURM|SRUN|SBATCH|SALLOC|SLURMD|OMPI|PMI|PMIX|PALS|TORCHELASTIC)_|"
    r"^(RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|GROUP_RANK|MASTER_ADDR|MASTER_PORT|"
    r"PYTHONSTARTUP|PYTHONINSPECT)$"
)
_NOT_TRAINING = frozenset({"batch", "extern", "interactive"})


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


class TrainingStep(msgspec.Struct, frozen=True):
    """What to capture of a job: all of it, or the nodes of one step."""

    job: str  # its number, for an array that of the task
    nodes: list[str]
    step: str = ""  # "" where the training is no step of its own
    notes: list[str] = []

    @property
    def of_slurm(self) -> str:
        """``slurm-7.0``, the name that the ranks of this step go by."""
        return f"slurm-{self.job}.{self.step}"


class SlurmJob:
    """Questions to Slurm on one job, each under a time limit.

    Every method raises `LauncherError` where Slurm's commands are not here or do not answer.
    """

    def __init__(self, job: str, step: str, env: Mapping[str, str]) -> None:
        self.number = job  # as it was given; once `running` has answered, of the task in an array
        self.step = step
        self.env = env
        self.clock = SystemClock()
        self.deadline: float | None = None  # of what is under way, on the monotonic clock

    def training(self) -> TrainingStep:
        """The nodes of the training's step, or of the step that was asked for.

        Raises:
            JobNotFound, JobNotRunning, NotPermitted: it cannot be captured, and why.
        """
        nodes = self.running()
        return self._choose(self.number, nodes)

    def running(self) -> list[str]:
        """The nodes of the job; sets `number`.

        Raises:
            JobNotFound, JobNotRunning, NotPermitted: it cannot be captured, and why.
        """
        job = self.number
        rows = self._rows()
        running = [row for row in rows if row[1] == "RUNNING"]
        if len(running) > 1:
            names = ", ".join(row[4] for row in running[:8])
            raise JobNotFound(
                f"job {job} is an array or group of {len(running)} running jobs",
                f"Choose one of them: {names}",
            )
        number, state, uid, user, _, reason, hosts = (running or rows)[0]
        if state != "RUNNING":
            raise not_running(job, state, reason)
        if number_in(uid) >= 0 and number_in(uid) != os.getuid():
            raise NotPermitted(
                f"job {job} belongs to {user}, and only that user may start a step in it, not even root",
                f"Run it as that user: sudo -u {user} hangdoctor dump --jobid {job}",
            )
        self.number = number
        return parse_hosts(hosts)

    def _rows(self) -> list[list[str]]:
        """[id, state, uid, user, name of the array's task, reason, nodes], one row or more."""
        job = self.number
        answer = self._asked([*_SQUEUE, "-t", "all", "-j", job, "-o", "%A|%T|%U|%u|%i|%r|%N"])
        rows = [line.split("|", 6) for line in answer.output.splitlines() if line.count("|") >= 6]
        if rows:
            return rows
        said = gather.last_words(answer.errors)
        if answer.code and "Invalid job id" not in said:
            raise LauncherError(
                f"squeue -j {job} failed: {said or f'exit code {answer.code}'}",
                "Run this command by hand.",
            )
        raise JobNotFound(
            f"Slurm knows no job {job}",
            "It ended a while ago, or the id is wrong. "
            f"Running jobs: squeue --me; ended jobs: sacct -j {job}",
        )

    def has_ended(self) -> bool:
        """True where Slurm says so now; a srun to a dead node can wait on past the end of its job."""
        asked = [*_SQUEUE, "-t", "all", "-j", self.number, "-o", "%T"]
        answer = query(asked, self.patience(*AFTERWARDS_S), self.env)
        if answer.code is None or controller_is_silent(answer.errors):
            return False
        return "RUNNING" not in answer.output.split()

    def has_overlap(self) -> bool:
        """True where this srun has --overlap (20.11); before, steps shared their resources without
        it.
        """
        match = re.search(r"(\d+)\.(\d+)", self._asked(["srun", "--version"]).output)
        return match is None or (int(match[1]), int(match[2])) >= (20, 11)

    def patience(self, most: float, least: float) -> float:
        """Seconds for one question: at most half of what is left, so that the next has some, too."""
        if self.deadline is None:
            return most
        return min(most, max(least, (self.deadline - self.clock.monotonic()) / 2))

    def _asked(self, argv: Sequence[str]) -> Outcome:
        patience = self.patience(_QUERY_S, _QUERY_AT_LEAST_S)
        try:
            outcome = query(argv, patience, self.env)
        except LauncherError as error:
            raise LauncherError(
                str(error),
                "Run this on a login node, or load Slurm's module. "
                "If ssh reaches the nodes: hangdoctor dump --hostfile F.",
            ) from error
        if outcome.code is None:
            raise LauncherError(
                f"{argv[0]} did not answer within {patience:.0f} s: "
                "Slurm's controller is down or overloaded",
                CONTROLLER_HELP,
            )
        if outcome.code and controller_is_silent(outcome.errors):
            raise LauncherError(
                f"the query to Slurm failed: {gather.last_words(outcome.errors)}", CONTROLLER_HELP
            )
        return outcome

    def _steps(self, job: str) -> list[Step]:
        answer = self._asked([*_SQUEUE, "-s", "-j", job, "-o", "%i|%A|%N|%j"])
        steps: list[Step] = []
        for line in answer.output.splitlines():
            if line.count("|") >= 3:
                number, tasks, nodes, name = line.split("|", 3)
                steps.append(
                    Step(number.partition(".")[2], name, number_in(tasks, 0), parse_hosts(nodes))
                )
        return steps

    def _choose(self, job: str, nodes: list[str]) -> TrainingStep:
        steps = self._steps(job)
        if self.step:
            return self._wanted(job, steps)
        own = [s for s in steps if s.id not in _NOT_TRAINING and s.name != STEP_NAME]
        if not own:  # started from the batch script by mpiexec, torchrun, pdsh ...
            return TrainingStep(job, nodes)
        best = max(own, key=lambda s: (s.tasks, len(s.nodes), number_in(s.id, 0)))
        others = [f"{job}.{s.id} ({s.name}, {s.tasks} tasks)" for s in own if s is not best]
        notes = []
        if others:
            notes.append(
                f"step {job}.{best.id} ({best.name}, {best.tasks} tasks) is captured; "
                f"also running: {', '.join(others)}"
            )
        return TrainingStep(job, best.nodes, best.id, notes)

    def _wanted(self, job: str, steps: Sequence[Step]) -> TrainingStep:
        for step in steps:
            if step.id == self.step:
                return TrainingStep(job, step.nodes, step.id)
        there = ", ".join(f"{job}.{s.id} ({s.name})" for s in steps) or "none"
        raise JobNotFound(
            f"job {job} has no running step {self.step}",
            f"It has ended, or the number is wrong. Running now: {there}",
        )
