"""What runs in a pod: small programs for its own shell and Python, which end by themselves.

The far end of `kubectl exec` goes on when kubectl is ended
(https://github.com/kubernetes/kubernetes/issues/73756), so each brings its own end: an alarm after
some seconds, which outlasts exec(2).
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ..._version import __version__

# Prints the machine, what decides whether a process may read another, and the first Python that can import this version of hangdoctor. What runs the
# ranks is tried, too: it need not be on PATH.
_LOOK = """
echo "machine $(uname -m)"
echo "uid $(id -u)"
echo "scope $(cat /proc/sys/kernel/yama/ptrace_scope 2>/dev/null)"
try() {
  "$1" -c 'import sys; sys.path[:1] = []
import click, msgspec, psutil
from hangdoctor._version import __version__ as version
sys.exit(version != sys.argv[1])' "$0" >/dev/null 2>&1 && echo "python $1" && exit 0
}
try python3; try python
seen=:
for p in /proc/[0-9]*/cmdline; do
  c=$(tr '\\0' '\\n' <"$p" 2>/dev/null | head -n 1)
  case $c in
    */python*) case $seen in *:"$c":*) ;; *) seen=$seen$c:; try "$c";; esac;;
  esac
done
echo "python"
"""
# Sets the alarm and becomes hangdoctor. The folder of the container is no place to import from.
_BECOME = """
import sys
sys.path[:1] = []
import os, signal
sys.executable = os.environ.pop("HANGDOCTOR_PYTHON", sys.executable)
signal.alarm(int(sys.argv.pop(1)))
import runpy
runpy.run_module("hangdoctor", run_name="__main__", alter_sys=True)
"""

# The agent that stays: it ends when its standard input does.
_STAY = """
import sys
sys.path[:1] = []
import os, runpy
sys.executable = os.environ.pop("HANGDOCTOR_PYTHON", sys.executable)
runpy.run_module("hangdoctor.agents.behind_tunnel", run_name="__main__", alter_sys=True)
"""
# Any verb that runs until its standard input ends, which it reads itself or not.
_CONNECTED = """
import sys
sys.path[:1] = []
import os, runpy, threading
def end():
    while os.read(0, 4096):
        pass
    os._exit(0)
if sys.argv.pop(1) == "ignores":
    threading.Thread(target=end, daemon=True).start()
runpy.run_module("hangdoctor", run_name="__main__", alter_sys=True)
"""
# Unpacks the archive of `own_copy` from its standard input into a folder that programs can be run
# from, runs it, and removes the folder. Its arguments: the archive's size, then those of Python.
_UNPACK = """
umask 077
for t in "$TMPDIR" /tmp /var/tmp /dev/shm /run .; do
  d=
  [ -n "$t" ] && d=$(mktemp -d "$t/hangdoctor.XXXXXX" 2>/dev/null) || continue
  printf '#!/bin/sh\\nexit 0\\n' >"$d/x" && chmod 700 "$d/x" && "$d/x" 2>/dev/null && break
  rm -rf "$d"
done
[ -n "$d" ] || { echo "no folder of this container can be written to and run from" >&2; exit 1; }
trap 'rm -rf "$d"' EXIT
head -c "$1" | tar -xzf - -C "$d" || exit 1
shift
HANGDOCTOR_DISABLE=1 "$d/bin/python" "$@"
"""


class Found(Struct, frozen=True):
    """What a pod has: its processor, the Python there that can import hangdoctor ("" for none), the
    user of its container, and the kernel's `yama.ptrace_scope` ("" where it has none).
    """

    machine: str = ""
    python: str = ""
    uid: str = ""
    scope: str = ""


def look() -> list[str]:
    """The command that prints what `found` reads."""
    return ["sh", "-c", _LOOK, __version__]


def found(output: str) -> Found | None:
    """What `look` printed; None where it did not come to its end."""
    said: dict[str, str] = {}
    for line in output.splitlines():
        word, _, rest = line.partition(" ")
        said[word] = rest.strip()
    if "python" not in said:
        return None
    return Found(
        said.get("machine", ""), said["python"], said.get("uid", ""), said.get("scope", "")
    )


def become(python: str, words: Sequence[str], seconds: float) -> list[str]:
    """``hangdoctor WORDS`` by a Python of the pod; it is killed there after so many seconds."""
    return ["env", "HANGDOCTOR_DISABLE=1", python, *_arguments(words, seconds)]


def unpack_and_become(size: int, words: Sequence[str], seconds: float) -> list[str]:
    """The same by a copy of this hangdoctor, whose archive of `size` bytes comes on standard input;
    nothing of it is left in the pod.
    """
    return ["sh", "-c", _UNPACK, "hangdoctor", str(size), *_arguments(words, seconds)]


def stay(python: str, words: Sequence[str]) -> list[str]:
    """``hangdoctor WORDS``, an agent, behind a tunnel, by a Python of the pod."""
    return ["env", "HANGDOCTOR_DISABLE=1", python, "-c", _STAY, *words]


def connected(python: str, words: Sequence[str], reads: bool) -> list[str]:
    """``hangdoctor WORDS`` by a Python of the pod, until its standard input ends; whether it reads
    that input itself.
    """
    how = "reads" if reads else "ignores"
    return ["env", "HANGDOCTOR_DISABLE=1", python, "-c", _CONNECTED, how, *words]


def unpack_and_stay(size: int, words: Sequence[str]) -> list[str]:
    """The same by a copy of this hangdoctor."""
    return ["sh", "-c", _UNPACK, "hangdoctor", str(size), "-c", _STAY, *words]


def _arguments(words: Sequence[str], seconds: float) -> list[str]:
    return ["-c", _BECOME, str(max(1, round(seconds))), *words]
