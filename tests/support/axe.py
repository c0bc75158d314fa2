"""axe-core in the browser of the tests: what it finds wrong on the page that is open."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

_PACKAGE = "axe_playwright_python"  # installed by scripts/setup-web for the script in it
_RUN = """
const done = arguments[arguments.length - 1];
const where = (node) => node.target.join(' ') + ': ' + node.failureSummary;
axe.run(document, {resultTypes: ['violations']}).then(
  (found) => done(found.violations.map((one) => [one.id, one.help, one.nodes.map(where)])),
  (error) => done([['axe', String(error), []]]));
"""


def script() -> Path | None:
    """axe.min.js where it is installed; its package is not imported, since that needs Playwright."""
    found = importlib.util.find_spec(_PACKAGE)
    if found is None or found.origin is None:
        return None
    path = Path(found.origin).with_name("axe.min.js")
    return path if path.is_file() else None


def findings(browser: Any) -> list[str]:
    """What axe finds on the page that is open; [] where nothing."""
    path = script()
    assert path is not None, "run scripts/setup-web"
    # Through the protocol: the page's own policy allows only scripts of its server.
    browser.execute_cdp_cmd("Runtime.evaluate", {"expression": path.read_text(), "silent": True})
    told = browser.execute_async_script(_RUN)
    return [f"{rule}: {wrong}: {'; '.join(nodes)}" for rule, wrong, nodes in told]
