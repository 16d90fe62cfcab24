"""DeepSpeed: ZeRO, checkpoints and resuming. Started by train_deepspeed.toml."""

import os

import deepspeed
import torch

# The run folder stays the same when the job is requeued.
folder = os.path.join(os.environ["ORCHESTRATOR_RUN_DIR"], "checkpoints")
deepspeed.init_distributed("nccl" if torch.cuda.is_available() else "gloo")
torch.manual_seed(0)
model = torch.nn.Linear(64, 10)
engine, _, _, _ = deepspeed.initialize(
    model=model,
    model_parameters=model.parameters(),
    config={
        "train_micro_batch_size_per_gpu": 64,
        "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
        "zero_optimization": {"stage": 1},
        "zero_allow_untested_optimizer": True,
    },
)
torch.manual_seed(engine.global_rank)
samples = torch.randn(1024, 64).to(engine.device)
labels = torch.randint(10, (1024,)).to(engine.device)
path, state = engine.load_checkpoint(folder) if os.path.isdir(folder) else (None, {})
first = state["epoch"] + 1 if path is not None else 1
if engine.global_rank == 0:
    print(f"{engine.world_size} processes, epoch {first} is the first", flush=True)
for epoch in range(first, int(os.environ.get("EPOCHS", "5")) + 1):
    for start in range(0, len(samples), 64):
        outputs = engine(samples[start : start + 64])
        loss = torch.nn.functional.cross_entropy(outputs, labels[start : start + 64])
        engine.backward(loss)
        engine.step()
    engine.save_checkpoint(folder, tag=f"epoch-{epoch}", client_state={"epoch": epoch})
    if engine.global_rank == 0:
        print(f"epoch={epoch} loss={loss.item():.4f}", flush=True)
torch.distributed.destroy_process_group()
