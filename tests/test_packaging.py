"""What goes on the shelf: a source distribution and wheels, built and installed as a user would, with and without a C
compiler.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from hangdoctor._version import __version__

ROOT = Path(__file__).parents[1]
LEFT_OUT = (".*", "build", "dist", "*.egg-info", "*.so", "state", "__pycache__")
FRIGHTENING = re.compile(r"\b(error|failed|failure|traceback|warning|deprecat\w+)\b", re.IGNORECASE)
NEEDED = (
    "MANIFEST.in README.md LICENSE SECURITY.md CHANGELOG.md Makefile pyproject.toml setup.py scripts/setup "
    "scripts/run-tests agents/node_ranks.py train/configs/cpu_2x2x2.yaml hangdoctor/probe/calls/_calls.c "
    "hangdoctor/stacks/place_rules.toml tests/conftest.py tests/data/pyspy/text.out docs/voice.md "
    "benchmarks/mutation.py examples/three_d.py"
).split()


def run(*words: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, env=env, cwd="/")
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {name: value for name, value in kept.items() if name != "CC"} | more


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `python -m build` of a copy of this checkout, and what the build printed."""
    folder = tmp_path_factory.mktemp("shelf")
    source = folder / "source"  # a copy: a build leaves its folders beside what it builds
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
    words = (sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(source))
    done = run(*words, env=environment())
    (folder / "printed").write_text(done.stdout + done.stderr)
    return folder


