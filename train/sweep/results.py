"""The file of results: JSON lines, each of them whole or not there, so that a sweep goes on."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from ..options import ConfigError

MEASURED = "measured"
REFUSED = "refused"
OUT_OF_MEMORY = "out of memory"
HANG = "hang"
FAILED = "failed"
TIME_LIMIT = "time limit"


@dataclass(frozen=True)
class Result:
    """One job. `seconds` an iteration, `tflops` of a GPU and `memory` (bytes, rank 0) where they
    were measured; `plan`: seconds by the planner; `verdict`: hangdoctor's diagnosis of a hang.
    """

    key: str
    name: str
    status: str
    options: Mapping[str, Any]
    sizes: Mapping[str, int]
    seconds: float | None = None
    tflops: float | None = None
    memory: float | None = None
    plan: float | None = None
    note: str = ""
    verdict: Mapping[str, Any] | None = None
    log: str = ""
    date: str = ""
    iterations: list[float] = field(default_factory=list)


class Results:
    """A context manager: one sweep at a time writes the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = threading.Lock()

    def __enter__(self) -> Results:
        """Raises ConfigError: another sweep is writing it, or a line of it is no result."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.found = self._read()
        except BlockingIOError as error:
            os.close(self.file)
            raise ConfigError(f"{self.path}: another sweep is writing it") from error
        except ConfigError:
            os.close(self.file)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self.file)

    def _read(self) -> dict[str, Result]:
        """Results by key, the later of two; a last line without its end was never whole."""
        text = self.path.read_bytes()
        whole = text.rfind(b"\n") + 1
        os.ftruncate(self.file, whole)
        found = {}
        for number, line in enumerate(text[:whole].splitlines(), 1):
            try:
                result = Result(**json.loads(line))
            except (ValueError, TypeError) as error:
                raise ConfigError(f"{self.path}:{number}: no result of a sweep: {error}") from error
            found[result.key] = result
        return found

    def add(self, result: Result) -> None:
        """Append a line, on the disk when this returns."""
        line = json.dumps(dataclasses.asdict(result)) + "\n"
        with self.lock:
            os.write(self.file, line.encode())
            os.fsync(self.file)
            self.found[result.key] = result
