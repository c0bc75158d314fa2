"""The rules that turn lines into facts: data in `log_rules.toml`, and the user's own file.

A rule is asked only about lines that hold one of its anchors, and `broad` are the few short texts
that every anchor contains: a block of a log without any of them is passed over unread.
"""

from __future__ import annotations

import os
import pkgutil
import re
import signal
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, get_args

import msgspec
from msgspec import Struct

from ...errors import BadInput
from ...files import read_settings
from ...model.diagnosis import Kind
from ...model.log_facts import AnyFact, KnownError, Role, RuleText
from .kept_values import kept

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Anchor = tuple[str, int]  # with the number of its rule
ENVIRONMENT = "HANGDOCTOR_LOG_RULES"
_BUILT_IN = ("simulation_rules.toml", "log_rules.toml")
_FORM = "Its form is described at the top of log_rules.toml."
# On nearly every line of a failure: always searched for.
COMMON = (
    *("rror", "xception", "ailed", "ailure", "imeout", "imed out", "signal", "exit"),
    *("raceback", "recent call", "NCCL WARN"),
)
# Short texts that most of the other anchors contain; an anchor without any of them becomes one itself.
_BROAD = (
    *(
        *COMMON,
        "Kill",
        "collective #",
        " stuck",
        " hung",
        "hanging",
        "ERROR",
        "FATAL",
        "MPI",
        "ABORT",
        "bort",
    ),
    *(
        "SIGTERM",
        "illing job",
        "rminat",
        "oom",
        "NET/OFI",
        "ssh: ",
        "marked",
        "efa_",
        "block found",
    ),
)
_GRAM = 4  # characters by which anchors are looked up in a line
# Rules of lines in words of the program's own: only where a prefix names the rank
OF_A_RANK = ("fatal_line", "error_line")
LAST_SIGNAL = 31  # of those that end processes; a code above it is a program's own, as of Fortran
_SIGNALS = {s.name: s.value for s in signal.Signals}
_FACTS: dict[str, type[AnyFact]] = {kind.__name__: kind for kind in get_args(AnyFact)}


