"""Actions after a verdict: only those that the operator wrote into hangdoctor.toml, each with a
time limit.

    [actions]
    dry_run = false       # true: only log what would be done
    cooldown_s = 600      # no further action for N seconds after one

    [[action]]
    kind = "command"      # command | webhook | requeue | scancel | signal
    command = ["/usr/local/bin/page", "{job}", "{summary}"]
    timeout_s = 30
    on = ["hang"]         # status: hang, slow, failed, unknown; "event:spike": what the training
                          # says of itself (hangdoctor.probe.event), "event" of any kind

    [[action]]
    kind = "webhook"      # POST of JSON: id, job, status, kind, ranks, nodes, summary, bundle
    url = "https://..."

    [[action]]
    kind = "signal"       # to the first cause's ranks; only where its confidence is at least min_confidence
    signal = "SIGABRT"
    min_confidence = 0.8

Words in braces are replaced; a command is never run by a shell. The verdict is also in the environment: HANGDOCTOR_JOB,
HANGDOCTOR_STATUS, HANGDOCTOR_SUMMARY, HANGDOCTOR_BUNDLE, HANGDOCTOR_RANKS, HANGDOCTOR_KIND, HANGDOCTOR_ITERATION.
"""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from ..errors import BadInput
from ..files import read_settings
from ..text.durations import duration
from .verdict import EVENT, Subject, Verdict

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

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
_STATUSES = ("hang", "slow", "failed", "unknown", "healthy", EVENT)
Kind = Literal["command", "webhook", "requeue", "scancel", "signal"]


class Action(Struct, forbid_unknown_fields=True):
    """One [[action]]: `command` and `url` and `signal` belong to the kinds of these names."""

    kind: Kind
    command: list[str] = []
    url: str = ""
    signal: str = "SIGTERM"
    timeout_s: float = 30.0
    on: tuple[str, ...] = ("hang",)
    min_confidence: float = 0.0


class Policy(Struct, forbid_unknown_fields=True):
    """[actions]: what holds for all of them."""

    dry_run: bool = False
    cooldown_s: float = 600.0


class Config(Struct):
    """What of a hangdoctor.toml is read here."""

    actions: Policy = msgspec.field(default_factory=Policy)
    action: list[Action] = []


def load(path: Path) -> Config:
    """The actions in a hangdoctor.toml.

    Raises:
        BadInput: it cannot be read, or is not in this form; the message says where.
    """
    try:
        config = msgspec.convert(tomllib.loads(read_settings(path)), Config)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error
    except (
        ValueError,
        RecursionError,
        msgspec.ValidationError,
    ) as error:  # no TOML, no UTF-8, numbers without end
        raise BadInput(f"{path}: {error}", "docs/sidecar.md describes hangdoctor.toml.") from error
    for action in config.action:
        if action.kind == "command" and not action.command:
            raise BadInput(
                f"{path}: an action of kind `command` has no command",
                'For example: command = ["/bin/page", "{summary}"]',
            )
        if action.kind == "webhook" and not re.match(r"^https?://", action.url):
            raise BadInput(f"{path}: a webhook needs a url that starts with http:// or https://")
        if action.kind == "signal" and action.signal not in signal.Signals.__members__:
            raise BadInput(f"{path}: '{action.signal}' is not a signal", "For example: SIGABRT")
        unknown = [word for word in action.on if not _is_known(word)]
        if unknown:
            raise BadInput(
                f"{path}: an action is on '{unknown[0]}'",
                f'Known: {", ".join(_STATUSES)}, and for one kind of event for example "event:spike".',
            )
    return config


def _is_known(word: str) -> bool:
    return word in _STATUSES or word.startswith(f"{EVENT}:")


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
            return f"would POST to {action.url}" if self.dry_run else _post(action, verdict)
        if self.dry_run:
            return "would run " + "; ".join(" ".join(c) for c in commands)
        return "; ".join(_run(c, action.timeout_s, verdict) for c in commands)


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
    if action.kind == "webhook":
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


def _post(action: Action, verdict: Verdict) -> str:
    body = msgspec.json.encode(verdict)
    request = urllib.request.Request(action.url, body, {"Content-Type": "application/json"})
    said = [f"no answer after {action.timeout_s:.0f} s"]

    def post() -> None:
        try:
            with urllib.request.urlopen(request, timeout=action.timeout_s) as answer:
                said.append(f"answered {answer.status}")
        except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
            said.append(f"failed: {error or type(error).__name__}")

    # The library's limit is for each read: who answers a byte now and then would hold the watch up for ever.
    thread = threading.Thread(target=post, name="webhook", daemon=True)
    thread.start()
    thread.join(action.timeout_s)
    return said[-1]
