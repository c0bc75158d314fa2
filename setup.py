"""What pyproject.toml cannot say: the C extensions of the probe, left out where they cannot be built, and the two links
of the package, which a source distribution keeps as links.
"""

import os
import re
import shlex
import shutil
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

LINKED = ("agents", "train")  # hangdoctor/NAME -> ../NAME
MADE = re.compile(r"(^|/)__pycache__/|\.(so|py[co])$|^scripts/lab/state/")
PACKAGES = ("calls", "record", "nccl")
# NCCL's plugin is never unloaded: its file and its handler for forks outlive the last communicator.
OPTIONS = {"calls": ["-O3"], "record": ["-O2"], "nccl": ["-O2", "-fvisibility=hidden"]}
LINKING = {"nccl": ["-Wl,-z,nodelete"]}
NO_BUILD = ("egg_info", "dist_info", "sdist", "clean")
WITHOUT = (
    "hangdoctor works without its C extensions; tracing Python calls then costs ten times more."
)
CURE = "To build them: install a C compiler and Python's headers (on Debian and Ubuntu gcc, libc6-dev, python3-dev)."


def missing() -> str:
    """What this machine lacks to build an extension; "" where it has all."""
    if os.environ.get("HANGDOCTOR_NO_EXTENSIONS", "") not in ("", "0"):
        return "HANGDOCTOR_NO_EXTENSIONS is set"
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    if shutil.which(shlex.split(compiler)[0]) is None:
        return "no C compiler"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "no headers of this Python"
    return ""


class Extensions(build_ext):
    """An extension that does not compile is left out: what the compiler says goes before our sentence."""

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except Exception as error:
            print(f"hangdoctor: {ext.name} was not built ({error}). {WITHOUT}", file=sys.stderr)


class WithLinks(sdist):
    """`hangdoctor/agents` and `hangdoctor/train` as the links that they are, not as second copies."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        inside = tuple(f"hangdoctor/{name}/" for name in LINKED)
        kept = [f for f in files if not f.startswith(inside) and not MADE.search(f)]
        super().make_release_tree(base_dir, kept)
        for name in LINKED:
            Path(base_dir, "hangdoctor", name).symlink_to(Path("..", name))


def extensions() -> list[Extension]:
    """None where they cannot be built: the wheel is then one for every machine, and says so in its name."""
    lacking = missing()
    if lacking:
        if not set(NO_BUILD) & set(sys.argv):
            print(f"hangdoctor: {lacking}. {WITHOUT} {CURE}", file=sys.stderr)
        return []
    return [
        Extension(
            f"hangdoctor.probe.{package}._{package}",
            [f"hangdoctor/probe/{package}/_{package}.c"],
            extra_compile_args=[*OPTIONS[package], "-fno-plt", "-Wall"],
            extra_link_args=LINKING.get(package, []),
            optional=True,
        )
        for package in PACKAGES
    ]


setup(ext_modules=extensions(), cmdclass={"build_ext": Extensions, "sdist": WithLinks})
