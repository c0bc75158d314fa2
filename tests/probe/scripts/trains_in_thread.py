"""Three ranks that train in a thread, as Ray's workers do; then the main thread ends the process well.

"hang": rank 1 waits for an event that none sets, the others for it in an all_reduce. "whole": the training ends first.
"""

import os
import sys
import threading

import torch
import torch.distributed as dist

at_rest = threading.Event()


def train(hang: bool) -> None:
    dist.init_process_group("gloo")
    for _ in range(5):
        dist.all_reduce(torch.ones(2))
    at_rest.set()
    if not hang:
        return
    if dist.get_rank() == 1:
        threading.Event().wait()
    dist.all_reduce(torch.ones(2))


thread = threading.Thread(target=train, args=(sys.argv[1] == "hang",), daemon=True)
thread.start()
at_rest.wait()
if sys.argv[1] != "hang":
    thread.join()
print("at rest", flush=True)
sys.stdin.readline()
# gloo's threads abort some exits in the middle of an operation; what is at exit has run before.
os.close(1)
os.close(2)
sys.exit(0)
