"""Would notice two real ranks that compute, answer, refuse or end otherwise: all kinds of operations, DDP, subgroups, a failing peer."""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import witness
from torch.nn.parallel import DistributedDataParallel


def train():
    torch.manual_seed(3)
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 1))
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(5):
        torch.manual_seed(100 * dist.get_rank() + step)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(torch.randn(16, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses, sum(p.double().sum().item() for p in model.parameters())


def rank(number, folder, queue):
    os.environ["RANK"] = str(number)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=number, world_size=2)
    said = [train()]
    t = torch.arange(4.0) + number
    dist.all_reduce(t, dist.ReduceOp.PRODUCT)
    said.append(t.tolist())
    parts = [torch.zeros(4) for _ in range(2)]
    dist.all_gather(parts, t)
    objects = [None, None]
    dist.all_gather_object(objects, {"rank": number, "of": dist.get_world_size()})
    said += [[p.tolist() for p in parts], objects]
    work = dist.isend(t, 1 - number, tag=3) if number else dist.irecv(t, 1, tag=3)
    work.wait()
    ops = [dist.P2POp(dist.isend, t, 1 - number), dist.P2POp(dist.irecv, parts[0], 1 - number)]
    for one in dist.batch_isend_irecv(ops):
        one.wait()
    alone = dist.new_group([number], use_local_synchronization=True)
    dist.all_reduce(t, group=alone)
    with dist._coalescing_manager():
        dist.all_reduce(t)
        dist.all_reduce(parts[0])
    out = torch.zeros(2)
    dist.all_to_all_single(out, t[:2].contiguous())
    said += [t.tolist(), parts[0].tolist(), out.tolist()]
    dist.monitored_barrier()
    witness.note(f"rank {number}")
    queue.put((number, said))
    dist.barrier()
    if number:
        os._exit(7)  # the peer loses its connection in the middle of an operation
    try:
        while True:
            dist.all_reduce(torch.ones(1))
    except RuntimeError as error:
        print(type(error).__name__, "losing the peer", flush=True)
    sys.exit(3)


if __name__ == "__main__":
    context = mp.get_context("fork")
    queue = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        ranks = [context.Process(target=rank, args=(n, folder, queue)) for n in range(2)]
        for one in ranks:
            one.start()
        print(sorted(queue.get() for _ in ranks))
        for one in ranks:
            one.join()
        print([one.exitcode for one in ranks])
