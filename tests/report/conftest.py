"""One Chromium for all tests of pages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.chromium import Browser, missing


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    why = missing()
    if why:
        pytest.skip(f"no browser test: {why} (scripts/setup-web installs it as root on Debian)")
    with Browser() as started:
        yield started
