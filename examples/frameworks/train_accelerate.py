"""Accelerate: checkpoints and resuming. Started by train_accelerate.toml."""

import os

import torch
from accelerate import Accelerator

EPOCHS = int(os.environ.get("EPOCHS", "5"))
# The run folder stays the same when the job is requeued.
folder = os.path.join(os.environ["ORCHESTRATOR_RUN_DIR"], "checkpoints")

accelerator = Accelerator(cpu=not torch.cuda.is_available())
torch.manual_seed(0)
data = torch.utils.data.TensorDataset(torch.randn(2048, 64), torch.randint(10, (2048,)))
model = torch.nn.Linear(64, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(data, batch_size=64)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

first = 1
if os.path.exists(f"{folder}/epoch"):
    accelerator.load_state(folder)
    with open(f"{folder}/epoch") as file:
        first = int(file.read()) + 1
accelerator.print(f"{accelerator.num_processes} processes, epoch {first} is the first")
for epoch in range(first, EPOCHS + 1):
    for samples, labels in loader:
        loss = torch.nn.functional.cross_entropy(model(samples), labels)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
    accelerator.save_state(folder)
    if accelerator.is_main_process:
        with open(f"{folder}/epoch", "w") as file:
            file.write(str(epoch))
        print(f"epoch={epoch} loss={loss.item():.4f}", flush=True)
    accelerator.wait_for_everyone()
accelerator.end_training()
