"""Would notice profilers, debuggers, coverage or memory tools of the job that see, count or print something else."""

import bdb
import collections
import cProfile
import faulthandler
import io
import pstats
import sys
import threading
import time
import trace
import tracemalloc

import witness

HERE = __file__


def work(n):
    return sum(map(helper, range(n)))


def helper(n):
    return n * n


def counts(install, remove):
    """Events in this file, by kind and name."""
    seen = collections.Counter()

    def see(frame, event, arg):
        if frame.f_code.co_filename == HERE:
            seen[event, frame.f_code.co_name] += 1
        return see

    install(see)
    work(5)
    remove(None)
    return sorted((k, v) for k, v in seen.items() if k[1] not in ("counts",))


# Put away and put back, as profilers do that suspend each other.
before = sys.getprofile()
sys.setprofile(None)
work(2)
sys.setprofile(before)
print("put back", work(3))
before = threading.getprofile()
threading.setprofile(None)
threading.setprofile(before)
thread = threading.Thread(target=work, args=(3,))
thread.start()
thread.join()

print("profile", counts(sys.setprofile, sys.setprofile))
print("trace", counts(sys.settrace, sys.settrace))
print(sys.gettrace(), threading.gettrace())

profile = cProfile.Profile()
profile.runcall(work, 7)
text = io.StringIO()
stats = pstats.Stats(profile, stream=text)
print("cProfile", sorted((k[2], v[0], v[1]) for k, v in stats.stats.items() if k[0] == HERE))

tracer = trace.Trace(count=1, trace=0)
tracer.runfunc(work, 4)
print(
    "lines",
    sorted((line, n) for (file, line), n in tracer.results().counts.items() if file == HERE),
)

in_thread = []
threading.setprofile(
    lambda frame, event, arg: (
        in_thread.append(frame.f_code.co_name) if frame.f_code.co_filename == HERE else None
    )
)
thread = threading.Thread(target=work, args=(2,))
thread.start()
thread.join()
threading.setprofile(None)
print("thread", in_thread)


class Debugger(bdb.Bdb):
    steps = 0

    def user_line(self, frame):
        if frame.f_code.co_filename == HERE:
            self.steps += 1
        self.set_step()


debugger = Debugger()
debugger.runcall(work, 3)
print("debugger", debugger.steps)

tracemalloc.start(3)
kept = [bytes(1000) for _ in range(1000)]
mine = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, HERE)])
print("tracemalloc", [s.count for s in mine.statistics("filename")][0] // 100)
tracemalloc.stop()

with open("frames", "w+") as file:
    faulthandler.dump_traceback(file, all_threads=False)
faulthandler.dump_traceback_later(0.05, file=sys.stderr, exit=False)
time.sleep(0.2)
faulthandler.cancel_dump_traceback_later()
time.sleep(1.2)  # the heartbeat has looked after the threads once more
print("after", work(5), counts(sys.setprofile, sys.setprofile))
witness.note("end")
