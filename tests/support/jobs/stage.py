"""A real gloo job that plays one scenario after another, each a hang in one rank, until it is released.

The test writes ``cmd.<n>`` ({"scenario", "rank"}) into the folder given as the argument; every rank
plays scenario n, says ``at.<n>.<rank>`` just before it gets to its place, and ``done.<n>.<rank>`` when
it is through. SIGUSR1 ends a Python-level block; other blocks are released as each scenario says.
"""

import array
import contextlib
import fcntl
import itertools
import json
import os
import pdb
import queue
import signal
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional_collectives

from hangdoctor.train.faults import acts

HERE = Path(sys.argv[1])
KEPT = []  # locks that a scenario leaves held until the next one
LOCKING = fcntl.lockf if os.environ.get("STAGE_LOCKF") else fcntl.flock
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


class Released(Exception):
    pass


def on_release(signum, frame):
    raise Released


def say(n, word):
    (HERE / f"{word}.{n}.{RANK}").write_text(str(os.getpid()))


def step(n):
    dist.all_reduce(torch.ones(4))


# ---- what the faulty rank does instead of the step; each name is a scenario ---------------------------


def sleep(n):
    acts.sleep()


def infinite_loop(n):
    acts.spin()


def blocked_read(n):
    acts.read_fifo(HERE / "fifo.read")


def lock(n):
    acts.lock_twice()


class StuckDataset(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        if i >= 2:
            acts.open_fifo(HERE / "fifo.data")
        return torch.ones(1)


def load_worker_stuck(n):
    for _ in torch.utils.data.DataLoader(StuckDataset(), num_workers=1):
        pass


def load_in_process_stuck(n):
    for _ in torch.utils.data.DataLoader(StuckDataset(), num_workers=0):
        pass


def save_checkpoint(n):
    torch.save({"weights": torch.ones(1000)}, str(HERE / "fifo.checkpoint"))


def uninterruptible(n):
    acts.enter_state_d()


def gil_held(n):
    acts.hold_gil()


def fork_with_lock(n):
    acts.fork_with_lock()


def dead_child(n):
    acts.dead_child()


def stopped_child(n):
    acts.stopped_child()


def endless_command(n):
    acts.endless_command()


def full_pipe(n):
    acts.write_pipe()


def locked_file(n):
    acts.lock_file_twice(HERE / "cache.lock")


def take_lock(n):
    """The lock that `wait_for_lock` waits for, said in a file once it is held."""
    handle = (HERE / f"shared.lock.{n}").open("w")
    LOCKING(handle, fcntl.LOCK_EX)
    (HERE / f"held.{n}").write_text("")
    return handle


def hold_lock_and_run(n):
    with take_lock(n):
        acts.endless_command()


def hold_lock_into_step(n):
    KEPT.append(take_lock(n))


def wait_for_lock(n):
    while not (HERE / f"held.{n}").exists():
        time.sleep(0.02)
    with (HERE / f"shared.lock.{n}").open("w") as handle:
        LOCKING(handle, fcntl.LOCK_EX)


def from_terminal(act):
    """Standard input that stays open and says nothing, as a terminal that no one sits at."""
    before, open_end = os.dup(0), os.open(HERE / "fifo.read", os.O_RDWR)
    os.dup2(open_end, 0)
    try:
        act()
    finally:
        os.dup2(before, 0)
        os.close(before)
        os.close(open_end)


def write_now_and_then(go_on):
    """A few bytes ten times a second, as a thread does that says that its process lives."""
    with (HERE / "beats").open("w") as beats:
        while go_on.is_set():
            beats.write("beat")
            beats.flush()
            time.sleep(0.1)


def save_behind_lock(n):
    """Waits in a checkpoint for a file lock, while a thread of the process writes a little."""
    go_on = threading.Event()
    go_on.set()
    thread = threading.Thread(target=write_now_and_then, args=(go_on,))
    thread.start()
    try:
        save_checkpoint_alone(n)
    finally:
        go_on.clear()
        thread.join()


def save_checkpoint_alone(n):
    acts.lock_file_twice(HERE / "cache.lock")


def write_parts(n):
    """Writes one part after the other to the disk, as a slow checkpoint does, until it is released."""
    part = bytes(1 << 20)
    for i in itertools.count():
        with (HERE / f"part.{i % 2}").open("wb") as f:
            f.write(part)
            f.flush()
            os.fsync(f.fileno())


def full_queue(n):
    acts.put_into_full_queue()


def empty_queue(n):
    """Takes from a queue that a thread, which waits too, should fill."""
    done = threading.Event()
    filler = threading.Thread(target=done.wait, name="filler")
    filler.start()
    try:
        queue.Queue().get()
    finally:
        done.set()
        filler.join()


def until_full(pipe):
    """Polls, so that the rank is not at rest before the writer waits."""
    room, waiting = fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ), array.array("i", [0])
    while waiting[0] < room:
        time.sleep(0.02)
        fcntl.ioctl(pipe, termios.FIONREAD, waiting)


