"""`hangdoctor run -- CMD`, and the start-up hook that it relies on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.probe_ranks import ROOT, SCRIPTS, STARTUP, environment, free_port

pytestmark = pytest.mark.timeout(120)


def run_verb(*words: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPTS / "run_verb.py"), *words],
        env=env,
        text=True,
        capture_output=True,
        timeout=100,
    )


def plain(tmp_path: Path, **more: str) -> dict[str, str]:
    return environment(tmp_path / "run", PYTHONPATH=str(ROOT), **more)


def test_exit_code_and_arguments_are_the_commands(tmp_path: Path) -> None:
    code = "import sys; print(sys.argv[1:]); sys.exit(7)"
    for lead in (["--"], []):
        ended = run_verb(
            *lead, sys.executable, "-c", code, "--help", "--", "x", env=plain(tmp_path)
        )
        assert (ended.returncode, ended.stdout, ended.stderr) == (7, "['--help', '--', 'x']\n", "")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "no command was given"),
        (("--", "no-such-program"), "command not found: 'no-such-program'"),
        (("train.py",), "hangdoctor run -- python train.py"),
    ],
)
def test_what_cannot_be_run_is_said(tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    ended = run_verb(*words, env=plain(tmp_path))
    assert ended.returncode == 2 and says in ended.stderr


def test_the_environment_that_the_command_gets(tmp_path: Path) -> None:
    show = "import os; print(os.environ.get('PYTHONPATH'), os.environ.get('HANGDOCTOR_DIR'))"
    ended = run_verb("--", sys.executable, "-S", "-c", show, env=plain(tmp_path))
    assert ended.stdout.split() == [f"{STARTUP}{os.pathsep}{ROOT}", str(tmp_path / "run")]
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o700
    ended = run_verb(
        "--", sys.executable, "-S", "-c", show, env=plain(tmp_path / "not", HANGDOCTOR_DISABLE="1")
    )
    assert ended.stdout.split() == [str(ROOT), str(tmp_path / "not" / "run")]
    assert not (tmp_path / "not").exists()


def test_a_command_without_ranks_leaves_no_folder_of_its_own(tmp_path: Path) -> None:
    env = {k: v for k, v in plain(tmp_path).items() if k != "HANGDOCTOR_DIR"}
    show = "import os; print(os.environ['HANGDOCTOR_DIR'])"
    ended = run_verb("--", sys.executable, "-c", show, env=env)
    assert ended.returncode == 0 and "/run-" in ended.stdout
    assert not Path(ended.stdout.strip()).exists()
    named = run_verb("--", sys.executable, "-c", show, env=plain(tmp_path))
    assert Path(named.stdout.strip()).is_dir()  # one that the user named stays


@pytest.mark.torch
def test_the_folder_of_a_job_with_ranks_comes_with_the_first_box(tmp_path: Path) -> None:
    env = {k: v for k, v in plain(tmp_path).items() if k != "HANGDOCTOR_DIR"}
    code = (
        "import os, torch.distributed as dist\n"
        "dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)\n"
        "dist.barrier()\n"
        "print(os.environ['HANGDOCTOR_DIR'], len(os.listdir(os.environ['HANGDOCTOR_DIR'])))\n"
        "dist.destroy_process_group()\n"
    )
    ended = run_verb("--", sys.executable, "-c", code, env=env | {"RANK": "0", "WORLD_SIZE": "1"})
    folder, boxes = ended.stdout.split()
    assert int(boxes) >= 1, ended.stderr
    assert not Path(folder).exists()


@pytest.mark.torch
def test_torchrun_with_a_sitecustomize_of_the_users_own(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nsys.marked_by_the_users_sitecustomize = 'yes'\n"
    )
    env = {**plain(tmp_path), "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    torchrun = [
        "-m",
        "torch.distributed.run",
        "--nproc_per_node",
        "2",
        "--master_port",
        str(free_port()),
    ]
    ended = run_verb(
        "--", sys.executable, *torchrun, str(SCRIPTS / "one_reduce.py"), "--flag", env=env
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == [
        "[2.0, 2.0] 2 2 ['--flag']",
        str(ROOT / "hangdoctor" / "__init__.py"),
        f"yes {tmp_path / 'sitecustomize.py'}",
        "False True False",
    ]
    assert "hangdoctor" not in ended.stderr and "WorkerServer" not in ended.stderr
    assert list((tmp_path / "run").iterdir()) == []


def test_an_error_in_the_users_sitecustomize_is_reported_as_python_does(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("raise ValueError('theirs')\n")
    env = environment(tmp_path / "run")
    code = "import hangdoctor.probe as p; print(p._installed)"
    command = [sys.executable, "-c", code]
    env["PYTHONPATH"] = os.pathsep.join([str(STARTUP), str(tmp_path), str(ROOT)])
    hooked = subprocess.run(command, env=env, text=True, capture_output=True, timeout=60)
    env["PYTHONPATH"] = os.pathsep.join([str(tmp_path), str(ROOT)])
    unhooked = subprocess.run(command, env=env, text=True, capture_output=True, timeout=60)
    assert (hooked.stdout, unhooked.stdout) == ("True\n", "False\n")
    assert "ValueError: theirs" in unhooked.stderr
    assert hooked.stderr == unhooked.stderr


def test_a_python_without_torch_starts_lightly_and_leaves_nothing(tmp_path: Path) -> None:
    code = (
        "import sys, hangdoctor.probe as p\n"
        "heavy = {'torch', 'msgspec', 'click', 'mmap', 'typing', 'threading', 'multiprocessing'}\n"
        "loaded = heavy & set(sys.modules)\n"
        "print(p.install(), sorted(loaded), [type(f).__name__ for f in sys.meta_path].count('_Finder'))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(tmp_path / "run"),
        text=True,
        capture_output=True,
        timeout=60,
    )
    assert (ended.stdout, ended.stderr) == ("True [] 1\n", "")
    assert not (tmp_path / "run").exists()
