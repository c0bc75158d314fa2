"""Pods as namespaces of this machine: mounts, processes, network and host name of their own. Needs
root.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import signal
import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.stage import wait_until


def unavailable() -> str:
    """Why there can be no pods here, in one line; "" where they can."""
    absent = [c for c in ("kubectl", "unshare", "nsenter", "ip") if not shutil.which(c)]
    if absent:
        return f"the stand-in for Kubernetes needs {', '.join(absent)}"
    if os.geteuid() != 0:
        return "the stand-in for Kubernetes needs root"
    tried = subprocess.run(["unshare", "-mpnuf", "true"], capture_output=True)
    return "" if tried.returncode == 0 else "namespaces cannot be made here"


class Pods:
    """All pods of one cluster, on one bridge."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.pids: dict[str, int] = {}
        self.environ: dict[str, dict[str, str]] = {}
        self.without_ptrace: set[str] = set()
        self.entered: list[subprocess.Popen[bytes]] = []
        self.net = _unshare("-n", ["sleep", "infinity"])
        wait_until(lambda: _namespace(self.net.pid) != _namespace(os.getpid()), "the network")
        self._in_net("ip link add br0 type bridge")
        self._in_net("ip link set br0 up")

    def _in_net(self, command: str, pid: int = 0) -> None:
        subprocess.run(
            ["nsenter", "-t", str(pid or self.net.pid), "-n", *command.split()],
            check=True,
            timeout=30,
        )

    def start(
        self,
        name: str,
        script: str,
        environ: Mapping[str, str],
        hidden: Sequence[Path] = (),
    ) -> str:
        """Start a pod whose container runs a shell script; its address. `hidden` folders are empty
        in it.
        """
        number = len(self.running) + 1
        gate = self.folder / f"gate.{name}"
        hide = "".join(f"mount -t tmpfs none {path}\n" for path in hidden)
        begin = f"hostname {name}\n{hide}while [ ! -e {gate} ]; do sleep 0.05; done\n{script}\n"
        self.environ[name] = dict(environ)
        process = _unshare("-mpnuf", ["--mount-proc", "--kill-child", "bash", "-c", begin], environ)
        self.running[name] = process
        wait_until(lambda: _children(process.pid) != [], f"pod {name} has begun")
        [pid] = _children(process.pid)
        self.pids[name] = pid
        address = f"10.88.0.{number}"
        self._in_net(f"ip link add v{number} type veth peer name eth0 netns {pid}")
        self._in_net(f"ip link set v{number} master br0 up")
        self._in_net("ip link set lo up", pid)
        self._in_net(f"ip addr add {address}/24 dev eth0", pid)
        self._in_net("ip link set eth0 up", pid)
        gate.touch()
        return address

    def enter(
        self, name: str, command: Sequence[str], with_input: bool, may_trace: bool = False
    ) -> subprocess.Popen[bytes]:
        """Start a command in a pod, as `kubectl exec` does."""
        where = ["nsenter", "-t", str(self.pids[name]), "-m", "-p", "-n", "-u", "--wd=/"]
        process = subprocess.Popen(
            [*where, "--", *command],
            stdin=subprocess.PIPE if with_input else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environ[name],
            start_new_session=True,
            preexec_fn=None if may_trace or name not in self.without_ptrace else refuse_ptrace,
        )
        self.entered.append(process)
        return process

    def processes(self, name: str, word: str) -> list[int]:
        """The pids, as seen from here, of the pod's processes with `word` in their command line."""
        inside = _namespace(self.pids[name], "pid")
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and _namespace(int(entry.name), "pid") == inside:
                    words = (entry / "cmdline").read_bytes().decode(errors="replace")
                    if word in words.replace("\0", " "):
                        found.append(int(entry.name))
        return found

    def end(self, name: str) -> None:
        """End a pod and all that runs in it."""
        process = self.running[name]
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pids[name], signal.SIGKILL)
        process.kill()
        process.wait(timeout=30)

    def close(self) -> None:
        """End everything."""
        for name in self.running:
            self.end(name)
        for one in [*self.entered, self.net]:
            with contextlib.suppress(ProcessLookupError):
                one.kill()
            one.wait(timeout=30)


# A seccomp filter that refuses what Yama does: ptrace, process_vm_readv, and /proc/PID/mem, in which
# a place is sought that no file has (the upper half of its offset). For x86-64.
# (code, jump if true, jump if false, value): linux/filter.h, and struct seccomp_data for offsets.
_LOAD, _IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBER, _UPPER_OFFSET = 0, 28
_LSEEK, _PTRACE, _PROCESS_VM_READV = 8, 101, 310
_FILTER = (
    (_LOAD, 0, 0, _NUMBER),
    (_IF_EQUAL, 6, 0, _PTRACE),
    (_IF_EQUAL, 5, 0, _PROCESS_VM_READV),
    (_IF_EQUAL, 0, 3, _LSEEK),
    (_LOAD, 0, 0, _UPPER_OFFSET),
    (_IF_EQUAL, 1, 0, 0),
    (_IF_EQUAL, 0, 1, 0xFFFFFFFF),  # a negative offset, from the end of a file
    (_RETURN, 0, 0, 0x7FFF0000),  # SECCOMP_RET_ALLOW
    (_RETURN, 0, 0, 0x00050000 | errno.EPERM),  # SECCOMP_RET_ERRNO
)
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def refuse_ptrace() -> None:
    """This process, and what it starts, cannot read the memory of others any more."""
    packed = b"".join(struct.pack("HBBI", *one) for one in _FILTER)
    buffer = ctypes.create_string_buffer(packed, len(packed))
    program = _Program(len(_FILTER), ctypes.addressof(buffer))
    done = ctypes.CDLL(None).prctl(
        _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0
    )
    assert done == 0, "seccomp is not to be had"


def _unshare(
    flags: str, command: Sequence[str], environ: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["unshare", flags, *command],
        stdin=subprocess.DEVNULL,
        env=None if environ is None else dict(environ),
        start_new_session=True,
    )


def _namespace(pid: int, kind: str = "net") -> str:
    return str(Path(f"/proc/{pid}/ns/{kind}").readlink())


def _children(pid: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
