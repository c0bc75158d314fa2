"""`if global_rank == 0: trainer.save_checkpoint()`: the call has a barrier for all."""
# framework: lightning
# start: torchrun
# culprit: 0
# kinds: order, not_entered, mismatch, checkpoint_wait
# frame: on_train_batch_end

import os

import lightning
import torch
from come import last_step


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def training_step(self, batch, n):
        return self.layer(batch).square().mean()

    def on_train_batch_end(self, outputs, batch, n):
        if n == 2:
            last_step(self.global_rank)
            if self.global_rank == 0:
                self.trainer.save_checkpoint(os.environ["HANG_FOLDER"] + "/model.ckpt")

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main() -> None:
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=4,
        strategy="ddp",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), torch.utils.data.DataLoader(torch.randn(64, 8), batch_size=4))


main()