@pytest.fixture(scope="module")
def requirements(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What this environment has installed, without hangdoctor."""
    folder = tmp_path_factory.mktemp("requirements")
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if "hangdoctor" not in path.name:
            (folder / path.name).symlink_to(path)
    return folder


def sdist_of(shelf: Path) -> Path:
    return shelf / f"hangdoctor-{__version__}.tar.gz"


def wheel_of(folder: Path) -> Path:
    [wheel] = folder.glob(f"hangdoctor-{__version__}-*.whl")
    return wheel


def has_compiler() -> bool:
    """Whether this machine can build an extension for this Python."""
    header = Path(sysconfig.get_path("include")) / "Python.h"
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    return header.exists() and shutil.which(compiler) is not None


def test_a_source_distribution_has_what_a_test_run_needs_and_nothing_of_the_machine(
    shelf: Path,
) -> None:
    top = f"hangdoctor-{__version__}/"
    with tarfile.open(sdist_of(shelf)) as file:
        members = {member.name.removeprefix(top): member for member in file.getmembers()}
    assert set(NEEDED) <= set(members), set(NEEDED) - set(members)
    links = {name: m.linkname for name, m in members.items() if m.issym()}
    assert links == {"hangdoctor/agents": "../agents", "hangdoctor/train": "../train"}
    made = re.compile(r"PKG-INFO|setup\.cfg|hangdoctor\.egg-info/.*")
    files = {name for name, m in members.items() if m.isfile() and not made.fullmatch(name)}
    assert not [n for n in files if n.endswith((".so", ".pyc", ".key")) or "/." in f"/{n}"]
    if (ROOT / ".git").exists() and shutil.which("git"):
        told = run("git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard")
        ours = {name for name in told.stdout.split("\n") if (ROOT / name).is_file()}
        assert files <= ours, files - ours
        missing = {name for name in ours - files if "/." not in f"/{name}"}
        assert not missing, missing


def test_a_wheel_puts_one_package_into_site_packages(shelf: Path) -> None:
    with zipfile.ZipFile(wheel_of(shelf)) as file:
        names = file.namelist()
    info = f"hangdoctor-{__version__}.dist-info"
    assert {name.split("/")[0] for name in names} == {"hangdoctor", info}
    assert {"hangdoctor/agents/node_ranks.py", "hangdoctor/train/configs/cpu_2x2x2.yaml"} <= set(
        names
    )
    assert any(name.startswith(f"{info}/") and name.endswith("LICENSE") for name in names)
    extensions = [name for name in names if name.endswith(".so")]
    assert len(extensions) == (3 if has_compiler() else 0)
    assert ("none-any" in wheel_of(shelf).name) == (not extensions)
    assert not FRIGHTENING.findall((shelf / "printed").read_text())


ALL_THAT_IS_INSTALLED = """
import sys; sys.modules['torch'] = None  # an import of torch would now fail
import hangdoctor, hangdoctor.stacks.place_rules as p
assert hangdoctor.__file__.startswith(sys.argv[1]), hangdoctor.__file__
assert len(p.rules()) > 10
import hangdoctor.cli.dump, hangdoctor.cli.diagnose, hangdoctor.launchers.local, hangdoctor.agents.oneshot
from hangdoctor.report.html import page  # its templates, style and script are package data
assert page._static(page._STYLES) and page._static(page._SCRIPTS)
assert page.environment().get_template('page.html.j2') and page.environment().get_template('rest.html.j2')
import hangdoctor.cli.collect, hangdoctor.cli.sidecar, hangdoctor.cli.incidents, hangdoctor.cli.top
import hangdoctor.agents.node_agent, hangdoctor.cli.trace.control, hangdoctor.cli.trace.tail
import hangdoctor.web.pages as w
assert {'index.html', 'login.html', 'page.js', 'live.css', 'icon.svg'} <= set(w.load_files())
"""


def test_a_wheel_holds_everything_and_runs_without_torch(shelf: Path, tmp_path: Path) -> None:
    target = tmp_path / "site"
    shutil.unpack_archive(wheel_of(shelf), target, "zip")
    for name in ("agents", "train"):  # as other distributions have them
        (target / name).mkdir()
        (target / name / "__init__.py").write_text("raise ImportError('the other package')\n")
    env = environment(PYTHONPATH=str(target))
    run(sys.executable, "-c", ALL_THAT_IS_INSTALLED, str(target), env=env)


def hidden(folder: Path) -> dict[str, str]:
    return environment(PATH=str(folder), CC="cc")


def broken(folder: Path) -> dict[str, str]:
    compiler = folder / "broken-cc"
    compiler.write_text("#!/bin/sh\nexit 1\n")
    compiler.chmod(0o755)
    return environment(CC=str(compiler))


WAYS = {"wheel": None, "sdist": None, "sdist, no compiler": hidden, "sdist, broken": broken}


@pytest.mark.parametrize("way", WAYS)
def test_each_installs_into_an_empty_environment_and_runs(
    way: str, shelf: Path, requirements: Path, tmp_path: Path
) -> None:
    venv = tmp_path / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", str(venv))
    python = venv / "bin" / "python"
    [site] = venv.glob("lib/python*/site-packages")
    (site / "requirements.pth").write_text(f"{requirements}\n")
    what = wheel_of(shelf) if way == "wheel" else sdist_of(shelf)
    prepare = WAYS[way]
    env = prepare(tmp_path) if prepare is not None else environment()
    install = ("install", "--no-deps", "--no-build-isolation", "--no-cache-dir", "--no-index")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python))
    done = run(*pip, *install, str(what), env=env)
    assert not FRIGHTENING.findall(done.stdout + done.stderr), done.stdout + done.stderr
    program = str(venv / "bin" / "hangdoctor")
    assert (
        run(program, "--version", env=environment()).stdout
        == f"hangdoctor, version {__version__}\n"
    )
    assert "8-rank" in run(program, "demo", "--help", env=environment()).stdout
    found = run(
        str(python),
        "-c",
        "import hangdoctor; print(hangdoctor.__file__)\n"
        "from hangdoctor.probe.calls import hooks; from hangdoctor.probe import record_core\n"
        "print(hooks.extension() is not None, record_core.native is not None)",
        env=environment(),
    ).stdout.split()
    built = str(has_compiler() and prepare is None)
    assert found == [str(site / "hangdoctor" / "__init__.py"), built, built]


def test_a_build_without_compiler_says_so_once_and_its_wheel_fits_every_machine(
    shelf: Path, tmp_path: Path
) -> None:
    shutil.unpack_archive(sdist_of(shelf), tmp_path)
    source = tmp_path / f"hangdoctor-{__version__}"
    env = hidden(tmp_path)
    words = ("build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(source))
    done = run(sys.executable, "-m", *words, env=env)
    printed = done.stdout + done.stderr
    assert printed.count("hangdoctor: no C compiler. hangdoctor works without") == 1
    assert not FRIGHTENING.findall(printed), printed
    assert wheel_of(tmp_path).name.endswith("-py3-none-any.whl")
