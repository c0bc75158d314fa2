"""One process that traces itself through what the argument says, without torch; prints what it found as JSON."""

import asyncio
import contextlib
import json
import os
import sys
import threading
import time
from pathlib import Path

from hangdoctor.probe.box import BoxWriter
from hangdoctor.probe.calls.request import Request
from hangdoctor.probe.calls.tracer import Tracer

WHAT, FOLDER = sys.argv[1], Path(sys.argv[2])
FOLLOW = ("calls_alone",)


def recorded(path):
    from hangdoctor.readers.calls import read_calls

    trace = read_calls(path)
    events = [
        [e.kind, trace.functions[e.function].name, trace.threads[e.thread].name]
        for e in trace.events
    ]
    return {
        "state": trace.state,
        "python": trace.python,
        "written": trace.written,
        "torn": trace.torn,
        "note": trace.note,
        "events": events,
        "lines": {f.name: f.line for f in trace.functions},
    }


def outer(n):
    return inner(n) + 1


def inner(n):
    try:
        return fails(n) or 0
    except ValueError:
        return 0


def fails(n):
    if n:
        raise ValueError(n)


def through(n):
    outer(n)
    fails(n)


def numbers():
    try:
        yield 1
        yield None
    finally:
        closed()


def closed():
    return None


def delegating():
    yield from numbers()


class Thing:
    def method(self):
        return sorted([2, 1], key=lambda x: -x)


async def later():
    await sooner()
    await asyncio.sleep(0)


async def sooner():
    return None


def in_thread():
    outer(0)


def scenario():
    inner(1)
    with contextlib.suppress(ValueError):
        through(1)
    list(numbers())
    half = numbers()
    next(half)
    half.close()
    list(delegating())
    Thing().method()
    asyncio.run(later())
    eval(compile("closed()", "<made>", "eval"), globals())
    worker = threading.Thread(target=in_thread, name="worker")
    worker.start()
    worker.join()


def ignored():
    json.loads("[1]")


def leaf():
    return None


def many(n):
    for _ in range(n):
        leaf()


def resident_kb():
    return int(
        next(
            line for line in Path("/proc/self/status").read_text().splitlines() if "VmRSS" in line
        ).split()[1]
    )


def installed():
    tools = [sys.monitoring.get_tool(i) for i in range(6)] if sys.version_info >= (3, 12) else []
    return [sys.getprofile() is not None, threading._profile_hook is not None, *filter(None, tools)]


def play_scenario(tracer):
    tracer.obey(Request(1, True, FOLLOW))
    scenario()
    tracer.obey(Request(2, False))
    outer(1)
    print(json.dumps({**recorded(tracer.ring.path), "installed": installed()}))


def play_switch(tracer):
    tracer.obey(Request(1, True, FOLLOW, ("calls_alone",)))
    outer(0)  # ignored: exclusion wins among equals
    tracer.obey(Request(2, True, ("json",)))
    outer(0)
    ignored()
    tracer.obey(Request(3, True, FOLLOW, (), 5), 4)
    outer(0)
    tracer.reached(4)
    outer(0)
    tracer.reached(5)
    outer(0)
    tracer.obey(Request(4, True, FOLLOW, ranks="1-3"))
    outer(0)
    print(json.dumps({**recorded(tracer.ring.path), "installed": installed()}))


def play_fork(tracer):
    tracer.obey(Request(1, True, FOLLOW))
    outer(0)
    child = os.fork()
    if not child:
        many(50)
        threading.Thread(target=in_thread).start()
        os._exit(0 if not any(installed()) else 3)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    outer(0)
    tracer.obey(Request(2, False))
    print(json.dumps({**recorded(tracer.ring.path), "child": code}))


def play_broken(tracer):
    from hangdoctor.probe.calls.choice import Choice

    Choice.follows = lambda self, module: no_such_name  # noqa: F821
    Choice.follows.__code__ = Choice.follows.__code__.replace(
        co_filename=Choice.__init__.__code__.co_filename
    )
    tracer.obey(Request(1, True, FOLLOW))
    result = outer(0)
    tracer.obey(Request(2, True, FOLLOW))
    print(json.dumps({**recorded(tracer.ring.path), "result": result, "installed": installed()}))


