"""What the tests do and read on the live page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support.livejob import LiveJob
from tests.support.stage import wait_until


def text(browser: Any, id: str) -> str:
    """What an element shows; "" where the page does not have it yet."""
    return str(
        browser.execute_script("return document.getElementById(arguments[0])?.innerText ?? ''", id)
    )


def soon(browser: Any, id: str, fits: Callable[[str], bool]) -> str:
    wait_until(
        lambda: fits(text(browser, id)),
        lambda: f"in #{id}, which now says: {text(browser, id)!r}",
        40,
    )
    return text(browser, id)


def complaints(browser: Any) -> list[str]:
    return [e["message"] for e in browser.get_log("browser") if e["level"] in ("SEVERE", "WARNING")]


def log_in(browser: Any, live: LiveJob, token: str) -> None:
    browser.get(live.address + "/login")
    browser.find_element("id", "token").send_keys(token)
    browser.find_element("css selector", "form button").click()


def press(browser: Any, *pressed: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(browser).send_keys(*pressed).perform()
