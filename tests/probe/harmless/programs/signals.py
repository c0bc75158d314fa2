"""Would notice signals that get lost, kill, interrupt nothing or run a handler in another place or order."""

import os
import select
import signal
import subprocess
import sys
import threading
import time

import witness

USR1, USR2 = signal.SIGUSR1, signal.SIGUSR2

# Blocked and waited for: a thread that does not block it would take it, and the process would end.
signal.pthread_sigmask(signal.SIG_BLOCK, {USR1, USR2, signal.SIGTERM})
for number in (USR1, signal.SIGTERM, USR2):
    os.kill(os.getpid(), number)
    print("waited", signal.sigwait({number}).name)
witness.note("blocked")

# A child has the mask of its parent, and no more.
print(
    subprocess.run(
        [sys.executable, "-c", "import signal; print(sorted(signal.pthread_sigmask(0, [])))"],
        capture_output=True,
        text=True,
    ).stdout
)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {USR1, USR2, signal.SIGTERM})

# Handlers run in the main thread, in order, and interrupt what sleeps.
order = []
for number in (USR1, USR2, signal.SIGALRM):
    signal.signal(number, lambda n, frame: order.append((n, threading.current_thread().name)))
os.kill(os.getpid(), USR1)
signal.raise_signal(USR2)
signal.setitimer(signal.ITIMER_REAL, 0.05)
signal.pause()
print(order)


class Stop(Exception):
    pass


def stop(number, frame):
    raise Stop(number)


signal.signal(signal.SIGALRM, stop)
for work in (
    lambda: time.sleep(30),
    lambda: select.select([], [], [], 30),
    lambda: [None for _ in iter(int, 1)],
):
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        work()
    except Stop as error:
        print("stopped by", error)

# A wake-up descriptor and a child's end.
reading, writing = os.pipe()
os.set_blocking(writing, False)
signal.set_wakeup_fd(writing)
signal.signal(signal.SIGCHLD, lambda *_: None)
child = subprocess.Popen(["true"])
child.wait()
print(os.read(reading, 10))
signal.set_wakeup_fd(-1)
try:
    print(os.waitpid(-1, 0))
except ChildProcessError as error:
    print("no child of anybody else's:", error)
witness.note("end")
os.kill(os.getpid(), signal.SIGHUP)
