"""What a command gets from `hangdoctor run`: all that it would have had without, byte for byte, our
two variables, and NCCL's plugin where it has none.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hangdoctor.probe.nccl import plugin
from tests.support.probe_ranks import ROOT, SCRIPTS, STARTUP, environment

pytestmark = pytest.mark.timeout(120)

VERB = [sys.executable, str(SCRIPTS / "run_verb.py")]
OURS = os.fsencode(STARTUP)
BUILT = plugin.built()
# NCCL's plugin, which a machine without a compiler does not have.
NCCL = {os.fsencode(plugin.VARIABLE): os.fsencode(BUILT)} if BUILT is not None else {}


def bare(tmp_path: Path, **more: str) -> dict[bytes, bytes]:
    """An environment that says little; `run` itself is found by the script's own path."""
    told = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "HANGDOCTOR_DIR": str(tmp_path / "run"),
        **more,
    }
    return {os.fsencode(name): os.fsencode(value) for name, value in told.items()}


def through(
    *words: str, env: dict[bytes, bytes], cwd: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*VERB, "--", *words], env=env, cwd=cwd, capture_output=True, timeout=60)


def variables(output: bytes) -> dict[bytes, bytes]:
    return dict(entry.split(b"=", 1) for entry in output.split(b"\0") if entry)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, OURS),
        (b"", OURS),  # for Python the same as none
        (b":/opt/megatron", OURS + b"::/opt/megatron"),
        (b"/opt/megatron:", OURS + b":/opt/megatron:"),
        (b"/a::/b//c/:/a", OURS + b":/a::/b//c/:/a"),
        (b"/caf\xe9:.", OURS + b":/caf\xe9:."),
        (OURS + b"::/a", OURS + b"::/a"),  # a run within a run
    ],
)
def test_the_python_path_keeps_every_byte(
    tmp_path: Path, before: bytes | None, after: bytes
) -> None:
    env = bare(tmp_path) | ({} if before is None else {b"PYTHONPATH": before})
    ended = through("env", "-0", env=env)
    assert variables(ended.stdout)[b"PYTHONPATH"] == after, ended.stderr


def test_an_empty_entry_still_means_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "megatron_helper.py").write_text("print('found')\n")
    (tmp_path / "job.py").write_text("import megatron_helper\n")
    env = bare(tmp_path, PYTHONPATH=":/opt/megatron")
    ended = through(sys.executable, str(tmp_path / "job.py"), env=env, cwd=tmp_path / "here")
    assert (ended.stdout, ended.stderr) == (b"found\n", b"")


@pytest.mark.parametrize(
    "locale", [{}, {"LANG": "C"}, {"LC_ALL": "C.UTF-8"}, {"LC_CTYPE": "POSIX"}], ids=str
)
def test_no_variable_of_the_commands_is_changed_and_none_is_added(
    tmp_path: Path, locale: dict[str, str]
) -> None:
    odd = {
        b"EMPTY": b"",
        b"BYTES": b"\xff\xfe\x01",
        b"LINES": b"a\nb=c\n",
        b"BASH_FUNC_f%%": b"() { :;\n}",
    }
    env = (
        bare(tmp_path, PYTHONPATH="/a", **locale)
        | odd
        | {b"OMPI_MCA_mca_base_env_list": b"FOO;BAR=1"}
    )
    ended = through("env", "-0", env=env)
    assert variables(ended.stdout) == env | {b"PYTHONPATH": OURS + b":/a"} | NCCL, ended.stderr


@pytest.mark.skipif(BUILT is None, reason="NCCL's plugin was not built")
def test_nccl_is_given_the_plugin_where_the_job_has_none(tmp_path: Path) -> None:
    [(name, value)] = NCCL.items()
    ended = through("env", "-0", env=bare(tmp_path))
    assert variables(ended.stdout)[name] == value, ended.stderr
    again = through(*VERB, "--", "env", "-0", env=bare(tmp_path))
    assert variables(again.stdout)[name] == value, again.stderr


@pytest.mark.parametrize("own", ["", "none", "inspector", "/opt/libnccl-profiler-mine.so"])
def test_a_plugin_of_the_jobs_own_stays(tmp_path: Path, own: str) -> None:
    ended = through("env", "-0", env=bare(tmp_path, NCCL_PROFILER_PLUGIN=own))
    assert variables(ended.stdout)[b"NCCL_PROFILER_PLUGIN"] == os.fsencode(own), ended.stderr


