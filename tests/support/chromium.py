"""A headless Chromium under selenium, with what the tests ask of it: console, requests, media,
size, paper.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any


def missing() -> str:
    """What a browser test lacks here, "" where nothing."""
    lacks = [p for p in ("chromium", "chromedriver") if shutil.which(p) is None]
    if importlib.util.find_spec("selenium") is None:
        lacks.append("selenium")
    return f"{', '.join(lacks)} not found" if lacks else ""


class Browser:
    """A context manager; `driver` is selenium's."""

    def __enter__(self) -> Browser:
        from selenium import webdriver
        from selenium.webdriver.chrome.options import Options
        from selenium.webdriver.chrome.service import Service

        options = Options()
        options.binary_location = str(shutil.which("chromium"))
        for flag in (
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
        ):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(
            options=options, service=Service(str(shutil.which("chromedriver")))
        )
        self.driver.set_page_load_timeout(60)
        self.driver.set_script_timeout(30)
        return self

    def __exit__(self, *_: object) -> None:
        self.driver.quit()

    def open(self, page: Path, width: int = 1280, height: int = 900, dark: bool = False) -> Browser:
        """Load a file afresh, with nothing left of the pages before it."""
        self.cdp(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        media = {
            "prefers-color-scheme": "dark" if dark else "light",
            "prefers-reduced-motion": "reduce",
        }  # scrolls at once
        self.cdp(
            "Emulation.setEmulatedMedia",
            features=[{"name": name, "value": value} for name, value in media.items()],
        )
        self.driver.get("about:blank")
        self.console(), self.requests()
        self.driver.get(page.as_uri())
        return self

    def cdp(self, command: str, **arguments: Any) -> Any:
        return self.driver.execute_cdp_cmd(command, arguments)

    def js(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def console(self) -> list[str]:
        """What the console said since the last time."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Addresses asked for since the last time."""
        messages = [
            json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")
        ]
        return [
            m["params"]["request"]["url"]
            for m in messages
            if m["method"] == "Network.requestWillBeSent"
        ]

    def find(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def all(self, selector: str) -> list[Any]:
        return self.driver.find_elements("css selector", selector)

    def text(self, selector: str) -> str:
        return str(
            self.js("return document.querySelector(arguments[0])?.textContent ?? ''", selector)
        )

    def keys(self, *keys: str) -> None:
        """To whatever has the focus, as a person types."""
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def paper(self) -> bytes:
        """The page as PDF."""
        return base64.b64decode(self.cdp("Page.printToPDF", printBackground=False)["data"])

    def picture(self, height: int = 0) -> bytes:
        """The page as PNG, from its top: whole, or so many pixels."""
        size = self.cdp("Page.getLayoutMetrics")["cssContentSize"]
        clip = {
            "x": 0,
            "y": 0,
            "width": size["width"],
            "height": min(size["height"], height or 16_000),
            "scale": 1,
        }
        return base64.b64decode(
            self.cdp("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)[
                "data"
            ]
        )
