"""idist.all_gather in a handler of rank 0 alone; ignite spawns the processes itself."""
# framework: ignite
# start: python
# culprit: 0
# kinds: order, not_entered, mismatch
# frame: report

import ignite.distributed as idist
import torch
from come import last_step
from ignite.engine import Engine, Events


def report(engine: Engine) -> None:
    if engine.state.iteration == 3:
        last_step(idist.get_rank())
        if idist.get_rank() == 0:
            print(idist.all_gather(engine.state.output))


def training(local_rank: int) -> None:
    model = idist.auto_model(torch.nn.Linear(8, 8))
    optimizer = idist.auto_optim(torch.optim.SGD(model.parameters(), lr=0.1))

    def step(engine, batch):
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    engine = Engine(step)
    engine.add_event_handler(Events.ITERATION_COMPLETED, report)
    engine.run([torch.randn(4, 8) for _ in range(6)], max_epochs=1)


if __name__ == "__main__":
    with idist.Parallel(backend="gloo", nproc_per_node=4) as parallel:
        parallel.run(training)
