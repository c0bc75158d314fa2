"""The start-up hook under every Python that is here: each behaves, prints and ends as it would
without.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.support.probe_ranks import STARTUP

pytestmark = pytest.mark.timeout(120)


def _pythons() -> list[str]:
    """One interpreter of each version: of pyenv, of the system, and this one."""
    homes = sorted(
        Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/*/bin/python")
    )
    names = [
        "python2",
        "python2.7",
        "pypy3",
        "pypy",
        *(f"python3.{n}{t}" for n in range(6, 16) for t in ("", "t")),
    ]
    found = [str(p) for p in homes] + [
        p for name in names if (p := shutil.which(name, path="/usr/local/bin:/usr/bin"))
    ]
    versions: dict[str, str] = {}
    for path in [sys.executable, *found]:
        told = subprocess.run(
            [path, "-c", "import sys; print(sys.version)"],
            capture_output=True,
            text=True,
            timeout=60,
        )
        if told.returncode == 0:
            versions.setdefault(told.stdout, path)
    return list(versions.values())


PYTHONS = _pythons()
each_python = pytest.mark.parametrize(
    "python", PYTHONS, ids=lambda p: "-".join(Path(p).parts[-3::2])
)

# Everything that a program may see of its own start, without what is meant: the package and its
# finder.
SHOW = """
import sys, os, site
import torch.distributed.distributed_c10d as c10d
print(c10d.STUB, sys.argv, [p for p in sys.path if p != os.environ['OURS']])
print([str(type(f)) for f in sys.meta_path if 'hangdoctor' not in str(type(f))])
try:
    import sitecustomize
    print(sitecustomize.__file__)
except ImportError as error:
    print(error)
print('%s %s' % ('sitecustomize' in sys.modules, getattr(sys, 'theirs', None)))
sys.exit(3)
"""
FLAGS: list[list[str]] = [[], ["-S"], ["-E"], ["-s"], ["-O"], ["-B"], ["-W", "error"]]
FLAGS_3: list[list[str]] = [["-I"], ["-bb"], ["-I", "-S", "-E"], ["-X", "dev"]]


def version(python: str) -> tuple[int, int]:
    code = "import sys; print('%d %d' % sys.version_info[:2])"
    major, minor = subprocess.check_output([python, "-c", code], text=True).split()
    return int(major), int(minor)


def show(
    python: str, flags: list[str], folder: Path, hook: bool, **more: str
) -> tuple[int, str, str]:
    """Exit code and outputs of the program; its torch is a stub of one module, where no real one is
    to be had.
    """
    stub = folder / "stubs" / "torch" / "distributed"
    stub.mkdir(parents=True, exist_ok=True)
    for name in (stub.parent / "__init__.py", stub / "__init__.py"):
        name.touch()
    (stub / "distributed_c10d.py").write_text("STUB = 'stub of torch'\n")
    (folder / "show.py").write_text(
        f"import sys; sys.path.insert(0, {str(folder / 'stubs')!r})\n{SHOW}"
    )
    paths = [str(STARTUP)] * hook + [str(folder / "theirs"), ""]
    env = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder),
        "PYTHONPATH": os.pathsep.join(paths),
        "OURS": str(STARTUP),
        "HANGDOCTOR_DIR": str(folder / "run"),
        "PYTHONDONTWRITEBYTECODE": "1",
        **more,
    }
    ended = subprocess.run(
        [python, *flags, str(folder / "show.py"), "x"],
        env=env,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return ended.returncode, ended.stdout, ended.stderr


def same(python: str, flags: list[str], folder: Path, **more: str) -> tuple[int, str, str]:
    without = show(python, flags, folder, hook=False, **more)
    assert show(python, flags, folder, hook=True, **more) == without
    return without


@each_python
def test_it_starts_as_without(python: str, tmp_path: Path) -> None:
    code, out, err = same(python, [], tmp_path)
    assert (code, err) == (3, "") and "stub of torch" in out
    more = FLAGS_3 if version(python) >= (3, 7) else []
    for flags in FLAGS[1:] + more:
        same(python, flags, tmp_path)


@each_python
def test_what_it_hides_is_imported_as_without(python: str, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "sitecustomize.py").write_text("import sys\nsys.theirs = __name__\n")
    _, out, _ = same(python, [], tmp_path)
    assert "True sitecustomize" in out
    (tmp_path / "theirs" / "sitecustomize.py").write_text("import no_such_module\n")
    same(python, [], tmp_path)
    (tmp_path / "theirs" / "sitecustomize.py").write_text("raise ValueError('theirs')\n")
    same(python, [], tmp_path)


@pytest.mark.parametrize("trouble", ["half copied", "fails late"])
def test_a_probe_that_cannot_be_loaded_leaves_no_trace(trouble: str, tmp_path: Path) -> None:
    package = tmp_path / "package" / "hangdoctor"
    shutil.copytree(
        STARTUP.parents[1], package, ignore=shutil.ignore_patterns("__pycache__", "*.so")
    )
    if trouble == "half copied":
        (package / "probe" / "hook.py").write_text("from .torchnames import")
    else:
        (package / "probe" / "process_probe.py").write_text("raise RuntimeError('no')")
    code = (
        "import sys; kinds = [type(f).__module__ for f in sys.meta_path]\n"
        "print([n for n in [*sys.modules, *kinds] if n.split('.')[0] == 'hangdoctor'])"
    )
    env = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(package / "probe" / "startup"),
        "HANGDOCTOR_TRACE": "{}",
    }
    ended = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60
    )
    assert (ended.stdout, ended.stderr) == ("[]\n", "")


def test_a_finder_of_the_jobs_own_may_bring_the_sitecustomize(tmp_path: Path) -> None:
    # As an editable installation does, through a .pth file that runs before.
    code = (
        "import sys, importlib.machinery as m, importlib.abc as a\n"
        "class Theirs(a.MetaPathFinder, a.Loader):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        return m.ModuleSpec(name, self) if name == 'sitecustomize' else None\n"
        "    def create_module(self, spec): return None\n"
        "    def exec_module(self, module): sys.theirs = 'by finder'\n"
        "sys.meta_path.append(Theirs())\n"
    )
    import venv

    venv.create(tmp_path / "venv", with_pip=False)
    [site] = (tmp_path / "venv").glob("lib/python*/site-packages")
    (site / "finder_of_theirs.py").write_text(code)
    (site / "theirs.pth").write_text("import finder_of_theirs\n")
    python = str(tmp_path / "venv" / "bin" / "python")
    tell = "import sys; print(getattr(sys, 'theirs', '') or sys.modules['sitecustomize'].__file__)"
    plain, hooked = (
        subprocess.run(
            [python, "-c", tell],
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": folder},
            capture_output=True,
            text=True,
            timeout=60,
        )
        for folder in ("", str(STARTUP))
    )
    # Debian's own Python has a sitecustomize, which comes before that of a finder put last.
    debians = Path(sysconfig.get_paths()["stdlib"], "sitecustomize.py").exists()
    assert plain.stdout.endswith("/sitecustomize.py\n" if debians else "by finder\n")
    assert (hooked.stdout, hooked.stderr) == (plain.stdout, "")
