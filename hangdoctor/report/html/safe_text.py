"""Names from the job on a page: escaped, and cut where they are endless."""

from __future__ import annotations

import json
from typing import Any

from markupsafe import Markup, escape

from ...text.plain import visible


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
