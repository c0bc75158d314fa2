"""Lines as log shippers keep them: Docker's and Kubernetes' files, journald, Loki, JSON lines, and
`level=info rank=3 msg="text"`.

What a shipper puts around a line is taken off and remembered: the moment, the pod or host, and the
rank where the job's own logger wrote it. One record may hold several lines, and one line may come
in several records.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal

import msgspec
from msgspec import Struct

from ...text.late import late
from .prefix import Said
from .stamps import Clock

Form = Literal["json", "container", "journal", "loki", "pairs"]

_SAMPLE = 200  # lines that show a file's form
_DEEP = 3  # levels of a record in which its message is looked for
_LONGEST = 1 << 20  # characters of a line that comes in parts
_MOST_LINES = 2000  # of one record
_MOST_RANKS = 10_000_000

_CONTAINER = late(r"(20\d\d-\d\d-\d\dT[\d:.]{8,20}\S{0,6}) (stdout|stderr) ([FP])(?: (.*))?$")
_JOURNAL = late(
    r"((?:[A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:\d\d(?:\.\d{1,6})?|20\d\d-\d\d-\d\d[T ][\d:.,]{8,20}\S{0,6}))"
    r" (?!(?i:DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL|NOTICE|TRACE)\b)"  # a logger's own line
    r"([A-Za-z0-9][\w.-]{0,120}) [\w./@:-]{1,120}?(?:\[\d{1,9}\])?: (.*)$"
)
_LOKI = late(r"(20\d\d-\d\d-\d\d[T ][\d:.]{8,20}\S{0,6}) \{(\w+=\"[^}]{0,2000})\} {0,4}(.*)$")
_LABEL = late(r'(\w+)="([^"]{0,200})"')
_PAIR = late(r'([\w.@-]{1,40})=(?:"((?:[^"\\]|\\.){0,20000})"|([^\s"]{0,400}))(?:\s+|$)')
_ESCAPED = late(r"\\(.)")

_TEXTS = (
    *("log", "MESSAGE", "message", "msg", "textPayload", "line", "text", "body"),
    *("@message", "event", "_raw"),
)
_HOLDERS = ("jsonPayload", "_source", "result", "record", "log")
_RANK_HOLDERS = ("extra", "context", "labels", "attributes", "fields", "data", "ctx", *_HOLDERS)
_ERRORS = ("exc_info", "exception", "traceback", "stack_trace", "exc_text", "stack")
_TIMES = (
    *("time", "@timestamp", "timestamp", "ts", "asctime"),
    *("__REALTIME_TIMESTAMP", "_SOURCE_REALTIME_TIMESTAMP"),
)
_DOCKERS = {"log", "stream", "time", "attrs"}  # other shippers strip the end of a line
_NODES = ("pod_name", "pod", "_HOSTNAME", "hostname", "host", "node", "HOSTNAME")
_NODE_HOLDERS = ("kubernetes", "resource", "labels", "jsonPayload", "_source", "result")
_RANKS = ("rank", "RANK", "global_rank")
# Seconds since the epoch, by how large the number is: nano, micro and milliseconds.
_SCALES = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3), (1e8, 1.0))


class Line(Struct):
    """One line of the job, with what its shipper knew."""

    text: str
    at: float = 0.0
    node: str = ""
    rank: int = -1

    def known(self, of_file: Said) -> Said:
        """Who says it, by its shipper and else by the file."""
        if not self.at and not self.node and self.rank < 0:
            return of_file
        said = msgspec.structs.replace(of_file, at=self.at)
        said.node = self.node or said.node
        said.rank = self.rank if self.rank >= 0 else said.rank
        return said


def form_of(lines: Iterable[str]) -> Form | None:
    """The form that most of the lines have; None for a log as the job wrote it."""
    seen = 0
    counts: dict[Form, int] = {"json": 0, "container": 0, "journal": 0, "loki": 0, "pairs": 0}
    for line in lines:
        text = line.strip()
        if not text:
            continue
        seen += 1
        for form in counts:
            counts[form] += _fits(form, text)
        if seen >= _SAMPLE:
            break
    best = max(counts, key=lambda form: counts[form])
    return best if 2 * counts[best] > seen else None


def _fits(form: Form, text: str) -> bool:
    if form in ("json", "pairs"):
        record = _record(text) if form == "json" else _pairs(text)
        return record is not None and _message(record) is not None
    return _PATTERNS[form].match(text) is not None


class Shipper:
    """Takes the lines of one file out of their records, one after the other."""

    def __init__(self, form: Form | None) -> None:
        self.form = form
        self._clock = Clock()
        self._parts: dict[str, str] = {}  # a line that has not ended, by stream

    def lines(self, text: str) -> list[Line]:
        """The lines of a record; a line that is no record is taken as it is."""
        if self.form is None:
            return [Line(text)]
        if self.form in ("json", "pairs"):
            return self._of_record(text)
        match = _PATTERNS[self.form].match(text.rstrip("\r\n"))
        if match is None:
            return [Line(text)]
        at, _ = self._clock.read(match[1])
        if self.form == "container":
            return self._of_container(match, at)
        if self.form == "journal":
            return [Line(match[3], at, match[2])]
        labels = dict(_LABEL.findall(match[2]))
        return [Line(match[3], at, node=_first(labels, _NODES), rank=_rank(labels))]

    def _of_container(self, match: re.Match[str], at: float) -> list[Line]:
        """Kubernetes' files: a line longer than 16 KB comes in parts, of which the last says so."""
        stream = match[2]
        whole = self._parts.pop(stream, "") + (match[4] or "")
        if match[3] == "P" and len(whole) < _LONGEST:
            self._parts[stream] = whole
            return []
        return [Line(whole, at)]

    def _of_record(self, text: str) -> list[Line]:
        record = _record(text.strip()) if self.form == "json" else _pairs(text.strip())
        message = _message(record) if record is not None else None
        if record is None or message is None:
            return [Line(text)]
        stream = str(record.get("stream", ""))
        if "stream" in record and record.keys() <= _DOCKERS:  # a part has no end of its line
            message = self._parts.pop(stream, "") + message
            if not message.endswith("\n") and len(message) < _LONGEST:
                self._parts[stream] = message
                return []
        whole = "\n".join([message.rstrip("\n"), *_errors(record)])
        at, node, rank = self._moment(record), _node(record), _rank(record)
        return [Line(line, at, node, rank) for line in whole.split("\n")[:_MOST_LINES]]

    def rest(self) -> list[Line]:
        """Parts whose end is not in the file."""
        left, self._parts = list(self._parts.values()), {}
        return [Line(text) for text in left]

    def _moment(self, record: dict[str, Any]) -> float:
        for name in _TIMES:
            value = record.get(name)
            if isinstance(value, str) and not value.replace(".", "", 1).isdigit():
                at, _ = self._clock.read(value)
            else:
                at = _seconds(value)
            if at > 0:
                return at
        return 0.0


