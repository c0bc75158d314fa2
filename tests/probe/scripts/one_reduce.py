"""What a user's training may look like: knows nothing of the probe."""

import os
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
t = torch.ones(2)
dist.all_reduce(t)
boxes = sorted(n for n in os.listdir(os.environ["HANGDOCTOR_DIR"]) if n.endswith(".blackbox"))
sockets = sorted(n for n in os.listdir(os.environ["HANGDOCTOR_DIR"]) if n.endswith(".sock"))
dist.barrier()
if dist.get_rank() == 0:
    import hangdoctor

    print(t.tolist(), len(boxes), len(sockets), sys.argv[1:])
    print(hangdoctor.__file__)
    print(
        getattr(sys, "marked_by_the_users_sitecustomize", None),
        sys.modules["sitecustomize"].__file__,
    )
    print(any("startup" in p for p in sys.path), "torch" in sys.modules, "msgspec" in sys.modules)
dist.barrier()
dist.destroy_process_group()
