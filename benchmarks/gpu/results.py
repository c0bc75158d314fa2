"""gpu.json: every row as soon as it is measured, and whole at any moment."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

SCHEMA = "hangdoctor.gpu/1"
Row = dict[str, Any]


class Results:
    """What has been measured so far; each change is on disk before the next measurement."""

    def __init__(self, path: Path, made: dict[str, Any], earlier: dict[str, Any]) -> None:
        self.path = path
        self.made = made
        self.sections: dict[str, dict[str, Any]] = dict(earlier.get("sections", {}))

    def begin(self, name: str, budget_s: float, units: list[str]) -> None:
        """A section begins; of an earlier run, the rows of other units stay."""
        before = self.sections.get(name, {})
        kept = [row for row in before.get("rows", []) if row["unit"] not in units]
        failed = {unit: why for unit, why in before.get("failed", {}).items() if unit not in units}
        self.sections[name] = {
            "state": "running",
            "budget_s": round(budget_s, 1),
            "rows": kept,
            "failed": failed,
            "seconds": {u: s for u, s in before.get("seconds", {}).items() if u not in units},
            "not_reached": units,
        }
        self.save()

    def row(self, name: str, unit: str, row: Row) -> None:
        """One line of a table."""
        self.sections[name]["rows"].append({"unit": unit, **row})
        self.save()

    def failed(self, name: str, unit: str, why: str) -> None:
        """A unit that has not come to its end."""
        self.sections[name]["failed"][unit] = why
        self._reached(name, unit)

    def ended(self, name: str, unit: str, seconds: float) -> None:
        """A unit that has come to its end."""
        self.sections[name]["seconds"][unit] = round(seconds, 2)
        self._reached(name, unit)

    def _reached(self, name: str, unit: str) -> None:
        left = self.sections[name]["not_reached"]
        self.sections[name]["not_reached"] = [u for u in left if u != unit]
        self.save()

    def end(self, name: str, why: str) -> None:
        """A section ends, with why it is not whole where it is not."""
        section = self.sections[name]
        left, failed = section["not_reached"], section["failed"]
        section["state"] = "partly" if left or failed or why else "whole"
        section["why"] = why
        self.save()

    def skip(self, name: str, why: str, units: list[str]) -> None:
        """A section that is not begun; what an earlier run has of it stays."""
        section = self.sections.setdefault(name, {"rows": [], "failed": {}, "seconds": {}})
        section.update(state="partly" if section["rows"] else "not reached", why=why)
        section["not_reached"] = units
        self.save()

    def as_dict(self) -> dict[str, Any]:
        """What the file holds."""
        return {"schema": SCHEMA, "made": self.made, "sections": self.sections}

    def save(self) -> None:
        """Replace the file: a reader, and what is left after a kill, is the old or the new one."""
        part = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        part.write_text(json.dumps(self.as_dict(), indent=1) + "\n")
        part.replace(self.path)


def read(path: Path) -> dict[str, Any]:
    """The results of an earlier run.

    Raises:
        ValueError: the file is not one.
        OSError: it cannot be read.
    """
    found = json.loads(path.read_text())
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        raise ValueError(f"{path} has not been written by `python -m benchmarks.gpu` ({SCHEMA})")
    return found
