"""Lightning's ddp_spawn: a callback of rank 1 waits for a lock file."""
# framework: lightning
# start: python
# culprit: 1
# kinds: not_entered
# frame: wait_for_lock

import time
from pathlib import Path

import lightning
import torch
from come import last_step


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def training_step(self, batch, n):
        return self.layer(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Cache(lightning.Callback):
    def on_train_batch_start(self, trainer, module, batch, n):
        if n == 2:
            last_step(trainer.global_rank)
            if trainer.global_rank == 1:
                wait_for_lock(Path("/nonexistent/cache.unlocked"))


def wait_for_lock(path: Path) -> None:
    while not path.exists():
        time.sleep(0.5)


def main() -> None:
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=4,
        strategy="ddp_spawn",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[Cache()],
    )
    trainer.fit(Module(), torch.utils.data.DataLoader(torch.randn(64, 8), batch_size=4))


if __name__ == "__main__":
    main()
