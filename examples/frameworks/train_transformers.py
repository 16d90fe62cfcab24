"""Hugging Face's Trainer: checkpoints and resuming. Started by train_transformers.toml."""

import os

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

# The run folder stays the same when the job is requeued.
folder = os.path.join(os.environ["ORCHESTRATOR_RUN_DIR"], "checkpoints")


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(64, 10)

    def forward(self, samples, labels):
        logits = self.layer(samples)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


class Data(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 2048

    def __getitem__(self, index):
        random = torch.Generator().manual_seed(index)
        return {"samples": torch.randn(64, generator=random), "labels": index % 10}


class Report(TrainerCallback):
    def on_train_begin(self, args, state, control, **_):
        if state.is_world_process_zero:
            first = int(state.epoch or 0) + 1
            print(f"{args.world_size} processes, epoch {first} is the first", flush=True)

    def on_save(self, args, state, control, **_):
        if state.is_world_process_zero:
            print(f"epoch={state.epoch:.0f} is saved", flush=True)


arguments = TrainingArguments(
    output_dir=folder,
    num_train_epochs=int(os.environ.get("EPOCHS", "5")),
    per_device_train_batch_size=64,
    save_strategy="epoch",
    save_total_limit=2,
    logging_strategy="epoch",
    report_to="none",
    use_cpu=not torch.cuda.is_available(),
    disable_tqdm=True,
)
trainer = Trainer(model=Model(), args=arguments, train_dataset=Data(), callbacks=[Report()])
last = get_last_checkpoint(folder) if os.path.isdir(folder) else None
trainer.train(resume_from_checkpoint=last)
