"""How a model is distributed over devices: DataParallel, DDP, FSDP2; and how it is compiled."""

import argparse
import contextlib
import functools
import inspect
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.distributed import fsdp
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn import parallel
from torch.nn.modules import batchnorm
from torch.utils import checkpoint as activation_checkpoint

from trainers import distributed, errors, metrics, optim

if TYPE_CHECKING:
    from trainers import train


def resolve_mode(args: argparse.Namespace, dist: distributed.DistInfo, num_gpus: int) -> str:
    """Return `single`, `dp`, `ddp` or `fsdp`; raise UsageError if the launch does not match."""
    mode = args.mode
    if args.gpu_ids and mode != "dp":
        raise errors.UsageError("--gpu-ids requires --mode dp: set CUDA_VISIBLE_DEVICES instead.")
    if mode in ("ddp", "fsdp") and dist.launcher == "single":
        raise errors.UsageError(
            f"--mode {mode} requires one process per GPU, and this is a single process: start with"
            " torchrun --standalone --nproc-per-node=GPUS -m trainers.train, or with one srun task"
            " per GPU, or use --mode single."
        )
    if mode in ("single", "dp") and dist.world_size > 1:
        raise errors.UsageError(
            f"--mode {mode} is one process, and {dist.world_size} were started: use --mode ddp."
        )
    if mode == "dp" and (num_gpus == 0 or args.device == "cpu"):
        raise errors.UsageError("--mode dp requires GPUs: use --mode single.")
    # With a single rank of torchrun or srun there is nothing to reduce or to shard.
    if mode != "dp" and dist.world_size == 1:
        if mode == "fsdp":
            metrics.warn("--mode fsdp with a single rank is --mode single: nothing is sharded.")
        return "single"
    return "ddp" if mode == "auto" else str(mode)


def memory_format(mode: str, model: torch.nn.Module) -> torch.memory_format:
    """Return the memory format of images; with channels_last CPUs take 15 to 40 % less time too."""
    # Not for convolutions of volumes, and FSDP2 requires contiguous weights.
    has_volumes = any(parameter.dim() == 5 for parameter in model.parameters())
    return torch.contiguous_format if mode == "fsdp" or has_volumes else torch.channels_last


def wrap(trainer: "train.Trainer", gpu_ids: Sequence[int] = ()) -> nn.Module:
    """Wrap the model, which is on its device, for the mode."""
    model, args, mode, device = trainer.model, trainer.args, trainer.mode, trainer.device
    if args.sync_batch_norm:
        if device.type != "cuda" or mode not in ("ddp", "fsdp"):
            raise errors.UsageError("--sync-batch-norm requires GPUs and --mode ddp or fsdp.")
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    if args.activation_checkpointing:
        _checkpoint_activations(model)
    if mode == "dp" and len(gpu_ids) > 1:
        return nn.DataParallel(_InAutocast(model, trainer.precision, device), device_ids=gpu_ids)
    if mode == "ddp":
        return _ddp(model, args, device)
    return _fsdp(model, device, trainer.precision) if mode == "fsdp" else model


class _InAutocast(nn.Module):
    """A model for DataParallel, in whose threads autocast is always fp16 (torch 2.13 to 2.15)."""

    def __init__(self, model: nn.Module, precision: str, device: torch.device) -> None:
        super().__init__()
        self.model = model
        self._options = precision, device

    def forward(self, *inputs: Any, **options: Any) -> Any:
        with optim.autocast(*self._options):
            return self.model(*inputs, **options)


def _ddp(model: nn.Module, args: argparse.Namespace, device: torch.device) -> nn.Module:
    # Batch-norm statistics are averaged before each evaluation, not broadcast in each forward pass.
    # The option was renamed in torch 2.13, which warns about the old name.
    known = inspect.signature(parallel.DistributedDataParallel).parameters
    name = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
    wrapped = parallel.DistributedDataParallel(
        model,
        device_ids=[device] if device.type == "cuda" else None,
        gradient_as_bucket_view=True,
        find_unused_parameters=args.find_unused_parameters,
        static_graph=args.static_graph,
        **{name: False},
    )
    if args.gradient_compression == "bf16":
        wrapped.register_comm_hook(None, default_hooks.bf16_compress_hook)
    return wrapped


