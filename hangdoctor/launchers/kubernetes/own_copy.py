"""This hangdoctor as one archive that runs in any pod of the same kind of processor: its Python, the
C library and loader that this Python was linked with, its modules and py-spy.

Nothing of the pod's image is used but a shell and tar, so it does not matter whether there is a
Python, which version, or which C library. The archive is in memory (memfd) and goes with this
process.
"""

from __future__ import annotations

import importlib.util
import io
import marshal
import os
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from ...errors import LauncherError
from ...readers.pyspy import find_pyspy

# What is run in a pod, imported once to see which libraries it needs.
_RUN_THERE = ("cli.agent", "agents.oneshot", "agents.node_agent", "preflight.on_nodes")
_PACKAGES = ("click", "msgspec", "psutil", "zmq", "typing_extensions")
_BESIDE = ("pyzmq.libs",)  # shared libraries of a wheel, in a folder beside its package
_LIST = """
import importlib, os, sys
for name in sys.argv[1:]:
    importlib.import_module("hangdoctor." + name)
os.write(1, open("/proc/self/maps", "rb").read())
"""
# Parts of the standard library, and of this project, that nothing there imports.
_LEFT_OUT = frozenset(
    "test tests idlelib tkinter turtledemo lib2to3 ensurepip pydoc_data distutils unittest sqlite3 "
    "curses dbm xmlrpc wsgiref venv site-packages dist-packages __pycache__ web train report timeline".split()
)
_LEFT_OUT_LIBRARIES = ("libssl", "libcrypto", "_ssl", "_hashlib")
_LIST_S = 60.0
# The header of a .pyc that no source is compared with: https://peps.python.org/pep-0552/
_UNCHECKED = (1).to_bytes(4, "little") + bytes(8)
# Compiled code without its source names the source that it was made of; the probe tells its own errors
# by the folder that it lies in. As the import system itself does where there is a source.
_SITE = """
import _imp
from importlib.machinery import SourcelessFileLoader
get = SourcelessFileLoader.get_code
def get_code(self, name):
    code = get(self, name)
    _imp._fix_co_filename(code, self.path[:-1])
    return code
SourcelessFileLoader.get_code = get_code
"""
_START = """#!/bin/sh
d=${0%/bin/python}
exec env -u LD_PRELOAD -u LD_LIBRARY_PATH -u PYTHONPATH PYTHONHOME="$d" PYTHONDONTWRITEBYTECODE=1 \\
  PYTHONNOUSERSITE=1 HANGDOCTOR_COPY=1 HANGDOCTOR_PYTHON="$0" "$d/so/LOADER" --library-path "$d/so" "$d/bin/python.real" "$@"
"""


@cache
def archive() -> tuple[str, int]:
    """(path to read it from as long as this process lives, bytes).

    Raises:
        LauncherError: it cannot be made here.
    """
    try:
        data = _pack()
    except (OSError, subprocess.SubprocessError, tarfile.TarError) as error:
        raise LauncherError(
            f"no copy of hangdoctor could be made for the pods: {error}",
            "Install hangdoctor into the image of the pods.",
        ) from error
    memory = os.memfd_create("hangdoctor-copy")
    with os.fdopen(os.dup(memory), "wb") as file:
        file.write(data)
    return f"/proc/{os.getpid()}/fd/{memory}", len(data)


def _pack() -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w:gz", compresslevel=2) as tar:
        loader = _add_libraries(tar)
        _add_bytes(tar, "bin/python", _START.replace("LOADER", loader).encode())
        tar.add(Path(sys.executable).resolve(), "bin/python.real")
        pyspy = find_pyspy()
        if pyspy is not None:
            tar.add(Path(pyspy).resolve(), "bin/py-spy")
        library = Path(sysconfig.get_path("stdlib")).name
        _add_bytes(tar, f"lib/{library}/sitecustomize.py", _SITE.encode())
        for folder, name in _folders():
            _add_modules(tar, folder, name)
    return whole.getvalue()