def test_one_that_nccl_would_find_without_the_variable_is_not_hidden(tmp_path: Path) -> None:
    def given(**more: str) -> bool:
        ended = through("env", "-0", env=bare(tmp_path, **more))
        assert ended.returncode == 0, ended.stderr
        return b"NCCL_PROFILER_PLUGIN" in variables(ended.stdout)

    assert given(LD_LIBRARY_PATH=f"/nowhere::{tmp_path}") == bool(NCCL)
    (tmp_path / "libnccl-profiler.so").touch()
    assert not given(LD_LIBRARY_PATH=f"/nowhere::{tmp_path}")
    (tmp_path / "nccl.conf").write_text("NCCL_DEBUG=WARN\n NCCL_PROFILER_PLUGIN=mine\n")
    assert not given(NCCL_CONF_FILE=str(tmp_path / "nccl.conf"))
    (tmp_path / "nccl.conf").write_text("NCCL_DEBUG=WARN\n")
    assert given(NCCL_CONF_FILE=str(tmp_path / "nccl.conf")) == bool(NCCL)
    (tmp_path / ".nccl.conf").write_text("NCCL_PROFILER_PLUGIN=mine\n")
    assert not given(), "in the home folder"
    (tmp_path / ".nccl.conf").unlink()
    assert not given(HANGDOCTOR_NCCL_EVENTS="off")
    assert not given(HANGDOCTOR_DISABLE="1")


def test_what_was_not_built_is_not_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "__file__", str(tmp_path / "plugin.py"))
    assert plugin.plugin_for({}) is None
    name = f"_nccl{plugin.importlib.machinery.EXTENSION_SUFFIXES[0]}"
    (tmp_path / name).touch()
    assert plugin.plugin_for({}) == tmp_path.resolve() / name
    deep = tmp_path / ("d" * 200) / ("e" * 100)
    deep.mkdir(parents=True)
    (deep / name).touch()
    monkeypatch.setattr(plugin, "__file__", str(deep / "plugin.py"))
    assert plugin.plugin_for({}) is None, "NCCL cuts a path of this length"


def test_a_relative_folder_alone_is_made_absolute(tmp_path: Path) -> None:
    for told, said in (
        ("run", str(tmp_path / "run")),
        (f"{tmp_path}//x/../run/", f"{tmp_path}//x/../run/"),
    ):
        (tmp_path / "x").mkdir(exist_ok=True)
        ended = through("env", "-0", env=bare(tmp_path, HANGDOCTOR_DIR=told), cwd=tmp_path)
        assert variables(ended.stdout)[b"HANGDOCTOR_DIR"] == os.fsencode(said), ended.stderr


def test_signals_limits_and_files_are_as_without(tmp_path: Path) -> None:
    script = (
        "grep -E '^(Sig(Blk|Ign|Cgt)|NoNewPrivs|Seccomp|CapEff)' /proc/self/status; umask; ulimit -a; pwd; nice\n"
        "ls -l /proc/self/fd | sed -e 's/.* \\([0-9]* ->\\)/\\1/' -e 's/\\[.*//' -e 's,/proc/[0-9]*/fd,FD,' | sort"
    )
    command = ["bash", "-c", script]
    without = subprocess.run(
        command, env=bare(tmp_path), cwd=tmp_path, capture_output=True, timeout=60
    )
    with_run = through(*command, env=bare(tmp_path), cwd=tmp_path)
    assert b"SigIgn" in without.stdout and with_run.stdout == without.stdout, with_run.stderr


def test_a_script_without_a_first_line_is_run_by_the_shell(tmp_path: Path) -> None:
    script = tmp_path / "train"
    script.write_text('echo "$0 $# $2"\n')
    script.chmod(0o755)
    ended = through(str(script), "one", "two words", env=bare(tmp_path))
    assert (ended.returncode, ended.stdout.decode()) == (0, f"{script} 2 two words\n"), ended.stderr


def mpi(tmp_path: Path, *words: str, **more: str) -> tuple[bytes | None, bytes]:
    """What a program called mpirun sees of the variable that Open MPI reads; what `run` says."""
    program = tmp_path / "bin" / "mpirun"
    program.parent.mkdir(exist_ok=True)
    program.write_text("#!/bin/sh\nexec env -0\n")
    program.chmod(0o755)
    ended = through(str(program), *words, env=bare(tmp_path, **more))
    assert ended.returncode == 0, ended.stderr
    return variables(ended.stdout).get(b"OMPI_MCA_mca_base_env_list"), ended.stderr


