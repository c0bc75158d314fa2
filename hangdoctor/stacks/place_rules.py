"""What a thread can be in: a collective, a send, a data loader, a checkpoint, or just code.

The rules are data: `place_rules.toml`, and the user's own file named in HANGDOCTOR_PLACES. They are
read here and applied in `place_search`.
"""

from __future__ import annotations

import os
import pkgutil
import re
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from ..errors import BadInput
from ..files import MAX_SETTINGS
from ..model.capture import Frame

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_BUILT_IN = "place_rules.toml"

PlaceKind = Literal[
    "collective",
    "p2p",
    "store",
    "start",
    "end",
    "data",
    "checkpoint",
    "device",
    "queue",
    "child",
    "delegate",
    "work",
    "code",
    "",
]
COMMUNICATION = frozenset({"collective", "p2p", "store", "start", "end", "device"})
_FIELDS = {"kind", "function", "file", "code", "op", "group", "blocked"}


class Place(Struct, frozen=True):
    """Where a thread stands.

    `frame` is the line of the user's own program that got there, `caller` the innermost one outside
    torch: a framework's, where one made the call.
    """

    kind: PlaceKind
    op: str = ""
    group: str = ""  # world, sub, tp, dp, pp or "" where it cannot be told
    peer: int = -1
    frame: Frame | None = None
    caller: Frame | None = None
    delegated: bool = False  # the thread waits for another thread

    @property
    def at(self) -> tuple[tuple[str, str, int], ...]:
        """Equal for places that were reached by the same lines."""
        frames = [f for f in (self.frame, self.caller) if f is not None]
        return tuple((f.name, f.file, f.line) for f in frames)

    @property
    def communicates(self) -> bool:
        """True for waits for other ranks or for the device."""
        return self.kind in COMMUNICATION


class Rule(Struct, frozen=True):
    """One rule of `place_rules.toml`; what is None in it holds for every frame."""

    kind: PlaceKind
    function: re.Pattern[str] | None
    file: re.Pattern[str] | None
    code: re.Pattern[str] | None
    op: str
    group: str
    blocked: bool

    def matches(self, frame: Frame, innermost: bool, blocked: bool) -> bool:
        """Whether the rule holds for a frame of whose function and file `may_match` is true.

        `blocked`: the thread did not run between the samples.
        """
        if self.blocked and not blocked:
            return False
        return self.code is None or (innermost and self.code.search(frame.code) is not None)

    def name_of(self, frame: Frame) -> str:
        """The operation that a frame is in, for which the rule holds."""
        if self.op != "=":
            return self.op
        match = self.code.search(frame.code) if self.code is not None else None
        if match is not None:
            return next((name for name in match.groups() if name), match[0])
        return frame.own_name

    def may_match(self, name: str, file: str) -> bool:
        """What depends on the function alone, and is asked once for each function."""
        if self.function is not None and not self.function.fullmatch(name.rpartition(".")[2]):
            return False
        return self.file is None or self.file.search(file) is not None


def _rules_of(text: str, origin: str) -> list[Rule]:
    if len(text) > MAX_SETTINGS:
        raise BadInput(f"{origin} is larger than {MAX_SETTINGS >> 10} KiB", "Keep fewer rules.")
    try:
        table = tomllib.loads(text).get("rule", [])
        return [_rule(entry) for entry in table]
    except (
        re.error,
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        RecursionError,
        OverflowError,
    ) as error:
        raise BadInput(
            f"{origin} has no usable rules: {error}",
            f"Its form is described at the top of {_BUILT_IN}.",
        ) from error


def _rule(entry: dict[str, Any]) -> Rule:
    unknown = set(entry) - _FIELDS
    if unknown:
        raise ValueError(f"unknown field {sorted(unknown)[0]!r}")

    def pattern(name: str) -> re.Pattern[str] | None:
        return re.compile(entry[name]) if name in entry else None

    return Rule(
        kind=entry["kind"],
        function=pattern("function"),
        file=pattern("file"),
        code=pattern("code"),
        op=entry.get("op", ""),
        group=entry.get("group", ""),
        blocked=bool(entry.get("blocked", False)),
    )


@lru_cache(maxsize=1)
def rules() -> list[Rule]:
    """The user's rules first, then the built-in ones.

    Raises:
        BadInput: the user's file cannot be read or holds something else.
    """
    own = os.environ.get("HANGDOCTOR_PLACES", "")
    mine: list[Rule] = []
    if own:
        try:
            mine = _rules_of(Path(own).read_text(), own)
        except OSError as error:
            raise BadInput(
                f"HANGDOCTOR_PLACES names {own}, which cannot be read: {error.strerror}"
            ) from error
    own_rules = (pkgutil.get_data(__package__, _BUILT_IN) or b"").decode()
    return mine + _rules_of(own_rules, _BUILT_IN)
