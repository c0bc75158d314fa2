"""docs/images/architecture.svg is drawn from the code: it is as old as the code, or the check
fails.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts" / "architecture.py"


def check(script: Path = SCRIPT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(script), "--check"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_the_picture_fits_the_code() -> None:
    done = check()
    assert done.returncode == 0, done.stdout


def test_a_flow_that_the_code_does_not_know_is_found(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    for name in ("hangdoctor", "docs", "pyproject.toml"):
        (tmp_path / name).symlink_to(ROOT / name)
    wrong = SCRIPT.read_text().replace('"report", "Diagnosis"', '"report", "NoSuchThing"')
    script = tmp_path / "scripts" / "architecture.py"
    script.write_text(wrong)
    done = check(script)
    assert done.returncode == 1
    assert "diagnosis never mentions NoSuchThing" in done.stdout
