"""Shared fixtures, and how the suite is shared out over several workers (pytest-xdist)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadFileScheduling


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling:
    """A file stays with one worker, for its jobs are shared; so do the lab cluster's and the live page's."""
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = str(super()._split_scope(nodeid))
            if "/web/" in file:
                return "web"  # one live job and one browser for all of it
            return "lab" if "_lab" in file.rpartition("/")[2] else file

    return ByFile(config, log)
