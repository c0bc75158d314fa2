"""Would notice ranks that end, fork, exec, get signals, give up rights or meet limits in the middle of their work, otherwise."""

import asyncio
import atexit
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import warnings

import torch
import torch.distributed as dist
import witness

t = torch.ones(2)


def join():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    dist.all_reduce(t)


def returns():
    atexit.register(print, "atexit, from before")
    join()
    atexit.register(print, "atexit, from after")


def fails():
    join()
    raise ValueError("mine")


def exits():
    join()
    sys.exit(5)


def leaves():
    join()
    os._exit(6)


def terminated():
    join()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(30)


def interrupted():
    join()
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError("alarm")))
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.01)
    caught = 0
    while caught < 20:
        try:
            while True:
                dist.all_reduce(t)
        except TimeoutError:
            caught += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    dist.all_reduce(t)
    print("interrupted", caught)


def executes():
    join()
    os.execv(
        sys.executable,
        [sys.executable, "-c", "import os; print(sorted(os.listdir('/proc/self/fd')))"],
    )


def forks():
    join()
    if os.fork() == 0:
        print("in a child", dist.is_initialized(), flush=True)
        os._exit(3)
    print(os.wait()[1])
    print(
        subprocess.run(
            [sys.executable, "-c", "print('from a child')"], capture_output=True, close_fds=False
        ).stdout
    )


def limited(what, value):
    def run():
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(what, (value, resource.getrlimit(what)[1]))
        join()
        print("limited", t)

    return run


def few_descriptors():
    used = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 16, 20000))
    join()
    print("few", t)


def gives_up_rights():
    if os.getuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    join()
    print("rights", t)


def small_stacks():
    threading.stack_size(64 << 10)
    join()
    thread = threading.Thread(target=print, args=("in a small stack", threading.stack_size()))
    thread.start()
    thread.join()


def waits_for_signals():
    join()
    signal.signal(signal.SIGUSR1, lambda *_: print("handled in", threading.current_thread().name))
    for _ in range(50):
        os.kill(os.getpid(), signal.SIGUSR1)
    time.sleep(0.1)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)


def loops():
    async def main():
        loop = asyncio.get_running_loop()
        loop.slow_callback_duration = 60  # what a busy machine does is not compared
        loop.add_signal_handler(signal.SIGUSR2, print, "in the loop")
        os.kill(os.getpid(), signal.SIGUSR2)
        process = await asyncio.create_subprocess_exec(
            "echo", "from a process", stdout=subprocess.PIPE
        )
        out, _ = await process.communicate()
        work = dist.all_reduce(t, async_op=True)
        await loop.run_in_executor(None, work.wait)
        await asyncio.gather(*(asyncio.to_thread(dist.all_reduce, torch.ones(2)) for _ in range(8)))
        print(out, t, len(asyncio.all_tasks()))

    join()
    asyncio.run(main(), debug=True)


def strict():
    warnings.simplefilter("error")
    sys.tracebacklimit = 3
    join()
    dist.destroy_process_group()
    join()
    dist.destroy_process_group()
    os.chdir(os.environ["TMPDIR"])
    kept = dict(os.environ)
    os.environ.clear()
    join()
    os.environ.update(kept)


def without_exit_handlers():
    join()
    atexit._clear()


def deep():
    join()

    def down(n):
        return dist.all_reduce(t) if n == 0 else down(n - 1)

    down(900)
    try:
        down(5000)
    except RecursionError:
        print("too deep")
    dist.all_reduce(t)


WAYS = [
    returns,
    fails,
    exits,
    leaves,
    terminated,
    interrupted,
    executes,
    forks,
    few_descriptors,
    gives_up_rights,
    small_stacks,
    waits_for_signals,
    loops,
    strict,
    without_exit_handlers,
    deep,
]
LIMITS = {
    "file size": (resource.RLIMIT_FSIZE, 1 << 20),
    "core": (resource.RLIMIT_CORE, 0),
    "locked": (resource.RLIMIT_MEMLOCK, 0),
}
for name, (what, value) in LIMITS.items():
    WAYS.append(limited(what, value))
    WAYS[-1].__name__ = name


def run(way):
    """In a forked child, which ends as a process does."""
    print("==", way.__name__, flush=True)
    print("==", way.__name__, file=sys.stderr, flush=True)
    pid = os.fork()
    if pid:
        print("ended with", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
        return
    way()
    if way.__name__ != "gives_up_rights":
        witness.note(way.__name__)
    if way in (returns, without_exit_handlers):
        sys.exit(0)
    atexit._run_exitfuncs()  # the rest of a torch process's end takes a second
    sys.stdout.flush()
    os._exit(0)


for each in WAYS:
    run(each)
