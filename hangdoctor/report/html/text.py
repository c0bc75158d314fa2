"""Names from the job, made safe to look at: what is invisible becomes visible, what is endless is cut."""

from __future__ import annotations

import json
import re
from typing import Any

from markupsafe import Markup, escape

# Control characters, and those that hide or turn around what stands beside them: soft hyphen, fillers, zero-width and
# bidirectional marks, line separators, variation selectors, tags, private use and lone surrogates.
_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202f\u2060-\u206f\u2800\u3164"
    "\ue000-\uf8ff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U000e0000-\U0010ffff]"
)
_STACKED = re.compile(r"([\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20f0\ufe20-\ufe2f]{3})[\u0300-\u036f\u0483-\u0489"
                      r"\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20f0\ufe20-\ufe2f]+")  # fmt: skip


def visible(text: str) -> str:
    """`text` with hidden and direction-changing characters written as ``\\u{202e}``; of stacked accents three are kept."""
    if text.isascii() and text.isprintable():
        return text
    return _STACKED.sub(r"\1\\u{…}", _HIDDEN.sub(lambda m: f"\\u{{{ord(m[0]):x}}}", text))


def keep_lines(text: str) -> Markup:
    """Text of several lines, each made visible, escaped."""
    return escape("\n".join(visible(line) for line in text.split("\n")))


def cut(text: str, width: int) -> str:
    """At most `width` characters; what is left out is marked."""
    return text if len(text) <= width else text[: width - 1] + "…"


def cut_list(text: str, width: int) -> str:
    """A list like ``0-3,8,12-15`` cut behind a comma."""
    return text if len(text) <= width else text[: width - 1].rpartition(",")[0] + ",…"


def embed(data: Any) -> str:
    """JSON that may stand inside a script element: no ``<``, so neither ``</script>`` nor ``<!--``."""
    text = json.dumps(_clean(data), separators=(",", ":"), ensure_ascii=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _clean(data: Any) -> Any:
    if isinstance(data, str):
        return visible(data)
    if isinstance(data, (list, tuple)):
        return [_clean(item) for item in data]
    if isinstance(data, dict):
        return {visible(key): _clean(value) for key, value in data.items()}
    return data


def plural(n: int, word: str) -> str:
    """``1 rank``, ``2 ranks``."""
    return f"{n:,} {word}{'' if n == 1 else 's'}"
