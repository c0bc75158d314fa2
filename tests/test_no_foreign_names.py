"""No text tells people to install a package from a registry under a name that this project does not
own there.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
OURS = re.compile(r"pip install[^\n#]*?['\" ]hangdoctor\b(?!/)")


def test_no_text_installs_our_name_from_a_registry() -> None:
    folders = ("hangdoctor", "train", "agents", "docs", "examples", "scripts")
    files = [
        p
        for f in folders
        for p in (ROOT / f).rglob("*")
        if p.suffix in (".py", ".md", ".sh", ".sbatch", "")
    ]
    files = [p for p in files if p.is_file()] + [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    assert len(files) > 200
    assert OURS.search("pip install 'hangdoctor[train]'") and not OURS.search(
        "pip install '.[train]'"
    )
    found = [str(p) for p in files if OURS.search(p.read_text(errors="replace"))]
    assert found == []
