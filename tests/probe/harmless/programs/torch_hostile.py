"""Would notice ranks that change the process below torch (root, memory, rights, clocks, modules, descriptors) and then go on otherwise."""

import atexit
import builtins
import ctypes
import gc
import os
import resource
import signal
import sys
import threading
import time
import types

import torch
import torch.distributed as dist
import witness

t = torch.ones(2)
LIBC = ctypes.CDLL(None, use_errno=True)


def join():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    dist.all_reduce(t)


def goes_on(sizes=40):
    """Signatures and lines that were not seen before, handles, groups."""
    for size in range(1, sizes):
        dist.all_reduce(torch.ones(size))
    work = dist.all_reduce(t, async_op=True)
    work.wait()
    group = dist.new_group([0])
    dist.broadcast(t, 0, group=group)
    dist.destroy_process_group(group)
    dist.all_gather_object([None], {"a": 1})
    print("goes on", t.tolist(), flush=True)


def another_root():
    join()
    os.mkdir("root")
    if os.getuid() == 0:
        os.chroot("root")
        os.chdir("/")
    goes_on()
    print(sorted(os.listdir("/")) if os.getuid() == 0 else [], flush=True)


def closes_all_descriptors():
    join()
    dist.destroy_process_group()
    os.closerange(3, 4096)
    with open("mine", "w+b") as mine:
        mine.write(b"mine alone")
        mine.flush()
        goes = [dist.all_reduce] and os.listdir("/proc/self/fd")
        time.sleep(1.2)  # a beat of the probe's own thread
        print(len(goes) < 6, os.path.getsize("mine"))
        mine.seek(0)
        print(mine.read())
    join()
    goes_on()


def little_memory():
    join()
    with open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    kept, refused = [], []
    resource.setrlimit(resource.RLIMIT_AS, (used + (24 << 20), limits[1]))
    try:
        for _ in range(4000):
            kept.append(bytearray(1 << 18))
    except MemoryError:
        del kept[-32:]  # for what torch itself needs
        kept.append(None)
    for _ in range(200):
        try:
            dist.barrier()
            dist.all_reduce(t, async_op=True).wait()
        except (MemoryError, RuntimeError) as error:
            refused.append(type(error).__name__)
    full = kept[-1] is None
    kept.clear()
    resource.setrlimit(resource.RLIMIT_AS, limits)
    print("full", full, sorted(set(refused)) in ([], ["MemoryError"], ["RuntimeError"]))
    goes_on()


def locks_its_memory():
    """The stacks of the probe's threads are locked too, 8 MB each: that is not compared."""
    join()
    print(LIBC.mlockall(3))
    goes_on()
    print(LIBC.munlockall())


def no_more_threads():
    """As a user, with a limit on processes that is reached."""
    if os.getuid() == 0:
        os.setgid(65533)
        os.setuid(65533)
    resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
    try:
        threading.Thread(target=print).start()
        print("a thread")
    except RuntimeError as error:
        print(error)
    try:
        join()
        goes_on()
    except RuntimeError as error:
        print(type(error).__name__, "Resource temporarily" in str(error))


def undumpable():
    """/proc/self is root's then."""
    if os.getuid() == 0:
        os.setgid(65533)
        os.setuid(65533)
    print(LIBC.prctl(4, 0, 0, 0, 0))
    join()
    goes_on()
    print(LIBC.prctl(3, 0, 0, 0, 0))


def keeps_all_garbage():
    join()
    goes_on()
    gc.collect()
    gc.freeze()
    gc.set_debug(gc.DEBUG_SAVEALL)
    for size in range(60, 90):
        dist.all_reduce(torch.ones(size))
        dist.all_reduce(torch.ones(size), async_op=True).wait()
        dist.all_reduce(torch.ones(size), async_op=True)
    gc.collect()
    print(sorted({type(x).__name__ for x in gc.garbage}))
    gc.set_debug(0)
    gc.garbage.clear()
    gc.unfreeze()
    before = [sys.getrefcount(x) for x in (None, t, dist.all_reduce, dist.ReduceOp.SUM)]
    for _ in range(500):
        dist.all_reduce(t, dist.ReduceOp.SUM)
    after = [sys.getrefcount(x) for x in (None, t, dist.all_reduce, dist.ReduceOp.SUM)]
    print([abs(a - b) < 100 for a, b in zip(before, after, strict=True)])


