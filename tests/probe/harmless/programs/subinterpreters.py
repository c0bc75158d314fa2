"""Would notice sub-interpreters, embedded or ended ones included, that start, import or end otherwise."""

import _xxsubinterpreters as interpreters
import threading

import witness

CODE = """
import sys, os, threading, atexit
print(len(sys.path) > 2, [m for m in sys.modules if m == "threading"], sys.getprofile() is None)
atexit.register(print, "end of a sub-interpreter")
def f(n): return n and f(n - 1)
f(5)
t = threading.Thread(target=f, args=(3,)); t.start(); t.join()
import json, asyncio
print(json.dumps([1]))
"""
for n in range(3):
    one = interpreters.create(isolated=False)
    interpreters.run_string(one, CODE)
    try:
        interpreters.run_string(one, "1/0")
    except interpreters.RunFailedError as error:
        print(error)
    thread = threading.Thread(
        target=interpreters.run_string,
        args=(one, "print('in a thread'); import os; print(os.getpid() > 0)"),
    )
    thread.start()
    thread.join()
    if n < 2:
        interpreters.destroy(one)
witness.note("end")
