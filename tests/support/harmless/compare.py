"""What differs between two observations, beyond the few things that the probe is known to add: each
is named here.
"""

from __future__ import annotations

import dataclasses
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import hangdoctor
from tests.support.harmless.observe import Observation

PACKAGE = str(Path(hangdoctor.__file__).parent)
STARTUP = f"{PACKAGE}/probe/startup"
# Variables by which the probe reaches the ranks, in every child's environment.
VARIABLES = {
    "HANGDOCTOR_TRACE",
    "HANGDOCTOR_TRACED",
    "TORCH_FR_BUFFER_SIZE",
    "NCCL_PROFILER_PLUGIN",
}
# The heartbeat, the signs of life that need no interpreter, and torch's worker server: one that
# listens and a pool of at least eight that answer.
THREADS = 2 + 1 + 8
DESCRIPTORS = ["socket"]  # of the worker server, which listens; closed in whatever is executed
# What the heartbeat may have open just then: the state of the main thread, which it reads, and the file
# of torch's own records, which it writes while nothing gets on.
HEARTBEATS = re.compile(r"/proc/(\d+)/task/\1/stat|<base>/boxes/[\w.-]+\.records")
# Of the probe's modules, tables and threads (the box is a file's pages). In pure Python, each thread
# of a traced process has its own events as objects.
MEMORY_KB = 16_000 if find_spec("hangdoctor.probe.calls._calls") else 40_000
# A frame of a wrapper in a printed traceback: its line, the source, and the marks below that.
_RANKS = r"(?:\[rank\d+\]: )*"  # what torch writes before each line
FRAME = re.compile(
    rf'^{_RANKS} *File "{re.escape(PACKAGE)}/[^\n]*\n(?:{_RANKS} {{4,}}[^\n]*\n)*', re.MULTILINE
)

# What faulthandler says of the heartbeat, whose frames are of that kind too.
THREAD = re.compile(
    r"^(Current t|T)hread 0x\.\.\. \(most recent call first\):\n\n?(?=Thread|Current|$)",
    re.MULTILINE,
)

# The C++ library says this where a second thread ends the process while the first still does: in
# some runs of a program and not in others, plain ones too.
AGAIN = re.compile(r"^terminate called recursively\n", re.MULTILINE)


def differences(plain: Observation, other: Observation) -> list[str]:
    """One line for each difference; empty where the program cannot be told from the plain one."""
    found = []
    for spec in dataclasses.fields(Observation):
        if spec.name == "probes":
            continue
        before, after = getattr(plain, spec.name), getattr(other, spec.name)
        if isinstance(before, dict):
            for key in sorted(before.keys() | after.keys()):
                found += _compare(spec.name, key, before.get(key), after.get(key))
        else:
            found += _compare(spec.name, "", before, after)
    return found


def _compare(name: str, key: str, before: Any, after: Any) -> list[str]:
    where = f"{name} {key}".strip()
    if before is None or after is None:
        return [
            f"{where}: {'only with' if before is None else 'missing with'} the probe: {before or after}"[
                :300
            ]
        ]
    allowed = _ALLOWED.get(name)
    if allowed is not None:
        before, after = allowed(before, after)
    if isinstance(before, str) and before != after:
        return [f"{where}: {_first_difference(before, after)}"]
    if isinstance(before, dict):
        keys = sorted(before.keys() | after.keys())
        return [
            f"{where} {k}: {before.get(k)} != {after.get(k)}"
            for k in keys
            if before.get(k) != after.get(k)
        ]
    if isinstance(before, list):
        gone, come = [x for x in before if x not in after], [x for x in after if x not in before]
        return (
            [f"{where}: missing {gone}, more {come}, {len(before)} != {len(after)}"]
            if before != after
            else []
        )
    return [f"{where}: {before} != {after}"] if before != after else []


def _first_difference(before: str, after: str) -> str:
    left, right = before.splitlines(), after.splitlines()
    for a, b in zip(left, right, strict=False):
        if a != b:
            return f"{a!r} != {b!r}"
    more = left[len(right) :] or right[len(left) :]
    return f"{len(left)} lines != {len(right)} lines, among them {more[:5]!r}"


# ------------------------------------------------------------------- what the probe is known to add


def _stderr(before: str, after: str) -> tuple[str, str]:
    return AGAIN.sub("", before), AGAIN.sub("", THREAD.sub("", FRAME.sub("", after)))


def _environ(
    before: dict[str, str], after: dict[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    kept = {k: v for k, v in after.items() if k not in VARIABLES or k in before}
    if "PYTHONPATH" in kept:
        kept["PYTHONPATH"] = kept["PYTHONPATH"].replace(f"{STARTUP}:", "")
    return before, kept


def _descriptors(before: list[str], after: list[str]) -> tuple[list[str], list[str]]:
    after = [name for name in after if not HEARTBEATS.fullmatch(name)]
    return (before, before) if after == sorted(before + DESCRIPTORS) else (before, after)


def _threads(
    before: dict[str, Any], after: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    more = after["kernel"] - before["kernel"]
    return before, after | ({"kernel": before["kernel"]} if 0 <= more <= THREADS else {})


def _memory(before: int, after: int) -> tuple[int, int]:
    return before, before if after - before <= MEMORY_KB else after


def _interpreter(
    before: dict[str, Any], after: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The finder that waits for torch.distributed, and the profile function with which calls are
    traced.
    """
    before, after = (
        side | {"orig_argv": [re.sub(r"\d+", "0", w) for w in side["orig_argv"]]}
        for side in (before, after)
    )
    finders = [name for name in after["meta_path"] if name != "_Finder"]
    kept = after | {"meta_path": finders, "path": [p for p in after["path"] if p != STARTUP]}
    # A function of the C extension; without a compiler, a method of the pure writer.
    ours = ("<class 'builtin_function_or_method'>", "<class 'method'>")
    if before["profile"] == "<class 'NoneType'>" and after["profile"] in ours:
        kept["profile"] = before["profile"]
    return before, kept


_ALLOWED = {
    "stderr": _stderr,
    "environ": _environ,
    "descriptors": _descriptors,
    "threads": _threads,
    "memory": _memory,
    "interpreter": _interpreter,
}
