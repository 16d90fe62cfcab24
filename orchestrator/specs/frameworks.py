"""What each `launch.framework` needs under Slurm, with the page or source file that says so."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal


@dataclasses.dataclass(frozen=True, kw_only=True)
class Framework:
    #: launchers with which its ranks find each other, the default first
    launchers: tuple[Literal["torchrun", "srun", "ray"], ...]
    #: why the first one, as the script says it after the framework's name
    reason: str
    source: str
    #: variables of the job, unless the job has them already
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)
    #: under srun each rank is one GPU, and must see the other GPUs of its node
    is_task_per_gpu: bool = False
    #: options of the program with the number of its ranks per node and of its nodes
    size_options: tuple[str, str] | None = None
    #: signal at which it requeues the job itself, which [retry] must not meet
    requeue_signal: str = ""
    #: the launcher to use on one machine without Slurm
    local_launcher: Literal["torchrun", "python"] = "torchrun"


_READS_TORCHRUN = "reads the variables of torchrun"
#: srun would otherwise bind each task to the GPU nearest to it where a site says so.
_ALL_GPUS = {"SLURM_GPU_BIND": "none"}

TABLE: Mapping[str, Framework] = {
    "accelerate": Framework(
        launchers=("torchrun", "srun"),
        reason=_READS_TORCHRUN,
        source="https://huggingface.co/docs/accelerate/basic_tutorials/launch",
    ),
    "deepspeed": Framework(
        launchers=("torchrun", "srun"),
        reason=f"{_READS_TORCHRUN}, which needs no ssh between nodes",
        source="https://www.deepspeed.ai/getting-started/#launching-without-passwordless-ssh",
    ),
    "jax": Framework(
        launchers=("srun",),
        reason="expects one task of srun per GPU, and finds its coordinator in Slurm's variables",
        source="https://docs.jax.dev/en/latest/multi_process.html",
        variables=_ALL_GPUS,
        is_task_per_gpu=True,
        local_launcher="python",
    ),
    "lightning": Framework(
        launchers=("srun", "torchrun"),
        reason="expects one task of srun per device",
        source="https://lightning.ai/docs/pytorch/stable/clouds/cluster_advanced.html",
        variables=_ALL_GPUS,
        is_task_per_gpu=True,
        size_options=("devices", "num_nodes"),
        # lightning_fabric/plugins/environments/slurm.py: requeue_signal
        requeue_signal="USR1",
    ),
    "megatron": Framework(
        launchers=("torchrun", "srun"),
        reason=_READS_TORCHRUN,
        source="https://github.com/NVIDIA/Megatron-LM/tree/main/examples/gpt3",
        # Communication and computation of tensor parallelism overlap only in this order. FSDP needs
        # another value.
        variables={"CUDA_DEVICE_MAX_CONNECTIONS": "1"},
    ),
    "ray": Framework(
        launchers=("ray",),
        reason="starts its workers itself, from one task per node",
        source="https://docs.ray.io/en/latest/cluster/vms/user-guides/community/slurm.html",
        # Before 2.61 everybody who reaches the ports may run code. The default wait is 30 s.
        variables={"RAY_AUTH_MODE": "token", "RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT": "600"},
        local_launcher="python",
    ),
    "torchtitan": Framework(
        launchers=("torchrun", "srun"),
        reason=_READS_TORCHRUN,
        source="https://github.com/pytorch/torchtitan/blob/main/run_train.sh",
        variables={"PYTORCH_ALLOC_CONF": "expandable_segments:True"},
    ),
    "transformers": Framework(
        launchers=("torchrun", "srun"),
        reason=_READS_TORCHRUN,
        source="https://huggingface.co/docs/transformers/main/en/perf_train_gpu_many",
    ),
}
