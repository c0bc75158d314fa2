"""Errors of CUDA and HIP that a program prints by their number alone, in the words of the library itself.

CUDA error: 700                 an illegal memory access was encountered
"""

from __future__ import annotations

from msgspec import structs

from ...text.late import late
from .prefix import Said

_NUMBER = late(
    r"\b(?:CUDA|HIP|[Cc]uda|[Hh]ip)(?:[ -]?(?:[Rr]untime|[Dd]river|API))? (?:[Ee]rror|ERROR|[Ff]ailure)(?: code)?[ :=#(\[]{1,3}"
    r"(\d{1,3})(?![\w.%'-])(?!\W{1,5}(?!(?:at|in|on|from|file|line)\b)[A-Za-z'])"
)
# By their numbers in the headers of both; what is not here decides nothing more than that a call failed
_WORDS = {
    2: "CUDA out of memory",
    35: "CUDA driver version is insufficient for CUDA runtime version",
    46: "CUDA-capable device(s) is/are busy or unavailable",
    100: "no CUDA-capable device is detected",
    101: "invalid device ordinal",
    209: "no kernel image is available for execution on the device",
    214: "uncorrectable ECC error encountered",
    700: "an illegal memory access was encountered",
    702: "the launch timed out and was terminated",
    710: "device-side assert triggered",
    715: "an illegal instruction was encountered",
    716: "misaligned address",
    719: "unspecified launch failure",
}


def in_words(said: Said) -> Said:
    """The line with the words behind it, where it has a number and none."""
    if "rror" not in said.text and "RROR" not in said.text and "ailure" not in said.text:
        return said
    match = _NUMBER.search(said.text)
    words = _WORDS.get(int(match[1])) if match is not None else None
    return structs.replace(said, text=f"{said.text}: {words}") if words else said