def frozen_clocks():
    """As libraries of tests do: in every module, under whatever name it has them."""
    join()
    real = {id(f): n for n, f in vars(time).items() if isinstance(f, types.BuiltinFunctionType)}
    fakes = {
        "time": lambda: 0.0,
        "time_ns": lambda: 0,
        "monotonic": lambda: 0.0,
        "monotonic_ns": lambda: 0,
        "perf_counter": lambda: 0.0,
        "perf_counter_ns": lambda: 0,
    }
    changed = []
    for module in list(sys.modules.values()):
        for name, value in list(vars(module).items() if hasattr(module, "__dict__") else ()):
            fake = fakes.get(real.get(id(value), ""))
            if fake is not None:
                changed.append((module, name, value))
                setattr(module, name, fake)
    goes_on()
    for module, name, value in changed:
        setattr(module, name, value)
    print(len(changed) > 10)


class Odd:
    """Raises whatever it is asked for."""

    def __getattribute__(self, name):
        raise RuntimeError(f"asked for {name}")


def odd_modules():
    sys.modules["torch.distributed.odd"] = Odd()
    sys.modules["none"] = None
    sys.modules["0"] = 17
    join()
    real, asked = builtins.__import__, []

    def restricted(name, *args, **kwargs):
        if name.split(".")[0] in ("socket", "json", "ctypes", "subprocess", "hangdoctor"):
            asked.append(name)
            raise ImportError(f"no {name} here")
        return real(name, *args, **kwargs)

    builtins.__import__ = restricted
    try:
        goes_on()
    finally:
        builtins.__import__ = real
    print([name for name in asked if name == "hangdoctor"])
    for name in ("torch.distributed.odd", "none", "0"):
        del sys.modules[name]


def many_threads():
    join()
    groups = [dist.new_group([0]) for _ in range(8)]
    begun, go = threading.Barrier(401), threading.Event()
    counted = []

    def work(number):
        begun.wait(60)
        go.wait(60)
        for _ in range(5):
            dist.all_reduce(torch.ones(number % 50 + 1), group=groups[number % 8])
        counted.append(number)

    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=work, args=(n,)) for n in range(400)]
    for thread in threads:
        thread.start()
    begun.wait(60)
    go.set()
    for thread in threads:
        thread.join(60)
    sys.setswitchinterval(0.005)
    print(len(counted), threading.active_count())


def forks_in_threads():
    """Children of a thread, while others are in the middle of operations; the children use the group on."""
    join()
    over, codes = threading.Event(), []

    def works():
        while not over.is_set():
            dist.all_reduce(torch.ones(3))

    def forks():
        for _ in range(10):
            pid = os.fork()
            if pid == 0:
                dist.is_initialized()
                dist.get_rank()
                os._exit(7)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

    sys.setswitchinterval(1e-5)
    workers = [threading.Thread(target=works) for _ in range(2)]
    forker = threading.Thread(target=forks)
    for thread in [*workers, forker]:
        thread.start()
    forker.join(60)
    over.set()
    for thread in workers:
        thread.join(60)
    sys.setswitchinterval(0.005)
    print(codes)
    goes_on()


def ends_with_threads_at_work():
    join()

    def works():
        while True:
            dist.all_reduce(torch.ones(3))

    for _ in range(3):
        threading.Thread(target=works, daemon=True).start()
    time.sleep(0.2)
    print("ends now", flush=True)


def raises_in_handlers():
    """Exceptions by a timer of a thousandth of a second, in new signatures, handles and groups."""
    join()
    caught = 0

    def handler(number, frame):
        raise TimeoutError

    signal.signal(signal.SIGALRM, handler)
    size = 100
    while caught < 150:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.001)
            while True:
                size += 1
                dist.all_reduce(torch.ones(size))
                dist.all_reduce(t, async_op=True).wait()
        except TimeoutError:
            caught += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    print("caught", caught)
    goes_on()


def run(way):
    """In a forked child, which ends as a process does."""
    print("==", way.__name__, flush=True)
    print("==", way.__name__, file=sys.stderr, flush=True)
    pid = os.fork()
    if pid:
        print("ended with", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
        return
    way()
    if way not in (another_root, locks_its_memory, no_more_threads, undumpable, many_threads):
        witness.note(way.__name__)
    if way is ends_with_threads_at_work:
        sys.exit(0)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(0)


for each in (
    another_root,
    closes_all_descriptors,
    little_memory,
    locks_its_memory,
    no_more_threads,
    undumpable,
    keeps_all_garbage,
    frozen_clocks,
    odd_modules,
    many_threads,
    forks_in_threads,
    ends_with_threads_at_work,
    raises_in_handlers,
):
    run(each)
