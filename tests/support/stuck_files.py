"""A file system that does not answer, and a control group that is frozen; the test is skipped where it cannot be had."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdoctor.train.faults import outside


@contextlib.contextmanager
def stuck(folder: Path) -> Iterator[Path]:
    """`folder`, which answers nothing."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(outside.silent_file_system(folder))
        except outside.NotPossible as error:
            pytest.skip(str(error))
        yield folder


@contextlib.contextmanager
def frozen(pid: int) -> Iterator[None]:
    """A frozen process."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(outside.frozen(pid))
        except outside.NotPossible as error:
            pytest.skip(str(error))
        yield
