"""Actions after a verdict: only those that the operator wrote into hangdoctor.toml, each with a
time limit.

    [actions]
    dry_run = false       # true: only log what would be done
    cooldown_s = 600      # no further action for N seconds after one

    [[action]]
    kind = "command"      # command | webhook | notify | requeue | scancel | signal
    command = ["/usr/local/bin/page", "{job}", "{summary}"]
    timeout_s = 30
    on = ["hang"]         # status: hang, slow, failed, unknown

    [[action]]
    kind = "webhook"      # POST of JSON: id, job, status, kind, ranks, nodes, summary, bundle
    url = "https://..."

    [[action]]
    kind = "notify"       # Slack, Teams, e-mail ...: addresses of apprise, one a line in a private file
    urls_file = "/home/me/.hangdoctor/notify.urls"

    [[action]]
    kind = "signal"       # to the first cause's ranks; only where its confidence is at least min_confidence
    signal = "SIGABRT"
    min_confidence = 0.8

Words in braces are replaced; a command is never run by a shell. The verdict is also in the environment: HANGDOCTOR_JOB,
HANGDOCTOR_STATUS, HANGDOCTOR_SUMMARY, HANGDOCTOR_BUNDLE, HANGDOCTOR_RANKS.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from ..errors import BadInput
from ..files import read_settings
from ..model.diagnosis import Diagnosis
from ..report import telemetry
from ..text.durations import duration
from ..text.job_names import short_job
from ..text.ranges import format_hosts, format_ranks
from . import notify, webhook

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
Kind = Literal["command", "webhook", "notify", "requeue", "scancel", "signal"]


class Action(Struct, forbid_unknown_fields=True):
    """One [[action]]: `command` and `signal` belong to the kinds of these names, `url` to webhooks
    and `urls_file` to `notify`.
    """

    kind: Kind
    command: list[str] = []
    url: str = ""
    urls_file: str = ""
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
    otel: telemetry.Endpoint | None = None


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
        _check(action, path)
    if config.otel is not None:
        telemetry.check(config.otel, str(path))
    return config


def _check(action: Action, path: Path) -> None:
    """Raises BadInput: the action lacks what its kind needs."""
    if action.kind == "command" and not action.command:
        raise BadInput(
            f"{path}: an action of kind `command` has no command",
            'For example: command = ["/bin/page", "{summary}"]',
        )
    if action.kind == "webhook" and not re.match(r"^https?://", action.url):
        raise BadInput(f"{path}: a webhook needs a url that starts with http:// or https://")
    if action.kind == "signal" and action.signal not in signal.Signals.__members__:
        raise BadInput(f"{path}: '{action.signal}' is not a signal", "For example: SIGABRT")
    if action.kind == "notify":
        if not action.urls_file:
            raise BadInput(f"{path}: an action of kind `notify` needs urls_file", "docs/fleet.md")
        notify.check(Path(action.urls_file))


class Verdict(Struct):
    """What the actions get to know."""

    id: str
    job: str
    status: str
    kind: str = ""
    ranks: str = ""
    nodes: list[str] = []
    confidence: float = 0.0
    summary: str = ""
    bundle: str = ""
    pids: dict[str, list[int]] = {}  # node -> processes of the first cause

    @classmethod
    def of(cls, id: str, diagnosis: Diagnosis, bundle: Path) -> Verdict:
        """The first cause of a diagnosis, with the processes of its ranks."""
        verdict = cls(
            id=id,
            job=diagnosis.job.id,
            status=diagnosis.status,
            summary=diagnosis.summary,
            bundle=str(bundle),
        )
        if not diagnosis.causes:
            return verdict
        first = diagnosis.causes[0]
        verdict.kind, verdict.confidence = first.kind, first.confidence
        verdict.ranks, verdict.nodes = format_ranks(first.ranks), first.nodes
        culprits = set(first.ranks)
        for line in diagnosis.ranks:
            if line.rank in culprits and line.pid > 1:
                verdict.pids.setdefault(line.node, []).append(line.pid)
        return verdict


class Actor:
    """Runs the actions, and none during the cool-down."""

    def __init__(self, config: Config, dry_run: bool = False) -> None:
        self.config = config
        self.dry_run = dry_run or config.actions.dry_run
        self.acted_at = float("-inf")
        # Called before something is done: for who keeps that it was.
        self.acting: Callable[[], None] = lambda: None

    def act(self, verdict: Verdict, now: float) -> list[str]:
        """Do what is configured; returns one line for each action. `now` is a clock that never goes back."""
        due = [a for a in self.config.action if verdict.status in a.on]
        if not due:
            return []
        since, cooldown_s = now - self.acted_at, self.config.actions.cooldown_s
        if since < cooldown_s:
            return [
                f"no action: {duration(since)} after the last one (cool-down {duration(cooldown_s)})"
            ]
        planned = [(a, *_plan(a, verdict)) for a in due]
        acts = any(not why for _, why, _ in planned)  # a skipped action does not count
        if acts and not self.dry_run:
            self.acted_at = now
            self.acting()
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
        lines.append(f"Culprit ranks: {verdict.ranks}; nodes: {format_hosts(verdict.nodes)}")
    if verdict.id:
        lines.append(f"On {os.uname().nodename}: hangdoctor diagnose {verdict.bundle}")
    title = f"hangdoctor: {verdict.status} in {short_job(verdict.job)}"
    return notify.Message(title, "\n".join(lines), urgent=verdict.status in ("hang", "failed"))


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
