"""Files that a launcher reads beside its command line: lists of hosts, accelerate's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..errors import BadInput
from ..files import read_regular
from ..text.late import late
from ..text.plain import readable
from ..text.ranges import MAX_RANKS, number_in

MOST_NODES = 65_536
_MOST_BYTES = 1 << 20
# One setting of a flat file: YAML's ``num_machines: 2``, or JSON's ``"num_machines": 2,``.
_SETTING = late(r"""\s*["']?([a-z_]{1,40})["']?\s*:\s*["']?([^"'#,]*)["']?\s*(?:[,#].*)?""")
_OF_ACCELERATE = (
    *("num_machines", "num_processes", "machine_rank"),
    *("main_process_ip", "main_process_port"),
)


def count_in(text: str, most: int = MAX_RANKS) -> int:
    """A number above 0, else 0."""
    number = number_in(text)
    return number if 0 < number <= most else 0


def _lines(path: Path) -> list[str]:
    """Of a regular file; [] where there is none or it is no text of a sensible size."""
    try:
        return read_regular(path, _MOST_BYTES).decode(errors="replace").splitlines()
    except (OSError, BadInput):
        return []


def host_slots(path: str) -> dict[str, int]:
    """{host: slots} of a host file: ``n1 slots=8`` of Open MPI and DeepSpeed, ``n1:8`` of Hydra."""
    found: dict[str, int] = {}
    for line in _lines(Path(path))[:MOST_NODES] if path else []:
        words = line.partition("#")[0].split()
        if not words:
            continue
        name, _, many = words[0].partition(":")
        told = next((w.partition("=")[2] for w in words[1:] if w.startswith("slots=")), many)
        name = readable(name)
        found[name] = found.get(name, 0) + (count_in(told) or 1)
    return found


def accelerate_config(named: str, environ: Mapping[str, str]) -> dict[str, str]:
    """{flag without its dashes: value} of accelerate's configuration file: the one that is `named`,
    else the user's own, as `accelerate config` writes it.

    `environ` is the launcher's: its home, its working folder.
    """
    found: dict[str, str] = {}
    path = Path(environ.get("PWD", "")) / named if named else _own_config(environ)
    for line in _lines(path):
        setting = _SETTING.fullmatch(line)
        if setting is not None and setting[1] in _OF_ACCELERATE:
            value = setting[2].strip()
            if value not in ("", "null", "~"):
                found[setting[1].replace("_", "-")] = readable(value)
    return found


def _own_config(environ: Mapping[str, str]) -> Path:
    """accelerate's default_config.yaml, or .json where there is only that, by its
    `commands/config/config_args.py`.
    """
    cache = environ.get("XDG_CACHE_HOME") or str(Path(environ.get("HOME", "/")) / ".cache")
    folder = Path(environ.get("HF_HOME") or str(Path(cache) / "huggingface")) / "accelerate"
    yaml, json = folder / "default_config.yaml", folder / "default_config.json"
    return json if json.is_file() and not yaml.is_file() else yaml
