"""A running Slurm job: one overlapping step a node, beside the training.

    srun --jobid=J --overlap --gres=gpu:0 -w NODE -N1 -n1 ... hangdoctor agent --once ...

Without --overlap and --gres=gpu:0 the step would wait for what the training holds
(https://slurm.schedmd.com/srun.html). A report comes back over srun's standard output.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from ..clock import SystemClock
from ..errors import JobNotRunning, NoRanksFound
from ..model.capture import JobCapture
from ..readers.node import CaptureOptions
from ..text.plural import count
from ..text.ranges import format_hosts
from . import gather, slurm_nodes
from .base import Progress
from .knock import Knocker
from .lost_nodes import Watch
from .remote import Command, Outcome, run_all
from .slurm_job import AFTERWARDS_S, STEP_NAME, SlurmJob, clean_environment
from .slurm_words import in_words, refusal


class SlurmLauncher:
    """Captures the nodes of a running job."""

    def __init__(self, job: str, step: str = "", python: str = "") -> None:
        self.python = python
        self.env = clean_environment(os.environ)
        self.clock = SystemClock()
        self._job = SlurmJob(job, step, self.env)

    def capture(self, options: CaptureOptions, progress: Progress) -> JobCapture:
        """Capture the nodes of the training's step by overlapping steps; see `base.Launcher`.

        Raises:
            LauncherError: the job is not there, not running, or another user's; or Slurm does not
                answer.
        """
        begin, taken = self.clock.monotonic(), self.clock.wall()
        deadline = self._until(options.timeout_s)
        training = self._job.training()
        nodes, step = training.nodes, training.step
        progress(f"asking {count(len(nodes), 'node')} of job {training.job}: {format_hosts(nodes)}")
        left = max(0.5, deadline - self.clock.monotonic())
        options = msgspec.structs.replace(options, slurm_job=training.job, slurm_step=step)
        agent = gather.agent_command(gather.node_options(options, left), self.python)
        watch = Watch(Knocker(slurm_nodes.Addresses(nodes, self.env).find))
        outcomes = self._ask(nodes, agent, deadline, progress, watch=watch)
        gathered = gather.sort_out(outcomes)
        progress(gather.summary(gathered, len(nodes)))
        if gathered.silent and len(gathered.silent) == len(nodes):
            self._refuse(list(gathered.silent.values()))
        whys = self._whys(gathered, options.timeout_s)
        try:
            capture = gather.join(gathered, nodes, whys, options)
        except NoRanksFound:
            self._refuse_ended()
            raise
        if not gathered.captures and step:
            capture.job = f"slurm:{training.job}.{step}"
        capture.notes += training.notes
        capture.by_hand = f"srun --jobid={training.job} --overlap -w {{node}} -N1 -n1 hostname"
        capture.taken, capture.took_s = taken, self.clock.monotonic() - begin
        return capture

    def nodes(self) -> list[str]:
        """The nodes of the running job.

        Raises:
            LauncherError: as `capture`.
        """
        return self._job.running()

    def ask(
        self, nodes: list[str], agent: list[str], deadline: float, progress: Progress
    ) -> list[Outcome]:
        """One overlapping step a node, until `deadline` (of time.monotonic); after `nodes`."""
        return self._ask(nodes, agent, deadline, progress)

    def spoken_to(self, nodes: Sequence[str], command: Sequence[str]) -> list[Command]:
        """One overlapping step a node with the job's GPUs, whose standard input is the caller's."""
        job, overlap = self._job.number, self._job.has_overlap()
        return [step_command(job, n, command, overlap, gres="", stdin="all") for n in nodes]

    def stay(self, flags: Sequence[str]) -> list[Command]:
        """One agent a node that stays beside the training, as commands to run.

        Raises:
            LauncherError: as `capture`.
        """
        training = self._job.training()
        job = f"{training.job}.{training.step}" if training.step else training.job
        agent = gather.staying_agent([*flags, "--jobid", job], self.python)
        overlap = self._job.has_overlap()
        return [step_command(training.job, n, agent, overlap) for n in training.nodes]

    def on_nodes(
        self, arguments: Sequence[str], timeout_s: float, progress: Progress
    ) -> list[Outcome]:
        """Run ``hangdoctor ARGUMENTS --job slurm-J.STEP`` once on every node of the training, under
        a deadline.

        Raises:
            LauncherError: as `capture`.
        """
        deadline = self._until(timeout_s)
        training = self._job.training()
        nodes = training.nodes
        progress(f"asking {count(len(nodes), 'node')} of job {training.job}: {format_hosts(nodes)}")
        command = gather.own_command([*arguments, "--job", training.of_slurm], self.python)
        outcomes = self._ask(nodes, command, deadline, progress)
        return [in_words(o) for o in outcomes]

    def on_node(self, node: str, arguments: Sequence[str]) -> list[Command]:
        """``hangdoctor ARGUMENTS --job slurm-J.STEP`` on one node, to be run by the caller; the
        second where Slurm refuses the first.

        Raises:
            LauncherError: as `capture`.
        """
        training = self._job.training()
        command = gather.own_command([*arguments, "--job", training.of_slurm], self.python)
        overlap = self._job.has_overlap()
        return [
            step_command(training.job, node, command, overlap, gres=gres)
            for gres in ("gpu:0", "none")
        ]

    def _until(self, seconds: float) -> float:
        deadline = self.clock.monotonic() + seconds
        self._job.deadline = deadline
        return deadline

    def _ask(
        self,
        nodes: list[str],
        agent: list[str],
        deadline: float,
        progress: Progress,
        watch: Watch | None = None,
    ) -> list[Outcome]:
        job, overlap = self._job.number, self._job.has_overlap()
        commands = [step_command(job, n, agent, overlap) for n in nodes]
        outcomes = run_all(commands, deadline, self.env, progress, watch=watch)
        if all("Invalid generic resource" in o.errors for o in outcomes):
            # A cluster without GPUs in its configuration does not know the word.
            commands = [step_command(job, n, agent, overlap, gres="none") for n in nodes]
            outcomes = run_all(commands, deadline, self.env, progress, watch=watch)
        return outcomes

    def _refuse(self, silent: Sequence[Outcome]) -> None:
        """Raise where all nodes say the same: it is not the nodes, then."""
        self._refuse_ended()
        error = refusal(self._job.number, silent)
        if error is not None:
            raise error

    def _refuse_ended(self) -> None:
        """Raise where the job has ended since it was asked for."""
        job = self._job.number
        if self._job.has_ended():
            raise JobNotRunning(
                f"job {job} ended while it was being captured",
                f"How it ended: hangdoctor diagnose --jobid {job}",
            )

    def _whys(self, gathered: gather.Gathered, waited_s: float) -> dict[str, str]:
        """Why each silent node is silent, with its state in Slurm."""
        if not gathered.silent:
            return {}
        patience = self._job.patience(*AFTERWARDS_S)
        states = slurm_nodes.states(list(gathered.silent), self.env, patience)
        return {
            node: gather.why_silent(
                in_words(outcome), gathered.damaged.get(node, ""), waited_s, states.get(node, "")
            )
            for node, outcome in gathered.silent.items()
        }


def step_command(
    job: str,
    node: str,
    agent: Sequence[str],
    overlap: bool = True,
    *,
    gres: str = "gpu:0",
    stdin: str = "none",
) -> Command:
    """The srun for one node.

    Memory and GPUs stay with the training (with an empty `gres` the step has the job's GPUs), no
    MPI is set up, and no folder but / is needed.
    """
    srun = [
        "srun",
        f"--jobid={job}",
        *(["--overlap"] if overlap else []),
        *([f"--gres={gres}"] if gres else []),
        "-w",
        node,
        "-N1",
        "-n1",
        "--mem=0",
        "--mpi=none",
        f"--input={stdin}",
        "--export=ALL",
        "--chdir=/",
        f"--job-name={STEP_NAME}",
    ]
    return Command(node, [*srun, *agent])
