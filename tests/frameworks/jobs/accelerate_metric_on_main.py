"""Only the main process gathers a metric; the others are in the next step's gradients."""
# framework: accelerate
# start: torchrun
# culprit: 0
# kinds: order, not_entered, mismatch
# frame: report

import torch
from accelerate import Accelerator
from come import last_step


def report(accelerator: Accelerator, loss: torch.Tensor) -> None:
    mean = accelerator.gather(loss).mean()
    print("loss", mean.item())


def main() -> None:
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(8, 8)
    data = torch.utils.data.DataLoader(torch.randn(64, 8), batch_size=4)
    model, optimizer, data = accelerator.prepare(
        model, torch.optim.SGD(model.parameters(), lr=0.1), data
    )
    for step, batch in enumerate(data):
        loss = model(batch).square().mean()
        if step == 2:
            last_step(accelerator.process_index)
            if accelerator.is_main_process:
                report(accelerator, loss.detach())
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()


main()
