"""What a program of the harness says about its own process: `note("place")` adds a line to the file
$WITNESS.
"""

import json
import os
import struct
import sys
import time

_CLOSED_ON_EXEC = 0o2000000
_OF_GLIBC = 0b11 << 31  # signals 32 and 33, which it handles once there is a thread


def note(place):
    """Write down what this process has by now; `place` is unique within the program."""
    seen = {
        "place": place,
        "environ": dict(os.environ),
        "descriptors": descriptors(),
        "threads": threads(),
        "memory": memory(),
        "signals": signals(),
        "interpreter": interpreter(),
        "probe": probe(),
    }
    fd = os.open(
        os.environ["WITNESS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666
    )
    os.write(fd, (json.dumps(seen) + "\n").encode())
    os.close(fd)


def status():
    try:
        with open("/proc/self/status", encoding="utf-8", errors="replace") as file:
            return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    except OSError:
        return {}


def descriptors():
    """What each open descriptor is, and whether a program that is executed would have it."""
    found = []
    for number in range(256):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
            with open(f"/proc/self/fdinfo/{number}", encoding="ascii") as file:
                flags = next(int(line.split()[1], 8) for line in file if line.startswith("flags"))
        except OSError:
            continue
        what = target.partition(":[")[0] if target.startswith(("socket:", "pipe:")) else target
        what = "/dev/pts" if target.startswith("/dev/pts/") else what
        found.append(what + ("" if flags & _CLOSED_ON_EXEC else " (inheritable)"))
    return sorted(found)


def threads():
    """How many the kernel counts, and what threading calls its own."""
    count = int(status().get("Threads", "0"))
    time.sleep(0.05)  # one that has been joined may still be on its way out
    count = min(count, int(status().get("Threads", "0")))
    module = sys.modules.get("threading")
    return {
        "kernel": count,
        "python": sorted(t.name for t in module.enumerate()) if module else ["MainThread"],
    }


def memory():
    """Kilobytes resident, without what is shared with files."""
    return int(status().get("RssAnon", "0").split()[0])


def signals():
    """Masks and dispositions, and other things that children inherit."""
    fields = status()
    mask = os.umask(0)
    os.umask(mask)
    sets = {
        name: int(fields.get(name, "0"), 16) & ~_OF_GLIBC
        for name in ("SigBlk", "SigIgn", "SigCgt", "ShdPnd")
    }
    return {name: f"{found:016x}" for name, found in sets.items()} | {
        "umask": oct(mask),
        "nice": os.nice(0),
        "processors": sorted(os.sched_getaffinity(0)),
    }


def interpreter():
    """What a program can see of the interpreter's settings."""
    import gc

    warnings = sys.modules.get("warnings")
    logging = sys.modules.get("logging")
    return {
        "path": sys.path,
        "argv": sys.argv,
        "orig_argv": sys.orig_argv,
        "flags": repr(sys.flags),
        "meta_path": [getattr(f, "__name__", type(f).__name__) for f in sys.meta_path],
        "path_hooks": len(sys.path_hooks),
        "gc": [gc.isenabled(), *gc.get_threshold(), len(gc.callbacks)],
        "hooks": [
            repr(type(h))
            for h in (sys.excepthook, sys.displayhook, sys.unraisablehook, sys.gettrace())
        ],
        "profile": repr(type(sys.getprofile())),
        "streams": [repr(type(s)) for s in (sys.stdin, sys.stdout, sys.stderr)],
        "limits": [sys.getrecursionlimit(), sys.getswitchinterval()],
        "warnings": [repr(f[:1] + f[2:]) for f in warnings.filters] if warnings else [],
        "logging": [repr(type(h)) for h in logging.getLogger().handlers] if logging else [],
    }


def probe():
    """What the probe does here: "none", "waits", "records", "traces", or the note with which it
    switched itself off.
    """
    state = sys.modules.get("hangdoctor.probe.process_probe")
    if state is None:
        return "none"
    it = state.probe
    if it.broken:
        return (
            "off: " + _text(it._kept.box.map, *state.fmt.H_NOTE) if it._kept is not None else "off"
        )
    tracer = it.tracer
    if tracer is not None and tracer.broken:
        return "tracing off: " + (str(tracer.ring.path) if tracer.ring is not None else "")
    if tracer is not None and tracer.hook is not None:
        return "traces"
    return "records" if it.recorder is not None else "waits"


def _text(data, offset, how):
    return struct.unpack_from(how, data, offset)[0].rstrip(b"\0").decode("utf-8", "replace")
