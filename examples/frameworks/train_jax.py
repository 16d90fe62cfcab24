"""JAX: one process per GPU, checkpoints and resuming. Started by train_jax.toml."""

import os

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

jax.distributed.initialize()  # coordinator, ranks and GPUs: from Slurm's variables

# The run folder stays the same when the job is requeued.
checkpoint = os.path.join(os.environ["ORCHESTRATOR_RUN_DIR"], "checkpoint.npz")
mesh = jax.sharding.Mesh(jax.devices(), ("data",))
per_process = 2048 // jax.process_count()
random = np.random.default_rng(jax.process_index())
samples = random.normal(size=(per_process, 64)).astype(np.float32)
targets = samples.sum(axis=1)
sharding = NamedSharding(mesh, PartitionSpec("data"))
samples = jax.make_array_from_process_local_data(sharding, samples)
targets = jax.make_array_from_process_local_data(sharding, targets)


@jax.jit
def step(weights, samples, targets):
    loss, gradient = jax.value_and_grad(lambda w: jnp.mean((samples @ w - targets) ** 2))(weights)
    return weights - 0.1 * gradient, loss


weights, first = np.zeros(64, np.float32), 1
if os.path.exists(checkpoint):
    with np.load(checkpoint) as saved:
        weights, first = saved["weights"], int(saved["epoch"]) + 1
if jax.process_index() == 0:
    print(f"{jax.process_count()} processes, epoch {first} is the first", flush=True)
for epoch in range(first, int(os.environ.get("EPOCHS", "5")) + 1):
    for _ in range(20):
        weights, loss = step(weights, samples, targets)
    if jax.process_index() == 0:
        np.savez(f"{checkpoint}.draft.npz", weights=np.asarray(weights), epoch=epoch)
        os.replace(f"{checkpoint}.draft.npz", checkpoint)
        print(f"epoch={epoch} loss={float(loss):.4f}", flush=True)
jax.distributed.shutdown()
