"""Runs actions after a verdict: only those of hangdoctor.toml (`action_settings`), each with a time
limit.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from ..text.durations import duration
from ..text.job_names import short_job
from ..text.ranges import format_hosts
from . import notify, webhook
from .action_settings import Action, Config, Policy, load
from .verdict import EVENT, Subject, Verdict

__all__ = ["Action", "Actor", "Config", "Policy", "load"]

# One process on one node of the job, beside the training and without its resources.
_ONE_PROCESS = (
    "--overlap",
    "--gres=none",
    "--mem=0",
    "--mpi=none",
    "--input=none",
    "-N1",
    "-n1",
)
_FRESH_S = 600.0  # an event that is older was not seen while it happened: no action for it


class Actor:
    """Runs the actions, and none during the cool-down."""

    def __init__(self, config: Config, dry_run: bool = False) -> None:
        self.config = config
        self.dry_run = dry_run or config.actions.dry_run
        never = float("-inf")
        self.acted_at: dict[Subject, float] = {"verdict": never, "event": never}
        # Called before something is done: for who keeps that it was.
        self.acting: Callable[[Subject], None] = lambda subject: None
        self._lock = threading.Lock()  # verdicts and events come from threads of their own

    def act(self, verdict: Verdict, now: float, age_s: float = 0.0) -> list[str]:
        """Do what is configured for what happened `age_s` ago; returns one line for each action.

        `now` is a clock that never goes back.
        """
        due = [a for a in self.config.action if _is_due(a, verdict)]
        if not due:
            return []
        if age_s > _FRESH_S:
            return [f"no action: that was {duration(age_s)} ago"]
        subject, cooldown_s = verdict.subject, self.config.actions.cooldown_s
        with self._lock:
            since = now - self.acted_at[subject]
            if since < cooldown_s:
                return [
                    f"no action: {duration(since)} after the last one "
                    f"(cool-down {duration(cooldown_s)})"
                ]
            planned = [(a, *_plan(a, verdict)) for a in due]
            acts = any(not why for _, why, _ in planned)  # a skipped action does not count
            if acts and not self.dry_run:
                self.acted_at[subject] = now
                self.acting(subject)
        said = []
        for action, why, commands in planned:
            said.append(f"{action.kind}: {why or self._one(action, commands, verdict)}")
        return said

    def _one(self, action: Action, commands: list[list[str]], verdict: Verdict) -> str:
        if action.kind == "webhook":
            if self.dry_run:
                return f"would POST to {action.url}"
            return webhook.post(action.url, msgspec.json.encode(verdict), action.timeout_s)
        if action.kind == "notify":
            return self._notify(action, verdict)
        if self.dry_run:
            return "would run " + "; ".join(" ".join(c) for c in commands)
        return "; ".join(_run(c, action.timeout_s, verdict) for c in commands)

    def _notify(self, action: Action, verdict: Verdict) -> str:
        path = Path(action.urls_file)
        if self.dry_run:
            return f"would notify {notify.services(path)}"
        return notify.send(path, _message(verdict), action.timeout_s)


def _message(verdict: Verdict) -> notify.Message:
    """The verdict for a person who is elsewhere."""
    lines = [verdict.summary]
    if verdict.ranks:
        lines.append(f"Ranks: {verdict.ranks}; nodes: {format_hosts(verdict.nodes)}")
    if verdict.id and verdict.bundle:
        lines.append(f"On {os.uname().nodename}: hangdoctor diagnose {verdict.bundle}")
    what = f"{EVENT} {verdict.kind}" if verdict.status == EVENT else verdict.status
    title = f"hangdoctor: {what} in {short_job(verdict.job)}"
    return notify.Message(title, "\n".join(lines), urgent=verdict.status in ("hang", "failed"))


def _is_due(action: Action, verdict: Verdict) -> bool:
    named = f"{EVENT}:{verdict.kind}" if verdict.status == EVENT else verdict.status
    return verdict.status in action.on or named in action.on


def _plan(action: Action, verdict: Verdict) -> tuple[str, list[list[str]]]:
    """(why it is skipped, the commands to run)."""
    if verdict.confidence < action.min_confidence:
        return (
            f"skipped: confidence {verdict.confidence:.0%} is below {action.min_confidence:.0%}",
            [],
        )
    if action.kind in ("webhook", "notify"):
        return "", []
    commands = _commands(action, verdict)
    return (
        "" if commands else "skipped: needs a Slurm job, or a culprit with a known process"
    ), commands


def _commands(action: Action, verdict: Verdict) -> list[list[str]]:
    if action.kind == "command":
        words = {
            "job": verdict.job,
            "id": verdict.id,
            "status": verdict.status,
            "kind": verdict.kind,
            "ranks": verdict.ranks,
            "nodes": ",".join(verdict.nodes),
            "summary": verdict.summary,
            "bundle": verdict.bundle,
            "iteration": str(verdict.iteration),
        }
        return [[_filled(word, words) for word in action.command]]
    match = re.match(r"^slurm:(\d+)", verdict.job)
    if action.kind == "requeue":
        return [["scontrol", "requeue", match[1]]] if match else []
    if action.kind == "scancel":
        return [["scancel", match[1]]] if match else []
    if match:
        step = ["srun", f"--jobid={match[1]}", *_ONE_PROCESS]
        return [[*step, "-w", n, *_kill(action, p)] for n, p in verdict.pids.items()]
    here = verdict.pids.get(os.uname().nodename)
    return [_kill(action, here)] if here else []


def _filled(word: str, values: Mapping[str, str]) -> str:
    """The word with `{name}` replaced where the name is known."""
    return re.sub(r"\{(\w+)\}", lambda found: values.get(found[1], found[0]), word)


def _kill(action: Action, pids: list[int]) -> list[str]:
    return ["kill", f"-{action.signal.removeprefix('SIG')}", *map(str, pids)]


def _environment(verdict: Verdict, environ: Mapping[str, str]) -> dict[str, str]:
    told = {
        "JOB": verdict.job,
        "STATUS": verdict.status,
        "SUMMARY": verdict.summary,
        "BUNDLE": verdict.bundle,
        "RANKS": verdict.ranks,
        "KIND": verdict.kind,
        "ITERATION": str(verdict.iteration),
    }
    # Slurm's own variables of the collector's step would be taken as options by scontrol and srun.
    foreign = [k for k in environ if k.startswith(("SLURM_", "SRUN_")) and k != "SLURM_CONF"]
    kept = {k: v for k, v in environ.items() if k not in foreign}
    return kept | {f"HANGDOCTOR_{k}": v.replace("\0", " ") for k, v in told.items()}


def _run(command: list[str], timeout_s: float, verdict: Verdict) -> str:
    command = [w.replace("\0", " ") for w in command]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=_environment(verdict, os.environ),
            start_new_session=True,
        )
    except OSError as error:
        return f"{command[0]} cannot be started: {error.strerror}"
    except ValueError as error:
        return f"{command[0]} cannot be started: {error}"
    try:
        _, said = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stderr is not None:
            process.stderr.close()
        return f"{command[0]} was killed after {timeout_s:.0f} s"
    words = said.decode(errors="replace").strip()[:200]
    return f"{command[0]} exited with code {process.returncode}" + (
        f": {words}" if process.returncode and words else ""
    )
