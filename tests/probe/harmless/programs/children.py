"""Would notice children (fork, spawn, exec, with and without closed descriptors) that inherit something more or start otherwise."""

import os
import subprocess
import sys

import witness

if len(sys.argv) > 1:
    witness.note(sys.argv[1])
    if sys.argv[1] == "exec one":
        os.environ["TURN"] = "2"
        os.execv(sys.executable, [sys.executable, "-W", "error", __file__, "exec two"])
    print(sys.argv[1], sys.flags.no_site, flush=True)
    sys.exit(5)

me = [sys.executable, __file__]
witness.note("parent")
for close in (True, False):
    print(subprocess.run([*me, f"closed {close}"], close_fds=close).returncode)
print(
    subprocess.run(
        [*me, "new session"], start_new_session=True, env=os.environ | {"MORE": "1"}
    ).returncode
)
kept = {name: os.environ[name] for name in ("PATH", "WITNESS")}
print(
    subprocess.run(
        [*me, "bare"], env=kept | {"PYTHONPATH": os.path.dirname(witness.__file__)}
    ).returncode
)
print(
    os.waitstatus_to_exitcode(
        os.waitpid(os.posix_spawn(sys.executable, [*me, "posix_spawn"], os.environ), 0)[1]
    )
)
print(os.system("ls -l /proc/self/fd | grep -c ' [0-9]* -> '"))
pid = os.fork()
if not pid:
    witness.note("forked")
    grandchild = os.fork()
    if not grandchild:
        witness.note("forked twice")
        os._exit(3)
    print(os.waitpid(grandchild, 0)[1], flush=True)
    sys.exit(4)
print(os.waitpid(pid, 0)[1])
pid = os.fork()
if not pid:  # as daemons do: everything is closed, and the numbers are used again
    os.closerange(3, 64)
    log = [os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND) for _ in range(12)]
    if not os.fork():
        os.write(log[0], b"".join(b"%d" % os.write(fd, b"line\n") for fd in log))
        os._exit(0)
    os.wait()
    os.write(log[1], b"end\n")
    os._exit(0)
print(os.waitpid(pid, 0)[1])
# The same without a fork before it: what the descriptors' numbers stand for now is the job's.
os.closerange(3, 64)
log = [os.open("log2", os.O_WRONLY | os.O_CREAT | os.O_APPEND) for _ in range(12)]
if not os.fork():
    sys.stdout.flush()
    os.writev(log[-1], [b"%d " % os.write(fd, b"child\n") for fd in log])
    sys.exit(0)
print(os.wait()[1], [os.write(fd, b"parent\n") for fd in log])
for fd in log:
    os.close(fd)
sys.stdout.flush()
os.execv(sys.executable, [sys.executable, __file__, "exec one"])
