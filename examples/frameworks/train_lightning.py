"""Lightning: checkpoints and resuming. Started by train_lightning.toml."""

import os

import torch
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Callback, ModelCheckpoint

# The run folder stays the same when the job is requeued.
folder = os.path.join(os.environ["ORCHESTRATOR_RUN_DIR"], "checkpoints")


class Model(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(64, 10)

    def training_step(self, batch, _index):
        samples, labels = batch
        loss = torch.nn.functional.cross_entropy(self.layer(samples), labels)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Report(Callback):
    def on_train_start(self, trainer, _module):
        if trainer.is_global_zero:
            first = trainer.current_epoch + 1
            print(f"{trainer.world_size} processes, epoch {first} is the first", flush=True)

    def on_train_epoch_end(self, trainer, _module):
        if trainer.is_global_zero:
            loss = trainer.callback_metrics["loss"].item()
            print(f"epoch={trainer.current_epoch + 1} loss={loss:.4f}", flush=True)


data = torch.utils.data.TensorDataset(torch.randn(2048, 64), torch.randint(10, (2048,)))
trainer = Trainer(
    # A task of Slurm is a device.
    devices=int(os.environ["SLURM_NTASKS_PER_NODE"]),
    num_nodes=int(os.environ["SLURM_NNODES"]),
    accelerator="gpu" if torch.cuda.is_available() else "cpu",
    strategy="ddp",
    max_epochs=int(os.environ.get("EPOCHS", "5")),
    callbacks=[ModelCheckpoint(folder, save_last=True), Report()],
    enable_progress_bar=False,
    logger=False,
)
last = f"{folder}/last.ckpt"
trainer.fit(
    Model(),
    torch.utils.data.DataLoader(data, batch_size=64),
    ckpt_path=last if os.path.exists(last) else None,
)
