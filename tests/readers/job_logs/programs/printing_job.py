"""Ranks that print what they do, of which one leaves a batch out: ``printing_job.py FOLDER``.

Without a word for the rank by the launcher: the program's own logger names it, as ``worker1``.
"""

import logging
import os
from datetime import timedelta

import torch
import torch.distributed as dist

RANK = int(os.environ["RANK"])
LOG = logging.getLogger(f"worker{RANK}")


def batches(count):
    for number in range(count):
        if RANK == 1 and number == 12:
            LOG.warning("batch %d dropped: no labels in it", number)
            continue
        yield number


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    dist.init_process_group("gloo", timeout=timedelta(seconds=float(os.environ["LIMIT_S"])))
    for number in batches(40):
        total = torch.ones(1)
        dist.all_reduce(total)
        LOG.info("batch %d loss %.4f", number, float(total) / (number + 1))
    LOG.info("all batches done, %d in all", 40)
    dist.all_reduce(torch.ones(1))


main()
