"""Completion behind TAB, in real shells on a pseudo-terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.stage import hangdoctor

PROMPT = "ready> "
SHELLS = {
    "bash": (["bash", "--noprofile", "--norc", "-i"], f"PS1='{PROMPT}'"),
    "zsh": (["zsh", "-f", "-i"], f"unsetopt zle_bracketed_paste; PS1='{PROMPT}'"),
    "fish": (["fish", "--no-config", "-i"], f"function fish_prompt; echo -n '{PROMPT}'; end"),
}
LOAD = {
    "bash": 'eval "$(hangdoctor completion bash)"',
    "zsh": 'autoload -Uz compinit; compinit -u -D; eval "$(hangdoctor completion zsh)"',
    "fish": "hangdoctor completion fish | source",
}


class Shell:
    """An interactive shell: keys go in, what it shows comes out."""

    def __init__(self, name: str, folder: Path, env: dict[str, str]) -> None:
        self.shown = ""
        self.terminal, inner = pty.openpty()
        words, prompt = SHELLS[name]
        self.process = subprocess.Popen(
            words,
            cwd=folder,
            env=env,
            stdin=inner,
            stdout=inner,
            stderr=inner,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(
                0, termios.TIOCSCTTY, 0
            ),  # fish asks for a terminal of its own
        )
        os.close(inner)
        self.line(prompt)
        self.line(LOAD[name])
        self.line("echo loaded-$((40 + 2))" if name != "fish" else "echo loaded-(math 40 + 2)")
        self.wait("loaded-42")

    def line(self, text: str) -> None:
        self.keys(text + "\n")

    def keys(self, text: str) -> None:
        os.write(self.terminal, text.encode())

    def wait(self, text: str, seconds: float = 30.0) -> None:
        """Until the shell has shown `text`; forgets what came before and it."""
        end = time.monotonic() + seconds
        while text not in self.shown:
            ready, _, _ = select.select([self.terminal], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"{text!r} did not come: {self.shown!r}"
            try:
                self.shown += os.read(self.terminal, 65_536).decode(errors="replace")
            except OSError:
                raise AssertionError(f"the shell has ended: {self.shown!r}") from None
        self.shown = self.shown.partition(text)[2]

    def close(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.terminal)


def environment(folder: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HANGDOCTOR", "INPUTRC"))}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return kept | {
        "HOME": str(folder),
        "TMPDIR": str(folder / "tmp"),
        "PATH": path,
        "TERM": "dumb",
        "XDG_CONFIG_HOME": str(folder / "config"),
        "XDG_DATA_HOME": str(folder / "data"),
    }


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a collector's folder, a run's folder, an incident and two bundles."""
    incident = tmp_path / ".hangdoctor/jobs/slurm-471147/incidents/20260102-030405-x"
    run = tmp_path / f"tmp/hangdoctor-{os.getuid()}/slurm-881188-20260102-030405-77"
    bundles = [tmp_path / "hangdoctor-old", tmp_path / "work" / "hangdoctor-new"]
    for folder in (incident, run, *bundles, tmp_path / "hangdoctor-no-bundle"):
        folder.mkdir(parents=True)
    for folder in (incident, *bundles):
        (folder / "manifest.json").write_text("{}")
    return tmp_path


@pytest.fixture(params=list(SHELLS))
def shell(request: pytest.FixtureRequest, home: Path) -> Iterator[Shell]:
    name = str(request.param)
    if shutil.which(name) is None:
        pytest.skip(f"there is no {name} here (root on Debian gets it by apt)")
    found = Shell(name, home, environment(home))
    try:
        yield found
    finally:
        found.close()


def test_a_real_shell_completes_verbs_flags_jobs_incidents_and_bundles(shell: Shell) -> None:
    for typed, rest in (
        ("hangdoctor diag", "nose"),
        ("hangdoctor dump --hostf", "ile"),
        ("hangdoctor dump --jobid 47", "1147"),
        ("hangdoctor dump --jobid 88", "1188"),
        ("hangdoctor incidents list --job slu", "rm-471147"),
        ("hangdoctor incidents show 2026", "0102-030405-x"),
        ("hangdoctor trace strag", "glers"),
        ("hangdoctor report hangdoctor-", "old"),
        ("hangdoctor report work/", "hangdoctor-new"),
    ):
        shell.keys(f"{typed}\t")
        shell.wait(rest)
        shell.keys("\x15")  # ^U: the line is taken back
        shell.line("echo next-$((40 + 2))" if shell.process.args[0] != "fish" else "echo next-42")
        shell.wait("next-42")


def words(folder: Path, *typed: str) -> list[str]:
    """What is offered for the last of these words."""
    env = environment(folder) | {
        "_HANGDOCTOR_COMPLETE": "bash_complete",
        "COMP_WORDS": "\n".join(["hangdoctor", *typed]),
        "COMP_CWORD": str(len(typed)),
    }
    done = hangdoctor(cwd=folder, env=env)
    assert done.stderr == ""
    return [line.removeprefix("plain,") for line in done.stdout.splitlines() if line]


def test_what_is_offered(home: Path) -> None:
    assert words(home, "dump", "--jobid", "") == ["881188", "471147"]
    assert words(home, "incidents", "show", "") == ["last", "20260102-030405-x"]
    assert words(home, "report", "") == ["hangdoctor-old"]
    assert words(home, "report", "work/hang") == ["work/hangdoctor-new"]
    assert words(home, "report", "nothing") == ["dir,nothing"]
    assert "demo" in words(home, "")
    assert words(home, "incidents", "list", "--job", "x") == []


def test_a_home_that_cannot_be_read_offers_nothing_and_prints_nothing(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / ".hangdoctor").write_text("a file")
    assert words(tmp_path, "dump", "--jobid", "") == []
    assert words(tmp_path, "incidents", "show", "") == ["last"]


def test_completion_imports_no_torch_and_for_verbs_no_verb(home: Path) -> None:
    code = (
        "import sys; sys.argv = ['hangdoctor']\n"
        "from hangdoctor.cli.main import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'deepspeed', *sys.argv[2:]} & set(sys.modules)\n"
        "heavy |= {'rich', 'psutil', 'zmq', 'msgspec'} & set(sys.modules) if len(WORDS) == 2 else set()\n"
        "assert not heavy, heavy"
    )
    for typed in (["hangdoctor", "d"], ["hangdoctor", "dump", "--job", ""]):
        env = environment(home) | {
            "_HANGDOCTOR_COMPLETE": "bash_complete",
            "COMP_WORDS": "\n".join(typed),
            "COMP_CWORD": str(len(typed) - 1),
        }
        asked = [sys.executable, "-c", f"WORDS = {typed!r}\n{code}"]
        subprocess.run(asked, env=env, cwd=home, check=True, capture_output=True)


@pytest.mark.parametrize("shell", list(SHELLS))
def test_the_script_names_the_program_and_its_variable(shell: str, tmp_path: Path) -> None:
    script = hangdoctor("completion", shell, cwd=tmp_path).stdout
    assert f"_HANGDOCTOR_COMPLETE={shell}_complete" in script and "\\x" not in script
    assert hangdoctor("completion", "csh", cwd=tmp_path, code=2).stderr
