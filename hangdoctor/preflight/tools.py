"""What of hangdoctor works on this host: each part is tried as its command would use it."""

from __future__ import annotations

import getpass
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from ..errors import BadInput
from ..launchers.slurm_job import clean_environment
from ..probe import folder as folders
from ..probe import record_core
from ..probe.calls import hooks
from ..readers import pyspy
from ..readers.box_folders import read_header
from .readings import Check

_STARTUP = Path(folders.__file__).parent / "startup"
_PORT = 8470  # as in the documents
_PORTS = range(_PORT + 1, _PORT + 30)
_SLURM = ("srun", "squeue", "scontrol")  # all that --jobid calls
_SLURM_S = 8.0
_PROBE_S = 10.0
_PYSPY_S = 5.0
_TARGET = "print(flush=True); import time; time.sleep(60)"
# As a rank that joins no group: what is tried is the way into a Python and the file, not torch.
_RANK = """
import os, sys
if getattr(sys.modules.get("hangdoctor.probe"), "_installed", False):
    from hangdoctor.probe.process_probe import probe
    recorder = probe.begin()
    told = recorder.box.path if recorder is not None else "no space for a box"
    os.write(1, f"{told}\\n".encode())
    sys.stdin.read()
"""


def checks_of_node() -> dict[str, Callable[[], Check]]:
    """What has to work where ranks are."""
    return {"ptrace": check_ptrace, "extensions": check_extensions, "probe": check_probe}


def checks_of_here() -> dict[str, Callable[[], Check]]:
    """What has to work where the commands are typed."""
    return {"Slurm": check_slurm, "page": check_page}


def check_ptrace() -> Check:
    """py-spy is run on a process that is not its child, as `dump` would."""
    program = pyspy.find_pyspy()
    if program is None:
        reading = "py-spy is not beside this Python, in ~/.local/bin or on PATH: no stacks"
        return Check("ptrace", "fail", reading, f"{sys.executable} -m pip install py-spy")
    # Without Slurm's variables: another check would take it for a rank.
    environment = clean_environment(os.environ)
    target = subprocess.Popen([_python(), "-c", _TARGET], stdout=subprocess.PIPE, env=environment)
    try:
        assert target.stdout is not None
        target.stdout.readline()
        result = pyspy.dump(target.pid, _PYSPY_S)
    finally:
        target.kill()
        target.wait()
        if target.stdout is not None:
            target.stdout.close()
    scope = _text("/proc/sys/kernel/yama/ptrace_scope")
    setting = f" (kernel.yama.ptrace_scope {scope})" if scope else ""
    if not result.error:
        return Check("ptrace", "ok", f"py-spy reads stacks of other processes{setting}")
    reading = f"py-spy cannot read another process{setting}: {result.error}"
    return Check("ptrace", "fail", reading, _ptrace_cure(program, scope))


def _python() -> str:
    """A Python that py-spy can read; a copy of hangdoctor in a container is started by a loader, which
    hides its own.
    """
    copied = os.environ.get("HANGDOCTOR_COPY")
    return (shutil.which("python3") if copied else None) or sys.executable


def _ptrace_cure(program: str, scope: str) -> str:
    """What allows it: by the number in ptrace_scope (man 2 ptrace)."""
    capability = f"sudo setcap cap_sys_ptrace=eip {os.path.realpath(program)}"
    if scope in ("1", "2"):
        return f"sudo sysctl kernel.yama.ptrace_scope=0, or: {capability}"
    if scope == "3":
        return "ptrace is off until the next boot: set kernel.yama.ptrace_scope=0 in /etc/sysctl.d."
    return f"In a container start it with --cap-add SYS_PTRACE; otherwise: {capability}"


def check_extensions() -> Check:
    """The two C extensions, imported by this Python."""
    lacking = [
        name
        for name, module in (("calls", hooks.extension()), ("record", record_core.native))
        if module is None
    ]
    here = f"Python {platform.python_version()}"
    if not lacking:
        return Check("extensions", "ok", f"both C extensions of the probe are loaded by {here}")
    reading = (
        f"no C extension for {here} ({', '.join(lacking)}): tracing calls costs ten times more"
    )
    compiler = "sudo apt-get install gcc libc6-dev python3-dev"
    cure = f"{compiler}; then install hangdoctor again with pip install --force-reinstall --no-deps"
    return Check("extensions", "warn", reading, cure)


def check_probe() -> Check:
    """A process as `hangdoctor run` starts it writes a black box, is killed, and the box is read."""
    base = folders.root().parent
    try:
        with tempfile.TemporaryDirectory(prefix="hangdoctor-preflight-", dir=base) as folder:
            written = _killed_rank(folder)
            if not written:
                return _not_loaded()
            read_header(Path(written))
    except (OSError, BadInput) as error:
        reading = f"no black box can be written and read in {base}: {error}"
        cure = f"df -h {base}; or set HANGDOCTOR_DIR to another private folder of this host."
        return Check("probe", "fail", reading, cure)
    reading = f"the black box of a test process that was killed can be read ({base})"
    return Check("probe", "ok", f"{reading}; {_torch()}")


