"""A training of two ranks whose other threads poll: `polling_job.py CONTROL [store] [group]`, the
probe in it.

`store`: a thread asks a store for a key each second, as torch's elastic agent does; `group`: a
thread meets its peer in a group of its own. Rank 1's next batch does not come while CONTROL/loader
exists. `at.RANK`: its steps.
"""

import os
import sys
import threading
import time
from pathlib import Path

import hangdoctor.probe

hangdoctor.probe.install()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

control, polls = Path(sys.argv[1]), sys.argv[2:]
rank = int(os.environ["RANK"])


def poll_store() -> None:
    store = dist.distributed_c10d._get_default_store()
    while True:
        store.set("beat", "1")
        store.get("beat")
        time.sleep(0.5)


def poll_group(group: dist.ProcessGroup) -> None:
    while True:
        dist.all_reduce(torch.ones(1), group=group)
        time.sleep(0.5)


def load_batch() -> torch.Tensor:
    while rank == 1 and (control / "loader").exists():
        time.sleep(0.1)
    time.sleep(0.1)
    return torch.ones(4)


def main() -> None:
    dist.init_process_group("gloo")
    side = dist.new_group([0, 1])
    if "store" in polls:
        threading.Thread(target=poll_store, daemon=True).start()
    if "group" in polls:
        threading.Thread(target=poll_group, args=(side,), daemon=True).start()
    number = 0
    while True:
        dist.all_reduce(load_batch())
        number += 1
        if number % 10 == 0:
            part = control / f".at.{rank}"
            part.write_text(str(number))
            part.rename(control / f"at.{rank}")


main()
