"""DeepSpeed's checkpoint engine interface: writes each file durably, in the background if asked to.

In the background: tensors are copied to host memory first, the training goes on, one thread a rank
writes. The thread of rank 0 commits the folder when every rank's marker is in it; no collective is
involved.
"""

from __future__ import annotations

import collections
import os
import queue
import threading
import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

import torch

from .. import faults
from . import files


def _copied(value: Any) -> Any:
    """The same structure with every tensor copied to host memory: training goes on changing the
    originals.
    """
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        copy = type(value)() if type(value) is not dict else {}
        copy.update({k: _copied(v) for k, v in value.items()})
        return copy
    if (
        isinstance(value, list | tuple)
        and not hasattr(value, "_fields")
        and not isinstance(value, torch.Size)
    ):
        return type(value)(_copied(v) for v in value)
    return value


def without_enums(value: Any) -> Any:
    """The same structure, sharing its tensors, with every enum member replaced by its value.

    Python 3.11.0 to 3.11.3 pickle a member through `getattr`, which `torch.load(weights_only=True)`
    refuses; other versions name the class. A plain number loads everywhere, and DeepSpeed only
    compares it. Source: https://github.com/python/cpython/issues/105332.
    """
    if isinstance(value, Enum):
        return value.value
    if type(value) in (dict, collections.OrderedDict):
        return type(value)((without_enums(k), without_enums(v)) for k, v in value.items())
    if type(value) in (list, tuple):
        return type(value)(without_enums(v) for v in value)
    return value


class Writer:
    """One a rank. `save` is called by DeepSpeed once a file, `finish` by us once a checkpoint."""

    def __init__(self, rank: int, world_size: int, background: bool) -> None:
        self.rank, self.world_size, self.background = rank, world_size, background
        self._sizes: dict[str, int] = {}
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._pending = threading.Semaphore(0)
        self._started = 0
        self._error: BaseException | None = None
        self._iteration = 0
        if background:
            threading.Thread(target=self._work, name="checkpoint-writer", daemon=True).start()

    def begin(self, iteration: int) -> None:
        """A new checkpoint begins: sizes are collected for it."""
        self._sizes, self._iteration = {}, iteration

    def save(self, state_dict: Any, path: str) -> None:
        """Write one file of DeepSpeed's, in the background where that was asked for."""
        sizes, iteration = self._sizes, self._iteration
        if self.background:
            state_dict = _copied(state_dict)
        self._do(lambda: self._write(state_dict, Path(path), sizes, iteration))

    def _write(self, state: Any, path: Path, sizes: dict[str, int], iteration: int) -> None:
        faults.point("writer", iteration=iteration)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            torch.save(without_enums(state), file)
            file.flush()
            os.fsync(file.fileno())
        sizes[path.name] = path.stat().st_size

    def finish(self, folder: Path, meta: dict[str, Any], done: Callable[[], None]) -> None:
        """All of this rank's files are handed over; rank 0 commits when every rank's are written."""
        sizes = self._sizes

        def last() -> None:
            files.leave_marker(folder, self.rank, sizes)
            if self.rank == 0 and self.background:
                while len(files.markers(folder)) < self.world_size:
                    time.sleep(0.05)
                files.commit(folder, meta)
                done()

        self._do(last)

    def _do(self, job: Callable[[], None]) -> None:
        if not self.background:
            job()
            return
        self._started += 1
        self._jobs.put(job)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                if self._error is None:
                    job()
            except BaseException as error:  # handed to the training thread in wait()
                self._error = error
            finally:
                self._pending.release()

    def wait(self) -> None:
        """Until everything handed over is on disk.

        Raises:
            OSError: whatever the writing thread met.
        """
        while self._started:
            self._pending.acquire()
            self._started -= 1
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    # What DeepSpeed asks of a checkpoint engine beside save and load.
    def create(self, info: Any) -> None:
        """Part of DeepSpeed's interface (`CheckpointEngine`); `begin` does it."""

    def commit(self, info: Any) -> bool:
        """Part of DeepSpeed's interface; completeness is marked by `files.markers`."""
        return True

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Make a folder, with those above it."""
        Path(path).mkdir(parents=True, exist_ok=exist_ok)

    def is_data_parallel_writer(self, dp_rank: int) -> bool:
        """Part of DeepSpeed's interface: the first replica writes the model."""
        return dp_rank == 0

    def is_decoupled(self) -> bool:
        """Part of DeepSpeed's interface: it need not commit for us."""
        return False

    def preserves_storage_sharing(self) -> bool:
        """Part of DeepSpeed's interface: `torch.save` keeps tied weights tied."""
        return True

    def cleanup(self) -> None:
        """Part of DeepSpeed's interface; there is nothing to clean up."""

    def set_commit_info(self, info: Any) -> None:
        """Part of DeepSpeed's interface; nothing is committed by it."""

    def get_commit_info(self) -> None:
        """Part of DeepSpeed's interface; nothing is committed by it."""
        return None

    @staticmethod
    def load(path: str | Path, map_location: Any = None) -> Any:
        """Tensors and plain data only: a checkpoint from elsewhere must not run code."""
        with torch.serialization.safe_globals(deepspeed_types()):
            return torch.load(path, map_location=map_location, weights_only=True)


def deepspeed_types() -> list[Any]:
    """The classes of DeepSpeed that its files may name; the enum only in files of older trainers."""
    from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler, LossScaler
    from deepspeed.runtime.zero.config import ZeroStageEnum
    from deepspeed.utils.tensor_fragment import fragment_address

    return [fragment_address, LossScaler, DynamicLossScaler, ZeroStageEnum]