def test_open_mpi_passes_on_what_is_set(tmp_path: Path) -> None:
    # It prints a warning for each name that is not.
    ours = b";".join([b"PYTHONPATH", b"HANGDOCTOR_DIR", *NCCL])
    assert mpi(tmp_path, "-n", "2", "python") == (ours, b"")
    assert mpi(tmp_path, OMPI_MCA_mca_base_env_list="NCCL_DEBUG;A=1") == (
        b"NCCL_DEBUG;A=1;" + ours,
        b"",
    )
    told = mpi(tmp_path, OMPI_MCA_mca_base_env_list="A,B", OMPI_MCA_mca_base_env_list_delimiter=",")
    assert told == (b"A,B," + ours.replace(b";", b","), b"")
    own = mpi(tmp_path, NCCL_PROFILER_PLUGIN="mine")
    assert own == (b"PYTHONPATH;HANGDOCTOR_DIR", b""), "the job passes on its own"


@pytest.mark.parametrize("words", [("-x", "NCCL_DEBUG"), ("--mca", "mca_base_env_list", "A;B")])
def test_open_mpi_is_left_alone_where_the_command_names_variables_itself(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    # Open MPI ends a job that names some by -x and some by the variable.
    told, said = mpi(tmp_path, *words, "-n", "2", "python")
    assert told is None and b"-x PYTHONPATH -x HANGDOCTOR_DIR" in said


def test_a_closed_or_full_stderr_is_no_reason_not_to_start(tmp_path: Path) -> None:
    for closing in ("2>&-", "2>/dev/full"):
        command = f"{sys.executable} {SCRIPTS / 'run_verb.py'} -- echo started {closing}"
        env = bare(tmp_path, HANGDOCTOR_DIR="/proc/nothing/can/be/made")
        ended = subprocess.run(["sh", "-c", command], env=env, capture_output=True, timeout=60)
        assert (ended.returncode, ended.stdout) == (0, b"started\n"), ended.stderr


def test_the_current_folder_may_be_gone(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    for told in ({}, {"HANGDOCTOR_DIR": "boxes"}):
        env = {k: v for k, v in bare(tmp_path).items() if k != b"HANGDOCTOR_DIR"}
        env |= {os.fsencode(k): os.fsencode(v) for k, v in told.items()} | {
            b"PYTHONPATH": b"/nowhere"
        }
        job = f"{sys.executable} -c 'print(1)'"
        command = f"mkdir -p gone; cd gone; rmdir ../gone; {sys.executable} {SCRIPTS / 'run_verb.py'} -- {job}"
        ended = subprocess.run(
            ["sh", "-c", command], env=env, cwd=tmp_path, capture_output=True, timeout=60
        )
        alone = subprocess.run(
            ["sh", "-c", f"mkdir -p gone; cd gone; rmdir ../gone; {job}"],
            env=env,
            cwd=tmp_path,
            capture_output=True,
            timeout=60,
        )
        assert (ended.returncode, ended.stdout) == (0, b"1\n"), ended.stderr
        ours = [line for line in ended.stderr.splitlines() if not line.startswith(b"hangdoctor: ")]
        assert ours == alone.stderr.splitlines()


def test_an_installation_that_the_python_path_cannot_name(tmp_path: Path) -> None:
    (tmp_path / "a:b").symlink_to(ROOT)
    verb = tmp_path / "a:b" / "tests" / "probe" / "scripts" / "run_verb.py"
    code = f"import sys, runpy; sys.path.insert(0, {str(tmp_path / 'a:b')!r}); sys.argv[0:1] = []; runpy.run_path(sys.argv[0], run_name='__main__')"
    command = [sys.executable, "-c", code, str(verb), "--", "env", "-0"]
    ended = subprocess.run(command, env=bare(tmp_path), capture_output=True, timeout=60)
    assert ended.returncode == 0 and b"PYTHONPATH" not in variables(ended.stdout), ended.stdout
    assert b"colon" in ended.stderr


def test_the_environment_helper_of_these_tests_says_the_same(tmp_path: Path) -> None:
    told = environment(tmp_path / "run")
    ended = through("env", "-0", env=bare(tmp_path, PYTHONPATH=str(ROOT)))
    assert variables(ended.stdout)[b"PYTHONPATH"].decode() == told["PYTHONPATH"]


def test_what_is_ignored_stays_ignored(tmp_path: Path) -> None:
    # Not SigQ: how many signals wait for all processes of this user.
    masks = "grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status"
    for trapped in ("", "TERM", "HUP INT", "TERM HUP INT QUIT USR1"):
        told = [f"trap '' {trapped};" if trapped else "", f"exec {masks}"]
        hung = f"exec {sys.executable} -m hangdoctor run -- {masks}"
        env = bare(tmp_path, PYTHONPATH=str(ROOT))
        without = subprocess.run(
            ["bash", "-c", " ".join(told)], env=env, capture_output=True, timeout=60
        )
        with_run = subprocess.run(
            ["bash", "-c", f"{told[0]} {hung}"], env=env, capture_output=True, timeout=60
        )
        assert b"SigIgn" in without.stdout and with_run.stdout == without.stdout, with_run.stderr
