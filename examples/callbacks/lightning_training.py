"""A Lightning training with hangdoctor's callback: hangdoctor run -- python lightning_training.py"""

import lightning
import torch

from hangdoctor.callbacks import lightning_callback


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def training_step(self, batch, number):
        return self.layer(batch).square().mean()

    def validation_step(self, batch, number):
        self.layer(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main() -> None:
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=4,
        accumulate_grad_batches=2,
        val_check_interval=4,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[lightning_callback()],
    )
    data = torch.utils.data.DataLoader(torch.randn(32, 8), batch_size=4)
    trainer.fit(Module(), data, data)


if __name__ == "__main__":
    main()
