"""What an operator writes into hangdoctor.toml: actions after a verdict, and where telemetry goes.

    [actions]
    dry_run = false       # true: only log what would be done
    cooldown_s = 600      # no further action for N seconds after one

    [[action]]
    kind = "command"      # command | webhook | notify | requeue | scancel | signal
    command = ["/usr/local/bin/page", "{job}", "{summary}"]
    timeout_s = 30
    on = ["hang"]         # status: hang, slow, failed, unknown; "event:spike": what the training
                          # says of itself (hangdoctor.probe.event), "event" of any kind

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

    [otel]                # each saved incident, by OTLP over HTTP
    endpoint = "http://127.0.0.1:4318"

Words in braces are replaced; a command is never run by a shell. The verdict is also in the environment: HANGDOCTOR_JOB,
HANGDOCTOR_STATUS, HANGDOCTOR_SUMMARY, HANGDOCTOR_BUNDLE, HANGDOCTOR_RANKS, HANGDOCTOR_KIND, HANGDOCTOR_ITERATION.
"""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from ..errors import BadInput
from ..files import read_settings
from ..report import telemetry
from . import notify
from .verdict import EVENT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_STATUSES = ("hang", "slow", "failed", "unknown", "healthy", EVENT)
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
    """Raises BadInput: it lacks what its kind needs, or is on a status that there is not."""
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
    if action.kind == "notify":
        if not action.urls_file:
            raise BadInput(f"{path}: an action of kind `notify` needs urls_file", "docs/fleet.md")
        notify.check(Path(action.urls_file))


def _is_known(word: str) -> bool:
    return word in _STATUSES or word.startswith(f"{EVENT}:")
