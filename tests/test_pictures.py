"""Every picture of the documents is made by a script, and shown in one of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
_BY_ARCHITECTURE = {"architecture.svg"}  # scripts/architecture.py, which has its own test


def made() -> set[str]:
    """Files that scripts/screenshots makes."""
    done = subprocess.run(
        [ROOT / "scripts" / "screenshots", "--list"],
        env=os.environ | {"PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_every_picture_is_made_by_a_script() -> None:
    there = {path.name for path in IMAGES.iterdir()}
    assert there == made() | _BY_ARCHITECTURE


def test_every_picture_is_shown() -> None:
    texts = [path.read_text() for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))]
    shown = set(re.findall(r"!\[[^\]]+\]\((?:docs/)?images/([^)]+)\)", "\n".join(texts)))
    assert shown == {path.name for path in IMAGES.iterdir()}
