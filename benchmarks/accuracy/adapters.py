"""Answers of other analyzers in the form that `benchmarks.accuracy.tools` reads.

    python -m benchmarks.accuracy.adapters NAME FOLDER

An adapter is a function from a folder of evidence to an `Answer`; to measure a tool of one's own, a
script that prints the same JSON will do. What each peer's output is taken to mean is written in
`peers.py` (dumps) and `log_peers.py` (logs).
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from . import log_peers, peers
from . import majority as _majority
from .known_tools import NOT_MEASURED
from .tools import Answer, SaidCause


def of_dumps(found: peers.PeerResult) -> Answer:
    """What an analyzer of dumps found, as an answer."""
    if found.status == "not measured":
        return Answer(NOT_MEASURED)
    return Answer(readings=found.readings)


def torch(folder: Path) -> Answer:
    """torch's analyzer of Flight Recorder dumps."""
    return of_dumps(peers.torch_analyzer(folder)) if _dumps(folder) else Answer(NOT_MEASURED)


def nvrx(folder: Path) -> Answer:
    """nvidia-resiliency-ext's analyzer of Flight Recorder dumps."""
    return of_dumps(peers.nvrx_analyzer(folder)) if _dumps(folder) else Answer(NOT_MEASURED)


def torchelastic(folder: Path) -> Answer:
    """torchelastic's first failure, of job logs."""
    if not _logs(folder):
        return Answer(NOT_MEASURED)
    return _of_logs(log_peers.torchelastic(log_peers.texts_of(folder)))


def nvrx_logs(folder: Path) -> Answer:
    """nvidia-resiliency-ext's log stage, of job logs."""
    [named] = log_peers.nvrx([log_peers.texts_of(folder)]) if _logs(folder) else [None]
    return Answer(NOT_MEASURED) if named is None else _of_logs(named)


def majority(folder: Path) -> Answer:
    """The baseline: whose stack differs from most."""
    if not (folder / "raw").is_dir():
        return Answer(NOT_MEASURED)
    return Answer(readings=_majority.readings(folder))


def _of_logs(named: list[int]) -> Answer:
    return Answer(causes=[SaidCause(named)] if named else [])


def _dumps(folder: Path) -> bool:
    """Whether these are Flight Recorder dumps, as torch writes them."""
    return any(f.read_bytes()[:1] == b"\x80" for f in folder.iterdir() if f.is_file())


def _logs(folder: Path) -> bool:
    return (folder / "job.out").is_file()


ADAPTERS = {
    "torch": torch,
    "nvrx": nvrx,
    "torchelastic": torchelastic,
    "nvrx-logs": nvrx_logs,
    "majority": majority,
}


def main() -> None:
    """Print the answer."""
    name, folder = sys.argv[1:]
    sys.stdout.write(msgspec.json.encode(ADAPTERS[name](Path(folder))).decode() + "\n")


if __name__ == "__main__":
    main()