def _folders() -> Iterator[tuple[Path, str]]:
    """(folder here, its name in the archive)."""
    home = Path(sysconfig.get_path("stdlib"))
    base = f"lib/{home.name}"
    yield home, base
    yield Path(__file__).parents[2], f"{base}/hangdoctor"
    for package in _PACKAGES:
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            continue
        origin = Path(spec.origin)
        if origin.name == "__init__.py":
            yield origin.parent, f"{base}/{package}"
        else:
            yield origin, f"{base}/{origin.name}"
        for beside in _BESIDE:
            libraries = origin.parents[1] / beside
            if package == "zmq" and libraries.is_dir():
                yield libraries, f"{base}/{beside}"


def _add_libraries(tar: tarfile.TarFile) -> str:
    """The shared libraries that this Python uses, under all of their names; the loader's name."""
    told = subprocess.run(
        [sys.executable, "-c", _LIST, *_RUN_THERE],
        capture_output=True,
        text=True,
        timeout=_LIST_S,
        check=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])},
    )
    loader = ""
    mapped = {line.split(maxsplit=5)[-1] for line in told.stdout.splitlines()}
    for path in sorted(Path(name) for name in mapped if ".so" in name or "/ld-" in name):
        if _unwanted(path) or "python" in str(path.parent):
            continue  # the modules are in their own folders
        if path.name.startswith("ld-"):
            loader = path.name
        tar.add(path, f"so/{path.name}")
        for name in _links_to(path):
            _add_link(tar, f"so/{name}", path.name)
    if not loader:
        raise OSError("this Python is linked statically")
    return loader


def _links_to(library: Path) -> list[str]:
    """The other names of a library in its folder: programs ask for one of them."""
    return [
        entry.name
        for entry in os.scandir(library.parent)
        if entry.is_symlink()
        and ".so." in entry.name
        and os.path.realpath(entry.path) == str(library)
    ]


def _add_modules(tar: tarfile.TarFile, folder: Path, name: str) -> None:
    """A folder of modules, or one module, as compiled code; extensions and data as they are."""
    if folder.is_file():
        _add_file(tar, folder, name)
        return
    for entry in sorted(folder.iterdir()):
        if (
            entry.name in (*_LEFT_OUT, "sitecustomize.py")
            or entry.name.startswith("config-")
            or _unwanted(entry)
        ):
            continue
        _add_modules(tar, entry, f"{name}/{entry.name}")


def _add_file(tar: tarfile.TarFile, file: Path, name: str) -> None:
    if file.suffix == ".py":
        compiled = _compiled(file)
        if compiled:
            _add_bytes(tar, f"{name}c", compiled)
    elif ".so" in file.name or file.suffix == ".toml":
        tar.add(file.resolve(), name)


def _compiled(source: Path) -> bytes:
    """The code of a module, from its cache where that is of this source; b"" where it has an error."""
    cached = Path(importlib.util.cache_from_source(str(source)))
    try:
        data = cached.read_bytes()
        if int.from_bytes(data[8:12], "little") == int(source.stat().st_mtime) & 0xFFFFFFFF:
            return data
    except OSError:
        pass  # never imported yet, or in a folder that cannot be written to
    try:
        code = compile(source.read_bytes(), str(source), "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError):
        return b""
    return importlib.util.MAGIC_NUMBER + _UNCHECKED + marshal.dumps(code)


def _add_bytes(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(data), 0o755
    tar.addfile(member, io.BytesIO(data))


def _add_link(tar: tarfile.TarFile, name: str, target: str) -> None:
    link = tarfile.TarInfo(name)
    link.type, link.linkname = tarfile.SYMTYPE, target
    tar.addfile(link)


def _unwanted(path: Path) -> bool:
    return path.name.startswith(_LEFT_OUT_LIBRARIES)
