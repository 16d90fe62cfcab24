"""Ray Train: one worker per GPU, checkpoints and resuming. Started by train_ray.toml."""

import os
import tempfile

import ray
import ray.train
import torch
from ray.train.torch import TorchTrainer, prepare_model

ray.init()  # the cluster that the job has started
gpus = int(ray.cluster_resources().get("GPU", 0))
nodes = len(ray.nodes())


def train(config):
    model = prepare_model(torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    device = ray.train.torch.get_device()
    samples, labels = torch.randn(1024, 64).to(device), torch.randint(10, (1024,)).to(device)
    first, checkpoint = 1, ray.train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            saved = torch.load(f"{folder}/state.pt")
        model.load_state_dict(saved["model"])
        first = saved["epoch"] + 1
    context = ray.train.get_context()
    print(f"{context.get_world_size()} processes, epoch {first} is the first", flush=True)
    for epoch in range(first, config["epochs"] + 1):
        loss = torch.nn.functional.cross_entropy(model(samples), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = None
            if context.get_world_rank() == 0:
                state = {"model": model.state_dict(), "epoch": epoch}
                torch.save(state, f"{folder}/state.pt")
                checkpoint = ray.train.Checkpoint.from_directory(folder)
                print(f"epoch={epoch} loss={loss.item():.4f}", flush=True)
            ray.train.report({"loss": loss.item()}, checkpoint=checkpoint)


trainer = TorchTrainer(
    train,
    train_loop_config={"epochs": int(os.environ.get("EPOCHS", "5"))},
    scaling_config=ray.train.ScalingConfig(
        num_workers=gpus or nodes, use_gpu=gpus > 0, placement_strategy="SPREAD"
    ),
    # The run folder stays the same when the job is requeued: Ray resumes what it finds there.
    run_config=ray.train.RunConfig(
        name="training", storage_path=os.environ["ORCHESTRATOR_RUN_DIR"] + "/checkpoints"
    ),
)
trainer.fit()
