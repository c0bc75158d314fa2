"""Whether NCCL can be given the plugin, and where the job has one of its own."""

from __future__ import annotations

import importlib.machinery
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

VARIABLE = "NCCL_PROFILER_PLUGIN"
EVENTS = "HANGDOCTOR_NCCL_EVENTS"
_LONGEST = 254  # bytes: NCCL cuts a longer path
_FOUND_UNTOLD = "libnccl-profiler.so"  # what NCCL loads where no variable names one
_MOST = 64 << 10  # bytes of a configuration file


def built() -> Path | None:
    """The plugin's file; None where there was no compiler, or its path is too long for NCCL."""
    here = Path(__file__).resolve().parent
    files = (here / f"_nccl{end}" for end in importlib.machinery.EXTENSION_SUFFIXES)
    found = next((file for file in files if file.is_file()), None)
    if found is None or len(os.fsencode(found)) > _LONGEST:
        return None
    return found


def plugin_for(environ: Mapping[str, str]) -> Path | None:
    """The file to name in NCCL_PROFILER_PLUGIN; None where the job has a plugin, or wants none."""
    if environ.get(EVENTS) == "off" or has_own(environ):
        return None
    return built()


def has_own(environ: Mapping[str, str]) -> bool:
    """Whether NCCL would load one without us: by the variable, a configuration file, or its name."""
    if VARIABLE in environ or any(_names_one(file) for file in _configurations(environ)):
        return True
    folders = environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    return any(folder and Path(folder, _FOUND_UNTOLD).exists() for folder in folders)


def _configurations(environ: Mapping[str, str]) -> Iterator[Path]:
    """The files that NCCL reads for variables that are not set."""
    told = environ.get("NCCL_CONF_FILE", "")
    home = environ.get("HOME", "")
    if told:
        yield Path(told.replace("~", home, 1) if told.startswith("~") else told)
    elif home:
        yield Path(home, ".nccl.conf")
    yield Path("/etc/nccl.conf")


def _names_one(file: Path) -> bool:
    try:
        if not file.is_file():
            return False
        with file.open("rb") as opened:
            lines = opened.read(_MOST).splitlines()
    except OSError:
        return False
    return any(line.strip().startswith(VARIABLE.encode()) for line in lines)
