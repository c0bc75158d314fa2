"""The tools that `benchmarks.accuracy.tools` knows by name, and what each of them is."""

from __future__ import annotations

import sys

from msgspec import Struct

NOT_MEASURED = "not measured"  # a status: the tool is not installed here, or reads no such evidence
_ADAPTER = f"{sys.executable} -m benchmarks.accuracy.adapters"


class Known(Struct, frozen=True):
    """A tool that needs no command to be given."""

    command: str
    reads: tuple[str, ...]  # words in the names of the evidence that it reads
    what: str


# Pickles: what gloo ranks answer is JSON, which the other analyzers do not read.
_DUMPS, _LOGS = ("dump files", "active-only dumps"), ("logs",)
KNOWN = {
    "hangdoctor": Known(
        f"{sys.executable} -m hangdoctor diagnose --json - {{folder}}",
        ("",),
        "`hangdoctor diagnose`, offline",
    ),
    "torch": Known(
        f"{_ADAPTER} torch {{folder}}",
        _DUMPS,
        "torchfrtrace, torch's analyzer of Flight Recorder dumps",
    ),
    "nvrx": Known(
        f"{_ADAPTER} nvrx {{folder}}",
        _DUMPS,
        "nvidia-resiliency-ext's analyzer of Flight Recorder dumps, without a language model",
    ),
    "torchelastic": Known(
        f"{_ADAPTER} torchelastic {{folder}}",
        _LOGS,
        "the rank that torchrun prints as its first observed failure",
    ),
    "nvrx-logs": Known(
        f"{_ADAPTER} nvrx-logs {{folder}}",
        _LOGS,
        "nvidia-resiliency-ext's log stage, without a language model",
    ),
    "majority": Known(
        f"{_ADAPTER} majority {{folder}}",
        ("stacks",),
        "a baseline, not a product: py-spy's stacks of the main threads; who is not in the most frequent one is named",
    ),
}