_PATTERNS: dict[Form, re.Pattern[str]] = {
    "container": _CONTAINER,
    "journal": _JOURNAL,
    "loki": _LOKI,
}


def _record(text: str) -> dict[str, Any] | None:
    if not text.startswith("{") or not text.endswith("}"):
        return None
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _pairs(text: str) -> dict[str, Any] | None:
    """The fields of ``level=info rank=3 msg="text"``; None for a line with anything else."""
    found: dict[str, Any] = {}
    at = 0
    while at < len(text):
        match = _PAIR.match(text, at)
        if match is None:
            return None
        found[match[1]] = match[3] if match[2] is None else _ESCAPED.sub(_unescaped, match[2])
        at = match.end()
    return found if len(found) > 1 else None


def _unescaped(match: re.Match[str]) -> str:
    return {"n": "\n", "t": "\t"}.get(match[1], match[1])


def _message(record: dict[str, Any], deep: int = _DEEP) -> str | None:
    """The text of a record; journald writes one with control characters as a list of bytes."""
    for name in _TEXTS:
        value = record.get(name)
        if isinstance(value, str):
            return value
        if isinstance(value, list) and value and all(isinstance(n, int) for n in value):
            return bytes(n & 0xFF for n in value).decode("utf-8", "replace")
    for name in _HOLDERS:
        inner = record.get(name)
        if isinstance(inner, dict) and deep > 0:
            found = _message(inner, deep - 1)
            if found is not None:
                return found
    return None


def _errors(record: dict[str, Any]) -> list[str]:
    """Tracebacks that a logger keeps beside its message."""
    found = [record.get(name) for name in _ERRORS]
    return [text.rstrip("\n") for text in found if isinstance(text, str) and "\n" in text]


def _node(record: dict[str, Any], deep: int = _DEEP) -> str:
    for name in _NODE_HOLDERS:
        inner = record.get(name)
        if isinstance(inner, dict) and deep > 0:
            found = _node(inner, deep - 1)
            if found:
                return found
    return _first(record, _NODES)


def _first(record: dict[str, Any], names: tuple[str, ...]) -> str:
    found = (record.get(name) for name in names)
    return next((text[:120] for text in found if isinstance(text, str) and text), "")


def _rank(record: dict[str, Any], deep: int = _DEEP) -> int:
    for name in _RANKS:
        value = record.get(name)
        if isinstance(value, str) and value.isdigit() and len(value) < 8:
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST_RANKS:
            return value
    inner = [record.get(name) for name in _RANK_HOLDERS] if deep > 0 else []
    return max((_rank(i, deep - 1) for i in inner if isinstance(i, dict)), default=-1)


def _seconds(value: object) -> float:
    if isinstance(value, str):
        value = float(value) if len(value) < 30 else 0.0
    if not isinstance(value, int | float) or isinstance(value, bool):
        return 0.0
    return next((value / scale for least, scale in _SCALES if value >= least), 0.0)
