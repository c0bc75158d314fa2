"""A small 3D-parallel job without a model: tensor, pipeline and data parallel communication on
gloo, and a fault on request.

    torchrun --nproc_per_node 8 examples/three_d.py --fault 5:3 --how sleep

Eight ranks: tensor parallel pairs, two pipeline stages, two replicas, numbered as Megatron numbers
them. Rank 5 falls asleep in its data loading in iteration 3, and everyone else waits for it sooner
or later.
"""

import argparse
import os
import signal
import time

import torch
import torch.distributed as dist

TP = PP = DP = 2


def make_groups(rank):
    """The tensor and data parallel group of this rank, and its peer in the other pipeline stage."""
    mine = {}
    for name, members in (
        ("tp", [[2 * i, 2 * i + 1] for i in range(4)]),
        ("dp", [[0, 2], [1, 3], [4, 6], [5, 7]]),
    ):
        for ranks in members:
            group = dist.new_group(ranks)  # every rank makes every group, in one order
            if rank in ranks:
                mine[name] = group
    return mine, (rank + 4) % 8


def load_batch(rank, iteration, fault):
    if fault is not None and (rank, iteration) == (fault.rank, fault.iteration):
        print(
            f"fault: {fault.how} at rank {rank} iteration {iteration}, pid {os.getpid()}",
            flush=True,
        )
        if fault.how == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        while True:
            time.sleep(60)
    return torch.randn(64, 64)


def forward_backward(rank, x, groups, peer):
    first_stage = rank < 4
    if first_stage:
        dist.all_reduce(x, group=groups["tp"])
        dist.send(x, peer)
        dist.recv(x, peer)  # the gradient comes back
    else:
        dist.recv(x, peer)
        dist.all_reduce(x, group=groups["tp"])
        dist.send(x, peer)
    return x


def train(rank, iterations, fault):
    groups, peer = make_groups(rank)
    for iteration in range(1, iterations + 1):
        x = load_batch(rank, iteration, fault)
        gradient = forward_backward(rank, x, groups, peer)
        dist.all_reduce(gradient, group=groups["dp"])
        norm = gradient.norm()
        dist.all_reduce(norm, op=dist.ReduceOp.MAX)
        if rank == 0:
            print(
                f" iteration {iteration:8d}/{iterations:8d} | gradient norm: {norm.item():.3f} |",
                flush=True,
            )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--fault", default="5:3", help="RANK:ITERATION, or none")
    parser.add_argument("--how", choices=["sleep", "stop"], default="sleep")
    args = parser.parse_args()
    fault = None
    if args.fault != "none":
        rank, iteration = map(int, args.fault.split(":"))
        fault = argparse.Namespace(rank=rank, iteration=iteration, how=args.how)
    dist.init_process_group("gloo")
    if dist.get_world_size() != TP * PP * DP:
        raise SystemExit("start eight ranks: torchrun --nproc_per_node 8 examples/three_d.py")
    train(dist.get_rank(), args.iterations, fault)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