def play_foreign(tracer):
    # An exception that a signal handler raises while the probe decides belongs to the job.
    from hangdoctor.probe.calls.choice import Choice

    def interrupted(self, module):
        raise TimeoutError("the job's own")

    tracer.obey(Request(1, True, FOLLOW))
    kept, Choice.follows = Choice.follows, interrupted
    try:
        leaf()
        said = "swallowed"
    except TimeoutError as error:
        Choice.follows = kept
        said = str(error)
    print(json.dumps([said, tracer.broken]))


def play_soak(tracer):
    tracer.obey(Request(1, True, FOLLOW, size_mb=1))
    many(100_000)
    before, began = resident_kb(), time.perf_counter()
    many(int(sys.argv[3]))
    took = time.perf_counter() - began
    grown = resident_kb() - before
    tracer.obey(Request(2, False))
    report = recorded(tracer.ring.path)
    report["events"] = report["events"][-3:]
    print(
        json.dumps(
            {**report, "grown_kb": grown, "took": took, "bytes": tracer.ring.path.stat().st_size}
        )
    )


def play_codes(tracer):
    """Code made anew again and again, and more places than the table has room for."""
    tracer.obey(Request(1, True, FOLLOW, size_mb=1))
    for _ in range(3000):
        exec("def same(): return 1\nsame()", globals())
    for i in range(3000):
        exec(f"def place_{i}(): return 1\nplace_{i}()", globals())
    tracer.obey(Request(2, False))
    print(json.dumps(recorded(tracer.ring.path)))


def play_threads(tracer):
    """More than the table has room for."""
    tracer.obey(Request(1, True, FOLLOW, size_mb=1))
    for _ in range(1100):
        worker = threading.Thread(target=leaf, name="brief")
        worker.start()
        worker.join()
    outer(0)
    tracer.obey(Request(2, False))
    print(json.dumps(recorded(tracer.ring.path)))


def play_background(tracer):
    """Switched by another thread while the main one works, as the heartbeat does it."""
    import _thread

    def until(condition):
        while not condition():
            many(10)

    _thread.start_new_thread(tracer.obey, (Request(1, True, FOLLOW),))
    until(lambda: tracer.ring is not None and tracer.ring.words[32] > 1000)
    on = any(installed())
    _thread.start_new_thread(tracer.obey, (Request(2, False),))
    until(lambda: tracer.hook is None and not any(installed()))
    print(json.dumps({**recorded(tracer.ring.path), "on": on, "installed": installed()}))


def play_native(tracer):
    """A thread that C made, as autograd's are: it has a Python state, and threading does not know it."""
    import ctypes

    tracer.obey(Request(1, True, FOLLOW))
    ready, go, done = threading.Event(), threading.Event(), threading.Event()

    def run(_):
        ready.set()
        go.wait()
        outer(0)
        done.set()
        return None

    callback = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(run)
    thread = ctypes.c_ulong()
    assert ctypes.CDLL(None).pthread_create(ctypes.byref(thread), None, callback, None) == 0
    ready.wait()
    tracer.tick()  # as the heartbeat does once a second
    go.set()
    done.wait()
    ctypes.CDLL(None).pthread_join(thread, None)
    tracer.obey(Request(2, False))
    print(json.dumps({**recorded(tracer.ring.path), "installed": installed()}))


def play_others(tracer):
    """The job has a profiler of its own in one thread: it is left alone, and goes on after the stop."""
    seen = []
    sys.setprofile(
        lambda frame, event, arg: seen.append(event) if frame.f_code.co_name == "leaf" else None
    )
    mine = sys.getprofile()
    tracer.obey(Request(1, True, FOLLOW))
    leaf()
    worker = threading.Thread(target=in_thread, name="worker")
    worker.start()
    worker.join()
    tracer.obey(Request(2, False))
    kept = sys.getprofile() is mine
    sys.setprofile(None)
    print(
        json.dumps(
            {**recorded(tracer.ring.path), "kept": kept, "seen": seen, "installed": installed()}
        )
    )


def play_write(tracer):
    """Until it is killed."""
    tracer.obey(Request(1, True, FOLLOW, size_mb=1))
    many(1000)
    print(tracer.ring.path, flush=True)
    while True:
        many(1000)


def main():
    globals()["play_" + WHAT](Tracer(BoxWriter(FOLDER, "job")))


main()