def pipe_not_read(n):
    """Waits for a child that writes more into its pipe than fits, and does not read."""
    with subprocess.Popen(
        [sys.executable, "-c", 'import sys\nsys.stdout.write("x" * 200_000)'],
        stdout=subprocess.PIPE,
    ) as child:
        until_full(child.stdout.fileno())
        child.wait()


def typed_input(n):
    from_terminal(lambda: input("continue? "))


def forgotten_breakpoint(n):
    from_terminal(pdb.set_trace)


def lock_of_a_thread(n):
    acts.lock_of_a_thread()


def skipped_operation(n):
    """Stands in a later collective than the others."""
    dist.broadcast(torch.ones(4), 0)


def train(n):
    """Runs until the test says stop, as a healthy job does; the ranks agree on it, so that none leaves alone."""
    while True:
        step(n)
        flag = torch.tensor([0.0 if (HERE / f"stop.{n}").exists() else 1.0])
        dist.all_reduce(flag, op=dist.ReduceOp.MIN)
        if not flag.item():
            return


def slow_steps(n, slow, but_stuck):
    """Steps that one rank delays for 5 s each; after three of them that rank goes on so, or never comes again.

    A dump on a loaded machine takes 4 s: the wait that it sees must be no longer than those before.
    """
    for i in itertools.count():
        if i == 3:
            say(n, "at")
        if slow and i >= 3 and but_stuck:
            with contextlib.suppress(Released):
                acts.sleep()
        if slow:
            time.sleep(5)
        on = torch.tensor([0.0 if (HERE / f"stop.{n}").exists() else 1.0])
        dist.all_reduce(on, op=dist.ReduceOp.MIN)
        if not on.item():
            return


def evaluate_long(n):
    """A slow rank: works through Python functions while the others wait."""
    while True:
        for f in (sorted, list, set):
            _grind(f)


def _grind(f):
    for _ in range(40):
        _part_one(f) if _ % 2 else _part_two(f)


def _part_one(f):
    f(range(30000))


def _part_two(f):
    f(range(30000))


def functional(n, faulty, to_store):
    """Collectives that C++ issues; one rank leaves one out, and is elsewhere then: only there may
    it be released.
    """
    if not faulty:
        say(n, "at")
    for i in range(4):
        if not (faulty and i == 2):
            functional_collectives.wait_tensor(
                functional_collectives.all_reduce(torch.ones(4), "sum", dist.group.WORLD)
            )
    if not faulty:
        return
    say(n, "at")
    if to_store:
        dist.distributed_c10d._get_default_store().get(f"never.{n}")
    with contextlib.suppress(Released):
        time.sleep(3600)
    functional_collectives.wait_tensor(
        functional_collectives.all_reduce(torch.ones(4), "sum", dist.group.WORLD)
    )


def play(n, scenario, rank):
    if scenario in ("functional", "functional_then_store"):
        return functional(n, rank == RANK, scenario == "functional_then_store")
    if scenario == "train":
        say(n, "at")
        return train(n)
    if scenario in ("slow_steps", "slow_then_stuck"):
        return slow_steps(n, rank == RANK, scenario == "slow_then_stuck")
    if scenario == "wrong_group":
        group = GROUPS[1] if rank == RANK else GROUPS[0]
        say(n, "at")
        return dist.all_reduce(torch.ones(4), group=group)
    if scenario == "store_wait":
        store = dist.distributed_c10d._get_default_store()
        say(n, "at")
        return store.get(f"never.{n}")
    if scenario == "leave":
        if rank != RANK:
            say(n, "at")
            acts.exit_at_once()  # torch's gloo aborts some ordinary exits without destroy_process_group
        say(n, "at")
        return threading.Event().wait()
    faulty = [int(r) for r in str(rank).split(",")]
    say(n, "at")
    if RANK in faulty:
        names = scenario.split(",")
        name = names[faulty.index(RANK) % len(names)]
        try:
            globals()[name](n)
        except Released:
            pass
        except Exception as error:
            print(f"rank {RANK}: {name} ended with {error!r}", flush=True)
    step(n)


def main():
    signal.signal(signal.SIGUSR1, on_release)
    if os.environ.get("STAGE_LATE") == str(RANK):
        say(0, "at")
        wait_before_init()
    say(0, "at")
    dist.init_process_group("gloo")
    global GROUPS
    GROUPS = [dist.new_group(list(range(WORLD))), dist.new_group(list(range(WORLD)))]
    step(0)
    say(0, "done")
    n = 1
    while True:
        order = HERE / f"cmd.{n}"
        if not order.exists():
            time.sleep(0.02)
            continue
        wanted = json.loads(order.read_text())
        if wanted["scenario"] == "exit":
            break
        with contextlib.suppress(Released):
            play(n, wanted["scenario"], wanted["rank"])
        while KEPT:
            KEPT.pop().close()
        say(n, "done")
        n += 1
    dist.destroy_process_group()


def wait_before_init():
    acts.sleep()


if __name__ == "__main__":
    main()