class Pattern:
    """A regular expression that is compiled when it is first searched for: of some hundred, a log
    calls for a few.
    """

    __slots__ = ("_compiled", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._compiled: re.Pattern[str] | None = None

    def compiled(self) -> re.Pattern[str]:
        """The expression itself.

        Raises:
            re.error: it is none.
        """
        if self._compiled is None:
            self._compiled = re.compile(self.text)
        return self._compiled

    def search(self, text: str) -> re.Match[str] | None:
        """The first place in `text` that fits."""
        return self.compiled().search(text)


class Rule(Struct, frozen=True):
    """One kind of line."""

    fact: type[AnyFact]
    anchors: tuple[str, ...]
    pattern: Pattern | None
    fixed: dict[str, Any]  # fields of the fact that the rule itself sets
    wraps: bool  # the line may have been broken in the middle
    rest: bool = False  # it may be the rest of a broken one, and then counts with that alone
    beside: bool = False  # its lines hold one of `COMMON` as well
    last: bool = False  # only where no rule before it knows the line
    negative: tuple[str, ...] = ()
    shell: tuple[str, ...] = ()  # above 128 the number is a signal
    id: str = ""
    role: Role = "cause"
    text: RuleText | None = None

    def facts(self, text: str) -> list[dict[str, Any]]:
        """The fields of each fact that `text` holds; [] where the rule does not match."""
        if self.pattern is None:
            return [dict(self.fixed)]
        found = []
        for match in self.pattern.compiled().finditer(text):
            told = {k: v for k, v in match.groupdict().items() if v is not None}
            found.append(self._fields(told))
        return found

    def values(self, text: str) -> dict[str, str]:
        """What the rule takes from a line of an error."""
        match = self.pattern.search(text) if self.pattern is not None else None
        told = match.groupdict() if match is not None else {}
        return {k: kept(v) for k, v in told.items() if v}

    def _fields(self, told: dict[str, str]) -> dict[str, Any]:
        if self.fact is KnownError:
            return {**self.fixed, "values": {k: kept(v) for k, v in told.items()}}
        values = {k: _value(k, v) for k, v in told.items()}
        values |= {k: f"-{values[k]}" for k in self.negative if k in values}
        values |= {k: _of_shell(int(values[k])) for k in self.shell if k in values}
        return {**self.fixed, **values}


class Rules(Struct, frozen=True):
    """All rules, the user's first."""

    rules: tuple[Rule, ...]
    broad: tuple[bytes, ...]
    anchors: Mapping[str, Sequence[Anchor]]  # by some characters of each, and "" for shorter ones

    def of(self, text: str) -> list[Rule]:
        """The rules that one of their anchors calls for, in their order."""
        grams = {text[at : at + _GRAM] for at in range(len(text) - _GRAM + 1)}
        grams.add("")
        called = {
            number
            for gram in grams & self.anchors.keys()
            for anchor, number in self.anchors[gram]
            if anchor in text
        }
        return [self.rules[number] for number in sorted(called)]

    def is_own(self, name: str) -> bool:
        """Whether an error is that of the process that prints it, and no other's or of a connection."""
        texts = [rule.text for rule in self.rules if rule.id == name and rule.text is not None]
        return bool(texts) and all(t.kind == "error" and not t.between for t in texts)

    def known(self, text: str) -> Rule | None:
        """The first rule on errors that matches."""
        for rule in self.of(text):
            if rule.fact is not KnownError or rule.id in OF_A_RANK:
                continue
            if rule.pattern is None or rule.pattern.search(text):
                return rule
        return None


def _value(name: str, text: str) -> Any:
    """A list of ranks as numbers; the fact's type converts the rest."""
    if name.endswith("ranks"):
        return [int(n) for n in re.findall(r"\d{1,7}", text)]
    if name == "nodes":
        return [text]
    if name == "code" and text in _SIGNALS:
        return f"-{_SIGNALS[text]}"
    if name == "number" and text in _SIGNALS:
        return _SIGNALS[text]
    return text.strip()


def _of_shell(code: int) -> int:
    """The exit code of a process, below zero for a signal."""
    return 128 - code if 128 < code <= 128 + LAST_SIGNAL else code


def fact_of(rule: Rule, fields: dict[str, Any]) -> AnyFact | None:
    """The fact, with its numbers as numbers; None for numbers that are none."""
    try:
        told = {"type": rule.fact.__name__, **fields}
        fact: AnyFact = msgspec.convert(told, type=rule.fact, strict=False)
    except (msgspec.ValidationError, ValueError):
        return None
    return fact


@lru_cache(maxsize=1)
def rules() -> Rules:
    """The user's rules first, then the built-in ones.

    Raises:
        BadInput: the user's file cannot be read or holds something else.
    """
    own = os.environ.get(ENVIRONMENT, "")
    mine: list[Rule] = []
    if own:
        try:
            mine = checked(parse(read_settings(own), own), own)
        except OSError as error:
            raise BadInput(
                f"{ENVIRONMENT} names {own}, which cannot be read: {error.strerror}"
            ) from error
    every = tuple(mine + [rule for name in _BUILT_IN for rule in parse(_text_of(name), name)])
    return Rules(every, broad_anchors(every), by_grams(every))


def _text_of(name: str) -> str:
    return (pkgutil.get_data(__package__, name) or b"").decode()


def broad_anchors(every: tuple[Rule, ...]) -> tuple[bytes, ...]:
    """The fewest texts of which each anchor contains one."""
    used = dict.fromkeys(COMMON)
    for anchor in (a for rule in every if not rule.beside for a in rule.anchors):
        used[next((b for b in _BROAD if b in anchor), anchor)] = None
    return tuple(text.encode() for text in used)


def by_grams(every: tuple[Rule, ...]) -> dict[str, list[Anchor]]:
    """Each anchor, with the number of its rule, by those of its characters that fewest anchors have."""
    anchored = [(a, number) for number, rule in enumerate(every) for a in rule.anchors]
    often = Counter(gram for anchor, _ in anchored for gram in _grams(anchor))
    found: dict[str, list[Anchor]] = {"": []}
    for anchor, number in anchored:
        gram = min(_grams(anchor), key=lambda g: often[g], default="")
        found.setdefault(gram, []).append((anchor, number))
    return found


def _grams(text: str) -> list[str]:
    return [text[at : at + _GRAM] for at in range(len(text) - _GRAM + 1)]


def parse(text: str, origin: str) -> list[Rule]:
    """The rules of a file.

    Raises:
        BadInput: it holds something else.
    """
    try:
        return [_rule(entry) for entry in tomllib.loads(text).get("rule", [])]
    except (re.error, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise BadInput(f"{origin} has no usable rules: {error}", _FORM) from error


def checked(found: list[Rule], origin: str) -> list[Rule]:
    """The same rules, once all of their patterns have been compiled.

    Raises:
        BadInput: one of them is no regular expression.
    """
    try:
        for rule in found:
            if rule.pattern is not None:
                rule.pattern.compiled()
    except (re.error, TypeError, RecursionError) as error:
        raise BadInput(f"{origin} has no usable rules: {error}", _FORM) from error
    return found


_FIELDS = {
    "fact",
    "anchor",
    "pattern",
    "set",
    "wraps",
    "rest",
    "beside",
    "last",
    "negative",
    "shell",
    "id",
    "role",
    "between",
    "kind",
    "meaning",
    "do",
}


def _rule(entry: dict[str, Any]) -> Rule:
    unknown = set(entry) - _FIELDS
    if unknown:
        raise ValueError(f"unknown field {sorted(unknown)[0]!r}")
    kind = _FACTS[entry.get("fact", "KnownError")]
    anchors = tuple(entry["anchor"])
    if not anchors or not all(isinstance(a, str) and len(a) >= 3 for a in anchors):
        raise ValueError("an anchor is a text of three characters or more")
    pattern = Pattern(entry["pattern"]) if "pattern" in entry else None
    fixed = dict(entry.get("set", {}))
    if kind is not KnownError:
        return Rule(
            kind,
            anchors,
            pattern,
            fixed,
            wraps=bool(entry.get("wraps", False)),
            rest=bool(entry.get("rest", False)),
            beside=bool(entry.get("beside", False)),
            negative=tuple(entry.get("negative", ())),
            shell=tuple(entry.get("shell", ())),
        )
    return _error_rule(entry, anchors, pattern, fixed)


def _error_rule(
    entry: dict[str, Any],
    anchors: tuple[str, ...],
    pattern: Pattern | None,
    fixed: dict[str, Any],
) -> Rule:
    role, of = entry.get("role", "cause"), entry.get("kind", "error")
    if role not in get_args(Role) or of not in get_args(Kind):
        raise ValueError(f"no such role or kind: {role}, {of}")
    name = str(entry["id"])
    fixed |= {"rule": name, "role": role}
    text = RuleText(
        str(entry["meaning"]),
        str(entry.get("do", "")),
        kind=of,
        between=bool(entry.get("between", False)),
    )
    return Rule(
        KnownError,
        anchors,
        pattern,
        fixed,
        wraps=bool(entry.get("wraps", False)),
        beside=bool(entry.get("beside", False)),
        last=bool(entry.get("last", False)),
        id=name,
        role=role,
        text=text,
    )
