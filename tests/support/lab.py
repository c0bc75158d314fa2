"""The lab cluster (scripts/lab) and a hanging job on it, as a test steers them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from hangdoctor.train.faults import outside

ROOT = Path(__file__).resolve().parents[2]
LAB = ROOT / "scripts" / "lab"
JOB = Path(__file__).with_name("jobs") / "lab_job.py"
NODES = 4
# Ways to break a node by `cluster-node`, and what takes each of them back. A crash is for good.
UNDO = {
    "link-down": "link-up",
    "blackhole": "link-up",
    "freeze": "thaw",
    "slurmd-stop": "slurmd-cont",
    "slurmd-kill": "slurmd-start",
}


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    """Poll a condition under a limit; the failure names what did not come."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"did not come within {seconds:.0f} s: {what}")
        time.sleep(0.05)


def unavailable() -> str:
    """Why the lab cannot run here, in one line; "" where it can."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    absent = [
        c
        for c in ("slurmctld", "slurmd", "srun", "munged", "ip", "nsenter")
        if shutil.which(c, path=path) is None
    ]
    if absent:
        return f"the lab's Slurm cluster needs {', '.join(absent)} (scripts/setup-slurm)"
    return "" if os.geteuid() == 0 else "the lab's Slurm cluster needs root"


class Cluster:
    """Four nodes n1..n4 and a login node, all on this machine; ended also when the test program is killed."""

    def __init__(self) -> None:
        # Directly under /tmp: another user's jobs run from it, and the path of a socket must be short.
        self.folder = Path(tempfile.mkdtemp(prefix="hd-lab-", dir="/tmp"))
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "PBS_"))}
        self.env = clean | {"CLUSTER_DIR": str(self.folder), "PYTHONPATH": str(ROOT)}
        self.ssh = shutil.which("sshd", path="/usr/sbin:/usr/bin:/sbin") is not None
        # Ends the cluster when its standard input does: at the end of the tests, or of the test program.
        self.guard = subprocess.Popen(
            ["sh", "-c", f"cat >/dev/null; exec {LAB}/cluster-down"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=self.env,
            start_new_session=True,
        )

    def up(self) -> None:
        env = self.env | {"CLUSTER_SSH": "1" if self.ssh else "0", "CLUSTER_USER": "tester:4242"}
        done = subprocess.run(
            [LAB / "cluster-up", str(NODES), "4"],
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr

    @property
    def netns(self) -> bool:
        return (self.folder / "mode").read_text().strip() == "netns"

    def down(self) -> None:
        """Not by the end of the guard's input: a loader's worker that a test has forked may have it
        open, too.
        """
        down = [LAB / "cluster-down"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        try:
            subprocess.run(down, env=self.env, timeout=60, check=True, **quiet)  # type: ignore[call-overload]
        finally:
            os.killpg(self.guard.pid, signal.SIGKILL)  # its cat, too
            self.guard.wait(timeout=20)

    def node(
        self, action: str, *args: str, check: bool = True, **more: Any
    ) -> subprocess.CompletedProcess[str]:
        """One action of cluster-node, such as ("exec", "login", "squeue")."""
        env = self.env | more.pop("env", {})
        done = subprocess.run(
            [LAB / "cluster-node", action, *args],
            env=env,
            capture_output=True,
            text=True,
            timeout=90,
            stdin=subprocess.DEVNULL,
            **more,
        )
        assert not check or done.returncode == 0, f"{action} {args}: {done.stdout}\n{done.stderr}"
        return done

    def login(self, *command: str, **more: Any) -> str:
        return self.node("exec", "login", *command, **more).stdout.strip()

    def processes(self, node: str, word: str) -> dict[int, str]:
        """{pid as seen from here: state} of the node's processes whose command line has `word`."""
        found: dict[int, str] = {}
        for pid, _, command in self._pids(node):
            if word in command:
                with contextlib.suppress(OSError):
                    found[int(pid)] = (
                        Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
                    )
        return found

    def seen_from_here(self, node: str, pid: int) -> int:
        """The pid that this machine has for a process that is `pid` on its node."""
        [found] = [int(here) for here, there, _ in self._pids(node) if int(there) == pid]
        return found

    def _pids(self, node: str) -> list[list[str]]:
        """(pid here, pid on the node, command line) of the node's processes."""
        lines = self.node("pids", node).stdout.splitlines()
        return [line.split("\t", 2) for line in lines]

    def dump_command(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "hangdoctor", "dump", "--no-bundle", *args]

    def dump(
        self, *args: str, node: str = "login", env: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """The diagnosis as JSON; afterwards no command of the launcher is left on that node."""
        done = self.node("exec", node, *self.dump_command("--json", "-", *args), env=env or {})
        for left in ("srun --jobid", "ssh -o", "pdsh -R", "mpiexec -hosts"):
            assert not self.processes(node, left), f"{left} is left behind"
        diagnosis: dict[str, Any] = json.loads(done.stdout)
        return diagnosis

    def refusal(
        self,
        *args: str,
        code: int = 1,
        env: dict[str, str] | None = None,
        before: Sequence[str] = (),
    ) -> str:
        """What dump says where it cannot: the first line is the error."""
        done = self.node(
            "exec",
            "login",
            *before,
            *self.dump_command("--quiet", *args),
            check=False,
            env=env or {},
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert done.stdout == ""
        assert "Traceback" not in done.stderr
        return done.stderr

    def answers(self, node: str, job: str) -> bool:
        step = [
            "timeout",
            "-s",
            "KILL",
            "5",
            "srun",
            f"--jobid={job}",
            "--overlap",
            "--gres=gpu:0",
            "-w",
            node,
            "-N1",
            "-n1",
            "true",
        ]
        return self.node("exec", "login", *step, check=False).returncode == 0

    @contextlib.contextmanager
    def broken(self, node: str, fault: str, job: str = "") -> Iterator[None]:
        """A node with a fault of `UNDO`; with a job, the end waits until the node answers again."""
        self.node(fault, node)
        try:
            yield
        finally:
            self.node(UNDO[fault], node)
            if job:
                wait_until(lambda: self.answers(node, job), f"{node} answers after {UNDO[fault]}")

    @contextlib.contextmanager
    def controller_stopped(self) -> Iterator[None]:
        """slurmctld stands still meanwhile."""
        pids = [*self.processes("login", "slurmctld -D")]
        assert pids
        try:
            with outside.stopped(*pids):
                yield
        finally:
            wait_until(lambda: self.login("squeue", "-h", check=False) != "", "it answers again")

    def submit(self, *args: str, script: str, user: str = "") -> str:
        """Submit a job; its output goes to the cluster's folder, or nowhere for another user."""
        action = ("as", user, "login") if user else ("exec", "login")
        out = "/dev/null" if user else f"{self.folder}/job-%j.out"
        return self.node(
            *action, "sbatch", "--parsable", "-o", out, *args, "--wrap", script
        ).stdout.strip()

    def state(self, job: str) -> str:
        return self.login("squeue", "-h", "-t", "all", "-j", job, "-o", "%T")

    def wait_state(self, job: str, state: str) -> None:
        wait_until(lambda: self.state(job) == state, f"job {job} is {state}")


@contextlib.contextmanager
def running_cluster() -> Iterator[Cluster]:
    """A cluster for the tests of a fixture's scope, which are skipped where none can be had."""
    reason = unavailable()
    if reason:
        pytest.skip(reason)
    lab = Cluster()
    try:
        lab.up()
        if not lab.netns:
            pytest.skip("the lab's Slurm cluster needs the right to make namespaces")
        yield lab
    finally:
        lab.down()


class LabJob:
    """`lab_job.py` on the cluster, two ranks a node."""

    def __init__(self, cluster: Cluster, name: str, ranks: int) -> None:
        self.cluster = cluster
        self.ranks = ranks
        self.control = cluster.folder / name
        self.control.mkdir()
        self.round = 0
        self.away = ""
        self.id = ""

    def at(self) -> dict[int, str]:
        """{rank: "ROUND WHAT"}."""
        said = {}
        for path in self.control.glob("at.*"):
            said[int(path.suffix[1:])] = path.read_text().rpartition(" ")[0]
        return said

    def pid(self, rank: int) -> int:
        """The process of a rank, as its own node numbers it."""
        return int((self.control / f"at.{rank}").read_text().split()[-1])

    def wait_at(self, ranks: set[int], what: str, seconds: float = 60.0) -> None:
        wait_until(
            lambda: all(self.at().get(r) == what for r in ranks),
            f"ranks {ranks} at {what}: {self.at()}",
            seconds,
        )

    def go(self, away: str = "") -> None:
        """Let the next round begin; the rank `away` does not enter it."""
        self.away = away
        staging = self.control / "go.part"
        staging.write_text(away)
        staging.rename(self.control / f"go.{self.round}")

    def hang(self, away: int) -> None:
        """Every rank but `away` waits in the all_reduce. A hang of the same rank that is under way is used again."""
        if self.away == str(away):
            return
        self.finish()
        self.go(str(away))
        self.wait_at({away}, f"{self.round} away", 100)
        self.wait_at(set(range(self.ranks)) - {away}, f"{self.round} enters", 100)

    def finish(self) -> None:
        """Let the round end, and see every rank through it: the job is unharmed. Before the first, wait for all to be ready."""
        wait_until(lambda: len(self.at()) == self.ranks, f"all ranks are ready: {self.id}", 100)
        if not (self.control / f"go.{self.round}").exists():
            return
        (self.control / f"release.{self.round}").touch()
        self.wait_at(set(range(self.ranks)), f"{self.round} done")
        self.round += 1
        self.away = ""

    def states(self, nodes: int = NODES) -> dict[int, str]:
        """{pid: state} of all ranks."""
        return {
            p: s
            for n in range(1, nodes + 1)
            for p, s in self.cluster.processes(f"n{n}", f"{JOB} {self.control}").items()
            if "python" in Path(f"/proc/{p}/exe").readlink().name
        }
