"""Credentials taken out of command lines and texts before they are kept: known forms, and values
after names of secrets.

A name counts by its last word: ``--wandb-api-key X``, ``HF_TOKEN=X``, ``"password": "X"``. Where
that word means something harmless as well (``--pad-token``, ``--key``), only a value that looks
random is taken. Ordinary arguments stay as they are.
"""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Sequence

from .late import late

REDACTED = "[redacted]"
_SHORT = 6  # characters: a shorter text holds no credential that is worth the search

# Forms that are credentials wherever they stand; a group is the part that stays.
_FORMS = (
    late(
        r"\b(?:hf_|gh[pousr]_|github_pat_|glpat-|npm_|nvapi-|pypi-|dckr_pat_|shpat_|dop_v1_|r8_)[A-Za-z0-9_-]{16,}"
    ),
    late(r"\b(?:sk|pk|rk)[-_](?:[a-z]+[-_]){0,2}[A-Za-z0-9_-]{16,}"),
    late(r"\b(?:AKIA|ASIA|AGPA|AROA)[A-Z0-9]{16}\b"),
    late(r"\bAIza[A-Za-z0-9_-]{30,}"),
    late(r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}"),
    late(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),
    late(r"(\bhooks\.slack\.com/services/)[A-Za-z0-9/]+"),
    late(r"(-----BEGIN [A-Z ]*PRIVATE KEY-----)[^-]*"),
    late(r"(\b(?:[Bb]earer|[Bb]asic|BEARER)\s+)[A-Za-z0-9._~+/=-]{8,}"),
    late(r"(://[^/\s:@'\"]*:)[^/\s@'\"]+(?=@)"),
    late(r"(://)[A-Za-z0-9_-]{20,}(?=@)"),
)
# NAME=VALUE, NAME: VALUE and "NAME": "VALUE"; the value ends where a shell, a URL or JSON would end
# it.
_NAME = r"(?<![A-Za-z0-9_])(?=[A-Za-z0-9_.-]{0,80}(?i:key|token|secret|pass|pwd|auth|cred|cookie|sig|sas))[A-Za-z_][A-Za-z0-9_.-]{0,80}"
_PAIR = late(
    rf"(?P<name>{_NAME})"
    r"(?P<between>[\"']?\s?[=:]\s?)(?P<quote>[\"']?)(?P<value>[^\s\"'&;,}|<>]{1,4096})"
)
_FLAG = late(
    r"(?P<name>(?<![\w-])--?[A-Za-z][A-Za-z0-9_.-]{0,80})(?P<between>\s{1,8})(?P<quote>[\"']?)(?P<value>[^\s\"'-][^\s\"']{0,4095})"
)
_IS_FLAG = late(r"--?[A-Za-z][A-Za-z0-9_.-]{0,80}")
_WORDS = late(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_HARMLESS_VALUE = late(
    r"(?i)(?:-?[0-9.]{1,9}[a-z]?|true|false|none|null|yes|no|auto|bearer|basic|\$.*|<.*|\[redacted\]|/.*|~.*)"
)

_SECRET = frozenset(
    "secret secrets password passwd passphrase credential credentials apikey authtoken authkey accesskey secretkey".split()
)
_KEY_OF = frozenset(
    "api access secret private auth account encryption signing license subscription storage service client master wandb "
    "comet mlflow neptune clearml openai anthropic huggingface aws azure gcp ssh shared hmac session".split()
)
# Tokens of texts and counts of them, against tokens that open doors.
_TOKEN_OF = frozenset(
    "pad eos bos unk mask sep cls special image audio video vision text stop start end begin prompt input output new extra "
    "num max min per next last first mean avg total max_new ignore think image_ domain box".split()
)


def arguments(argv: Sequence[str]) -> list[str]:
    """A command line without its credentials; as many words as before, and all others as they were."""
    kept: list[str] = []
    hide = ""  # the flag whose value comes next
    for word in argv:
        value = _value(hide, word) if hide and not _IS_FLAG.fullmatch(word) else word
        kept.append(text(value))
        hide = word if _IS_FLAG.fullmatch(word) else ""
    return kept


def text(words: str) -> str:
    """A text of any kind without its credentials."""
    if len(words) < _SHORT:
        return words
    return _FLAG.sub(_replaced, _PAIR.sub(_replaced, _without_forms(words)))


@functools.lru_cache(4096)
def code(line: str) -> str:
    """A line of a program: only what is written out in it, never a name that holds a secret at run
    time.
    """
    return _PAIR.sub(lambda m: _replaced(m) if m["quote"] else m[0], _without_forms(line))


def _without_forms(words: str) -> str:
    for form in _FORMS:
        words = form.sub(lambda m: (m[1] if m.lastindex else "") + REDACTED, words)
    return words


def _replaced(match: re.Match[str]) -> str:
    return (
        f"{match['name']}{match['between']}{match['quote']}{_value(match['name'], match['value'])}"
    )


def _value(name: str, value: str) -> str:
    """`value`, or what stands for it where `name` says that it is a secret."""
    if _HARMLESS_VALUE.fullmatch(value):
        return value
    certain, likely = _meaning(name)
    if certain or (likely and _looks_random(value)):
        return REDACTED
    return value


def _meaning(name: str) -> tuple[bool, bool]:
    """(it names a secret, it may name one)."""
    words = [w.lower() for w in _WORDS.findall(name)]
    if not words:
        return False, False
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    likely = bool(
        {"key", "token", "secret", "auth", "pwd", "pass", "cookie", "signature", "sig", "sas"}
        & set(words)
    )
    if (
        last in _SECRET
        or (last == "key" and before in _KEY_OF)
        or last in ("authorization", "cookie")
    ):
        return True, True
    if last == "token" and before not in _TOKEN_OF:
        return True, True
    if last == "id" and before == "key":
        return False, True
    return False, likely


def _looks_random(value: str) -> bool:
    """Sixteen characters or more, of several kinds, hardly one of them repeated: no word, path or
    number.
    """
    if (
        len(value) < 16
        or not re.fullmatch(r"[A-Za-z0-9+/=_.~-]+", value)
        or not re.search(r"\d", value)
    ):
        return False
    if not re.search(r"[A-Za-z]", value):
        return False
    counts = Counter(value)
    entropy = -sum(n / len(value) * math.log2(n / len(value)) for n in counts.values())
    return entropy >= 3.0