def _killed_rank(folder: str) -> str:
    """The path of the box that a stand-in for a rank made before it was killed; "" without the
    probe in it. It is no rank for others: its environment has no rank.
    """
    kept = clean_environment(os.environ)
    kept = {name: text for name, text in kept.items() if not name.startswith("HANGDOCTOR_")}
    before = kept.get("PYTHONPATH", "")
    kept["PYTHONPATH"] = f"{_STARTUP}{os.pathsep}{before}" if before else str(_STARTUP)
    with subprocess.Popen(
        [sys.executable, "-c", _RANK],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=kept | {"HANGDOCTOR_DIR": folder},
        cwd="/",
    ) as process:
        try:
            assert process.stdout is not None
            return process.stdout.readline().decode(errors="replace").strip()
        finally:
            process.kill()


def _not_loaded() -> Check:
    reading = "hangdoctor run cannot load the probe into this Python: it ignores PYTHONPATH"
    cure = "Write at the top of the training: import hangdoctor.probe; hangdoctor.probe.install()"
    return Check("probe", "fail", reading, cure)


def _torch() -> str:
    try:
        return f"torch {importlib.metadata.version('torch')}"
    except importlib.metadata.PackageNotFoundError:
        return "no torch in this Python; hangdoctor run -- CMD works with the Python of CMD"


def check_slurm() -> Check:
    """Slurm's commands, and whether its controller answers them."""
    lacking = [name for name in _SLURM if shutil.which(name) is None]
    if len(lacking) == len(_SLURM):
        reading = "not on this host: use --local, --hostfile or --pbs instead of --jobid"
        return Check("Slurm", "ok", reading)
    if lacking:
        reading = f"not on PATH: {', '.join(lacking)}; --jobid needs them"
        return Check("Slurm", "warn", reading, "Add the folder of Slurm's commands to PATH.")
    cure = "scontrol ping shows why. The nodes can be reached by ssh, too: --hostfile F."
    try:
        done = _ask_slurm("scontrol", "ping")
        version = _ask_slurm("srun", "--version").stdout.strip().removeprefix("slurm ")
    except subprocess.TimeoutExpired:
        return Check("Slurm", "warn", f"its controller did not answer in {_SLURM_S:.0f} s", cure)
    if not re.search(r"\bis UP\b", done.stdout):
        said = (done.stdout + done.stderr).strip().splitlines()
        last = said[-1][:200] if said else f"exit code {done.returncode}"
        return Check("Slurm", "warn", f"its controller does not answer: {last}", cure)
    return Check("Slurm", "ok", f"Slurm {version}, its controller answers; {_own_jobs()}")


def _own_jobs() -> str:
    words = ("squeue", "--noheader", "--states=R", f"--user={os.getuid()}", "--format=%A")
    try:
        jobs = _ask_slurm(*words).stdout.split()
    except subprocess.TimeoutExpired:
        return "squeue did not answer"
    if not jobs:
        return "you have no running job"
    return f"{len(jobs)} running jobs of yours: hangdoctor dump --jobid {jobs[0]}"


def _ask_slurm(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        capture_output=True,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
        env=clean_environment(os.environ),
        timeout=_SLURM_S,
    )


def check_page() -> Check:
    """The page's files and a port of the loopback for them."""
    spec = importlib.util.find_spec("hangdoctor.web")
    files = Path(spec.origin).parent / "static" if spec is not None and spec.origin else Path()
    if not (files / "index.html").is_file():
        cure = "Install hangdoctor again: pip install --force-reinstall --no-deps"
        return Check("page", "fail", f"its files are missing ({files})", cure)
    port = next((port for port in (_PORT, *_PORTS) if _is_free(port)), 0)
    if not port:
        reading = f"no port of 127.0.0.1 from {_PORT} to {_PORTS[-1]} is free"
        return Check("page", "warn", reading, "hangdoctor sidecar --local --web 127.0.0.1:PORT")
    reading = f"127.0.0.1:{port} is free"
    if port != _PORT:
        reading = f"127.0.0.1:{_PORT} is in use, {port} is free"
    host = socket.gethostname()
    start = f"hangdoctor sidecar --local --web 127.0.0.1:{port}"
    away = f"ssh -L {port}:127.0.0.1:{port} {_user()}{host}"
    return Check("page", "ok", f"{reading}: {start}; for a browser elsewhere: {away}")


def _user() -> str:
    try:
        return f"{getpass.getuser()}@"
    except (KeyError, OSError):  # a user without an entry in passwd
        return ""


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
