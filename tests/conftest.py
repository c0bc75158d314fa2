"""Shared fixtures, and how the suite is shared out over several workers (pytest-xdist, `--dist loadgroup`)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.hookimpl(tryfirst=True)  # xdist puts the group into the names in this very hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A file stays with one worker, for its jobs are shared; all of the lab cluster with one, for there is only one."""
    for item in items:
        alone = item.get_closest_marker("slurm") is not None
        item.add_marker(pytest.mark.xdist_group("lab" if alone else item.nodeid.partition("::")[0]))
