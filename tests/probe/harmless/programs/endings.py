"""Would notice an end of a process (exit, exception, signal, os._exit, exec) with another code, output or order of handlers."""

import os
import subprocess
import sys

HEAD = """
import atexit, os, signal, sys, threading, time, weakref
class Late:
    def __del__(self): print("deleted", flush=True)
late = Late(); late.itself = late
late2 = Late()
for n in range(3): atexit.register(print, "atexit", n)
print("begin")
"""
WAYS = {
    "return": "",
    "code": "sys.exit(3)",
    "text": "sys.exit('words')",
    "none": "sys.exit(None)",
    "exception": "raise ValueError('mine')",
    "chained": "\ntry: 1/0\nexcept Exception as e: raise KeyError('k') from e",
    "os._exit": "sys.stdout.flush(); os._exit(4)",
    "SIGTERM": "os.kill(os.getpid(), signal.SIGTERM); time.sleep(9)",
    "SIGKILL": "sys.stdout.flush(); os.kill(os.getpid(), signal.SIGKILL)",
    "abort": "sys.stdout.flush(); os.abort()",
    "interrupt": "raise KeyboardInterrupt",
    "SIGINT": "os.kill(os.getpid(), signal.SIGINT); time.sleep(9)",
    "in atexit": "atexit.register(lambda: 1/0)",
    "exit in atexit": "atexit.register(lambda: os._exit(9))",
    "no atexit": "atexit._clear(); print(atexit._ncallbacks())",
    "run atexit": "atexit._run_exitfuncs()",
    "thread": "threading.Thread(target=lambda: (time.sleep(0.2), print('thread ends'))).start()",
    "daemon": "threading.Thread(target=lambda: time.sleep(99), daemon=True).start()",
    "thread fails": "threading.Thread(target=lambda: 1/0).start()",
    "hook": "sys.excepthook = lambda *a: print('hook', a[0]); raise OSError(5, 'x')",
    "exec": "sys.stdout.flush(); os.execv(sys.executable, [sys.executable, '-c', 'print(\\'other\\')'])",
    "closed": "sys.stdout.close()",
    "group": "raise ExceptionGroup('several', [ValueError(1), TypeError(2)])",
    "deep": "\ndef f(n): return f(n + 1)\ntry: f(0)\nexcept RecursionError as e: print(str(e)[:40])",
    "memory": "\ntry: bytearray(1 << 62)\nexcept MemoryError as e: print('no memory')",
    "SystemExit odd": "raise SystemExit([1, 2])",
    "fork": "print(os.fork() > 0); sys.exit(6)",
    "unraisable": "\nclass B:\n  def __del__(self): raise ValueError('in del')\nB()",
}

running = {
    name: subprocess.Popen(
        [sys.executable, "-c", HEAD + how],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"RANK": str(rank), "WORLD_SIZE": "99"},
    )
    for rank, (name, how) in enumerate(WAYS.items())
}
for name, process in running.items():
    out, err = process.communicate(timeout=60)
    print(name, process.returncode, sorted(out.split("\n")) if name == "fork" else out)
    print(name, err, file=sys.stderr)

os.environ["RANK"] = "98"
code = f"import witness; witness.note('last'); {WAYS['chained']}"
sys.exit(subprocess.run([sys.executable, "-c", code]).returncode)
