"""One live job, one browser and one tmux for the tests of this folder."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.livejob import LiveJob

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")


@pytest.fixture(scope="package")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveJob]:
    """Four ranks that train, an agent, a collector with its page. Whoever stops a rank lets it go
    on again.
    """
    with LiveJob(tmp_path_factory.mktemp("live")) as job:
        yield job


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("needs Debian's packages chromium and chromium-driver")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--window-size=1280,900",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


class Tmux:
    """A tmux server of this test: one window of 80 columns with a shell in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "tmux"
        # -D: it stays a child of the test, which so can end it whatever happens.
        self.server = subprocess.Popen(
            ["tmux", "-f", "/dev/null", "-S", str(self.socket), "-D"], cwd=folder
        )

    def __call__(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", str(self.socket), *words],
            capture_output=True,
            text=True,
            cwd=self.folder,
            timeout=20,
        )
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    def screen(self) -> str:
        return self("capture-pane", "-p", "-t", "t")

    def press(self, *keys: str) -> None:
        self("send-keys", "-t", "t", *keys)

    def plain(self) -> bool:
        """Whether keys go to the shell; a message of tmux's own start may lie above it."""
        if self.flag("pane_in_mode") == "0":
            return True
        self("send-keys", "-t", "t", "-X", "cancel")
        return False

    def flag(self, name: str) -> str:
        return self("display-message", "-p", "-t", "t", f"#{{{name}}}").strip()


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Tmux]:
    if shutil.which("tmux") is None:
        pytest.skip("needs tmux")
    from tests.support.stage import wait_until

    found = Tmux(tmp_path)
    try:
        wait_until(found.socket.exists, "tmux listens")
        found(
            "new-session",
            "-d",
            "-s",
            "t",
            "-x",
            "80",
            "-y",
            "24",
            "env PS1='ready> ' bash --norc --noprofile",
        )
        wait_until(lambda: "ready>" in found.screen() and found.plain(), "a shell")
        yield found
    finally:
        found.server.terminate()
        found.server.wait(timeout=20)
