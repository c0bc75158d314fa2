"""Would notice workers of multiprocessing (fork, spawn, forkserver) that start, inherit, answer or end otherwise."""

import multiprocessing
import os
import sys
from multiprocessing import shared_memory

import witness


def double(x):
    return 2 * x


def worker(name, queue):
    witness.note(name)
    queue.put((name, sys.argv, multiprocessing.current_process().name))


def fails():
    raise ValueError("in a worker")


if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        process = context.Process(target=worker, args=(method, queue))
        process.start()
        print(queue.get(timeout=60))
        process.join()
        broken = context.Process(target=fails)
        broken.start()
        broken.join()
        print(method, process.exitcode, broken.exitcode)
        with context.Pool(2) as pool:
            print(pool.map(double, range(5)))
        block = shared_memory.SharedMemory(create=True, size=100)
        block.buf[0] = 7
        block.close()
        block.unlink()
    with multiprocessing.Manager() as manager:
        shared = manager.dict(a=1)
        print(dict(shared))
    print(multiprocessing.active_children())
    witness.note("parent")
    if os.fork() == 0:
        sys.exit(0)
    print(os.wait()[1])
