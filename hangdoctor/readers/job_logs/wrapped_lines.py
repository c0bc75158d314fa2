"""Lines that a terminal broke at its width, in a short text that was copied from one:

    (raylet) A worker died while executing a task: Worker IP address: 10.0.1.7 Worker PI
    D: 811 Worker exit type: SYSTEM_ERROR

Where the longest lines of a text have one width, and what follows most of them goes on in the middle of a
word or sentence, they are put together again. Empty lines stand for those that are gone, so that all others
keep their numbers.
"""

from __future__ import annotations

from ...text.late import late

_MOST = 1 << 18  # bytes of a text that a person copies
_WIDTHS = range(70, 401)
_LEAST = 3  # lines of this width
_GOES_ON = late(r"[a-z,;:.)\]'\"_/=<>*+-]| [a-z(,.]|\d+[a-zA-Z_/.]")
_BEGINS = late(
    r"\s{0,8}(?:File \"|Traceback \(|\[|\(\w{1,40}(?: \w{1,40})? pid=|frame #|#\d|[A-Z]\w{2,40}(?:Error|Exception)\b|(?:[a-z_]\w{0,40}\.)+[A-Z]\w{1,60}(?:: |$)"
    r"|[EWIF]\d{4} |\d{4}-\d\d-\d\d|\d\d:\d\d|(?:INFO|WARN|ERROR|DEBUG)|> |terminate called|Exception raised|srun: |slurmstepd: "
    r"|[\w.-]{1,60}:\d+:\d+ \[|[\w./-]{1,200}\.(?:txt|log|out|err):)"
)
_RULED = late(r"[-=*#_~+|│─━┃╮╯┐┘]$")
_NUMBER = late(r"\d+")
_BAR = late(r"\d%\||[█▏▎▍▌▋▊▉]")


def unwrapped(data: bytes) -> bytes:
    """The text with its broken lines put together; as it is where none shows."""
    if len(data) > _MOST or b"\r" in data:
        return data
    lines = data.decode("utf-8", "replace").split("\n")
    width = max(map(len, lines))
    if width not in _WIDTHS:
        return data
    full = [n for n, line in enumerate(lines[:-1]) if len(line) == width and _is_text(line)]
    ends = [n for n in full if _BEGINS.match(lines[n + 1]) or not lines[n + 1].strip()]
    # What one rank printed as a whole line, another did as well.
    whole = {_NUMBER.sub("0", lines[n]) for n in ends}
    broken = [n for n in full if _NUMBER.sub("0", lines[n]) not in whole]
    clear = [n for n in broken if _goes_on(lines[n], lines[n + 1])]
    if len(full) < _LEAST or 2 * len(clear) <= len(full):
        return data
    return _joined(lines, set(broken)).encode()


def _is_text(line: str) -> bool:
    """Whether it is no ruler, row of a box, or bar of progress, which all have one width."""
    return not line[-1:].isspace() and not _RULED.search(line) and not _BAR.search(line)


def _goes_on(line: str, after: str) -> bool:
    """Whether the next line begins in the middle of something, and not as a record of another process does."""
    return _GOES_ON.match(after) is not None and _head(after) != _head(line)


def _head(line: str) -> str:
    return _NUMBER.sub("0", line[:24])[:8]


def _joined(lines: list[str], broken: set[int]) -> str:
    whole: list[str] = []
    held = ""
    gone = 0
    for number, line in enumerate(lines):
        held += line
        if number in broken:
            gone += 1
            continue
        whole += [held, *[""] * gone]
        held, gone = "", 0
    return "\n".join(whole)
