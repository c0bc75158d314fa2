"""A handler of rank 3 opens a pipe that no process writes."""
# framework: ignite
# start: torchrun
# culprit: 3
# kinds: not_entered, io_wait
# frame: read_schedule

import os

import ignite.distributed as idist
import torch
from come import last_step
from ignite.engine import Engine, Events


def read_schedule(path: str) -> str:
    with open(path) as file:
        return file.read()


def refresh(engine: Engine) -> None:
    if engine.state.iteration == 3:
        last_step(idist.get_rank())
        if idist.get_rank() == 3:
            path = os.environ["HANG_FOLDER"] + "/schedule"
            os.mkfifo(path)
            read_schedule(path)


def training(local_rank: int) -> None:
    model = idist.auto_model(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(engine, batch):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    engine = Engine(step)
    engine.add_event_handler(Events.ITERATION_COMPLETED, refresh)
    engine.run([torch.randn(4, 8) for _ in range(6)], max_epochs=1)


if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(training)