def _fsdp(model: nn.Module, device: torch.device, precision: str) -> nn.Module:
    if precision == "fp16":
        raise errors.UsageError("--mode fsdp does not support --precision fp16: use bf16 or fp32.")
    mesh = torch.distributed.init_device_mesh(device.type, (torch.distributed.get_world_size(),))
    policy = fsdp.MixedPrecisionPolicy()
    if precision == "bf16" and not batch_norms(model):
        # Not with batch norm, whose weights must have the dtype of its statistics.
        policy = fsdp.MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    try:
        for module in [*blocks(model), model]:
            fsdp.fully_shard(module, mesh=mesh, mp_policy=policy)
    except ValueError as error:
        raise errors.UsageError(f"--mode fsdp cannot shard this model: {error}") from error
    return model


def blocks(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the repeated parts of a model: modules with children in a Sequential or ModuleList."""
    for child in model.children():
        is_list = isinstance(model, nn.Sequential | nn.ModuleList)
        if is_list and list(child.children()) and list(child.parameters()):
            yield child
        else:
            yield from blocks(child)


def _checkpoint_activations(model: nn.Module) -> None:
    if not list(blocks(model)):
        raise errors.UsageError(
            "--activation-checkpointing: the model has no blocks (modules with children in a"
            " Sequential or ModuleList)."
        )
    for block in blocks(model):
        block.forward = functools.partial(  # type: ignore[method-assign]
            activation_checkpoint.checkpoint,
            block.forward,
            use_reentrant=False,
            context_fn=lambda block=block: (contextlib.nullcontext(), _without_statistics(block)),
        )


@contextlib.contextmanager
def _without_statistics(block: nn.Module) -> Iterator[None]:
    """Do not update batch-norm statistics a second time in the recomputation."""
    with contextlib.ExitStack() as stack:
        for norm in batch_norms(block).values():
            stack.callback(setattr, norm, "momentum", norm.momentum)
            norm.momentum = 0.0
            if norm.num_batches_tracked is not None:
                stack.callback(norm.num_batches_tracked.sub_, 1)
        yield


def batch_norms(model: nn.Module) -> dict[str, Any]:
    """Return the batch norms of any kind by name; their base class has no public name."""
    modules = model.named_modules()
    return {name: each for name, each in modules if isinstance(each, batchnorm._BatchNorm)}


def pass_contexts(
    model: nn.Module, *, is_last: bool, is_batch_norm_frozen: bool
) -> contextlib.ExitStack:
    """Return the contexts of a forward and backward pass; the last of a step reduces gradients."""
    # With a static graph, no_sync in the first step fails an assertion of the reducer (torch 2.15),
    # so every pass reduces: the mean of gradients that are equal changes nothing.
    is_ddp = isinstance(model, parallel.DistributedDataParallel) and not model.static_graph
    if isinstance(model, fsdp.FSDPModule):
        model.set_requires_gradient_sync(is_last)
    stack = contextlib.ExitStack()
    for norm in batch_norms(model).values() if is_batch_norm_frozen else ():
        stack.callback(norm.train, norm.training)
        norm.eval()
    if is_ddp and not is_last:
        stack.enter_context(model.no_sync())
    return stack


@torch.no_grad()
def average_batch_norm(model: nn.Module) -> None:
    """Average the batch-norm statistics, which cover a rank's samples, over all ranks."""
    for norm in batch_norms(model).values() if torch.distributed.is_initialized() else ():
        for statistic in (norm.running_mean, norm.running_var):
            if statistic is not None:
                distributed.all_reduce(statistic).div_(torch.distributed.get_world_size())


def resolve_compile(choice: str, mode: str, device: torch.device) -> str:
    """Return the mode of torch.compile, or `off`; auto: on GPUs, except with DataParallel."""
    if choice == "auto":
        return "default" if device.type == "cuda" and mode != "dp" else "off"
    if mode == "dp" and choice != "off":
        raise errors.UsageError("--mode dp cannot be compiled: use --compile off.")
    return choice


def compile_model(model: nn.Module, mode: str) -> nn.Module:
    """Return the model, compiled after it was wrapped: the graph is then split at DDP's buckets."""
    if mode == "off":
        return model
    # Code that cannot be compiled runs uncompiled; `check_compiled` reports it.
    torch._dynamo.config.suppress_errors = True
    result: Any = torch.compile(model, mode=mode)
    return result


def check_compiled(mode: str, rank: int) -> str:
    """Return the compile mode; with a warning and a note if code runs uncompiled nevertheless."""
    counts = torch._dynamo.utils.counters["frames"]
    failures = counts["total"] - counts["ok"]
    if mode == "off" or not failures:
        return mode
    note = f"{failures} of {counts['total']} parts run uncompiled"
    metrics.warn(f"rank {rank}: torch.compile failed: {note}. Its messages above say why.")
    return f"{mode} ({note})"
