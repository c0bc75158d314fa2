"""A training with Accelerate, and hangdoctor's marks: hangdoctor run -- python accelerate_training.py"""

import torch
from accelerate import Accelerator

from hangdoctor import probe
from hangdoctor.callbacks import mark_accelerator


def main() -> None:
    accelerator = mark_accelerator(Accelerator(cpu=True, gradient_accumulation_steps=2))
    model = torch.nn.Linear(8, 8)
    data = torch.utils.data.DataLoader(torch.randn(32, 8), batch_size=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    for batch in data:
        with accelerator.accumulate(model):
            accelerator.backward(model(batch).square().mean())
            optimizer.step()
            optimizer.zero_grad()
    with probe.phase("evaluate"):  # the program's own: Accelerate knows of no evaluation
        accelerator.gather(model(batch).square().mean())
    accelerator.save_state("trained")


if __name__ == "__main__":
    main()
