"""Fixtures of the sidecar's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.sidecar_stage import Job, Start, starting


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a program of this test; all of them are ended with it."""
    with starting(tmp_path) as begin:
        yield begin


@pytest.fixture
def job(tmp_path: Path, start: Start) -> Job:
    return Job(tmp_path, start)
