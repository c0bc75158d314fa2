"""The lab cluster of tests/launchers, a second one: its tests end with a broken node."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "launchers"))
