"""Install pip into the running environment without ensurepip: `python scripts/get_pip.py`.

Takes the newest wheel of pip from the package index that pip itself would use (PIP_INDEX_URL or
pypi.org), checks it against the hash in the index's answer, and lets the wheel install itself.
Protocol: https://packaging.python.org/en/latest/specifications/simple-repository-api/
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from urllib.parse import urljoin

INDEX = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/")
JSON = "application/vnd.pypi.simple.v1+json"
TIMEOUT_S = 60


def fetch(address: str, accept: str = "*/*") -> bytes:
    """What the address holds. Raises OSError where it cannot be had."""
    request = urllib.request.Request(address, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        content: bytes = answer.read()
    return content


def newest_wheel() -> tuple[str, str, str]:
    """Name, address and SHA-256 of the newest final release of pip."""
    page = f"{INDEX}/pip/"
    wheels = []
    for file in json.loads(fetch(page, JSON))["files"]:
        name = file["filename"]
        version = name.split("-")[1] if name.endswith("-py3-none-any.whl") else ""
        # 26.1b2 and the like are no final releases; a yanked one is to be avoided.
        if not version.replace(".", "").isdigit() or file.get("yanked"):
            continue
        number = tuple(int(part) for part in version.split("."))
        wheels.append((number, name, urljoin(page, file["url"]), file["hashes"]["sha256"]))
    _, name, address, sha256 = max(wheels)
    return name, address, sha256


def main() -> int:
    """Returns pip's exit code; 1 where the wheel could not be had."""
    try:
        name, address, sha256 = newest_wheel()
        content = fetch(address)
    except (OSError, ValueError, KeyError) as error:
        print(f"could not get pip from {INDEX}: {error}", file=sys.stderr)
        return 1
    if hashlib.sha256(content).hexdigest() != sha256:
        print(f"{address} is damaged: its hash is not the one of the index", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        wheel = Path(folder, name)
        wheel.write_bytes(content)
        install = [sys.executable, str(wheel / "pip"), "install", "-q", "--no-index", str(wheel)]
        return subprocess.run(install, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
