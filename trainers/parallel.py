"""How a model is distributed over devices: DataParallel, DDP, FSDP2; and how it is compiled."""

import argparse
import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.distributed import fsdp
from torch.nn import parallel
from torch.nn.modules import batchnorm
from torch.utils import checkpoint as activation_checkpoint

from trainers import distributed, errors, metrics, optim

MODES = ("auto", "single", "dp", "ddp", "fsdp")
COMPILE_MODES = ("auto", "off", "default", "reduce-overhead", "max-autotune")


def resolve_mode(args: argparse.Namespace, dist: distributed.DistInfo, num_gpus: int) -> str:
    """Return `single`, `dp`, `ddp` or `fsdp`; raise UsageError if the launch does not match."""
    mode = args.mode
    if args.gpu_ids and mode != "dp":
        raise errors.UsageError(
            "--gpu-ids requires --mode dp; in other modes CUDA_VISIBLE_DEVICES selects the GPUs."
        )
    if mode in ("ddp", "fsdp") and dist.launcher is distributed.Launcher.SINGLE:
        raise errors.UsageError(
            f"--mode {mode} requires one process per GPU, and this is a single process. On one"
            " node: torchrun --standalone --nproc-per-node=GPUS -m trainers.train ...;"
            " or srun with one task per GPU; or --mode single."
        )
    if mode in ("single", "dp") and dist.world_size > 1:
        raise errors.UsageError(
            f"--mode {mode} uses one process, but {dist.world_size} were started:"
            " run `python -m trainers.train` without torchrun, or use --mode ddp."
        )
    if mode == "dp" and (num_gpus == 0 or args.device == "cpu"):
        raise errors.UsageError(
            "--mode dp requires GPUs, and PyTorch sees none: use --mode single."
        )
    # With a single rank of torchrun or srun there is nothing to reduce or to shard.
    if mode != "dp" and dist.world_size == 1:
        return "single"
    return "ddp" if mode == "auto" else str(mode)


def data_parallel_gpus(gpu_ids: Sequence[int] | None, num_gpus: int) -> list[int]:
    """Return the GPUs of DataParallel; default: all."""
    chosen = list(gpu_ids or range(num_gpus))
    if max(chosen) >= num_gpus or len(set(chosen)) < len(chosen):
        raise errors.UsageError(
            f"--gpu-ids {','.join(map(str, chosen))}, but PyTorch sees {num_gpus} GPU(s), numbered"
            " from 0: give each existing number at most once."
        )
    return chosen


def wrap(
    model: nn.Module,
    args: argparse.Namespace,
    *,
    mode: str,
    device: torch.device,
    precision: str,
    gpu_ids: Sequence[int] = (),
) -> nn.Module:
    """Wrap a model, which is on its device, for the mode."""
    if args.sync_batch_norm:
        if device.type != "cuda" or mode not in ("ddp", "fsdp"):
            raise errors.UsageError("--sync-batch-norm requires GPUs and --mode ddp or fsdp.")
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    if args.activation_checkpointing:
        _checkpoint_activations(model)
    if mode == "dp" and len(gpu_ids) > 1:
        autocast = functools.partial(optim.autocast, precision, device)
        return nn.DataParallel(_InAutocast(model, autocast), device_ids=list(gpu_ids))
    if mode == "ddp":
        return _ddp(model, args, device)
    if mode == "fsdp":
        return _fsdp(model, device, precision)
    return model


class _InAutocast(nn.Module):
    """A model for DataParallel, which runs each part of a batch in a separate thread.

    Autocast is enabled in these threads, but always with fp16, because the dtype is thread-local
    (torch.nn.parallel.parallel_apply, torch 2.13 to 2.15).
    """

    def __init__(
        self, model: nn.Module, autocast: Callable[[], contextlib.AbstractContextManager[object]]
    ) -> None:
        super().__init__()
        self.model = model
        self._autocast = autocast

    def forward(self, *inputs: Any, **options: Any) -> Any:
        with self._autocast():
            return self.model(*inputs, **options)


def _ddp(model: nn.Module, args: argparse.Namespace, device: torch.device) -> nn.Module:
    # Batch-norm statistics are averaged before each evaluation, not broadcast in each forward pass.
    # The option was renamed in torch 2.13, which warns about the old name.
    known = inspect.signature(parallel.DistributedDataParallel).parameters
    name = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
    options: dict[str, Any] = {name: False}
    if args.bucket_cap_mb is not None:
        options["bucket_cap_mb"] = args.bucket_cap_mb
    wrapped = parallel.DistributedDataParallel(
        model,
        device_ids=[device] if device.type == "cuda" else None,
        gradient_as_bucket_view=True,
        find_unused_parameters=args.find_unused_parameters,
        static_graph=args.static_graph,
        **options,
    )
    if args.gradient_compression == "bf16":
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        wrapped.register_comm_hook(None, default_hooks.bf16_compress_hook)
    return wrapped


def _fsdp(model: nn.Module, device: torch.device, precision: str) -> nn.Module:
    if precision == "fp16":
        raise errors.UsageError(
            "--mode fsdp with --precision fp16 is not supported: use bf16 or fp32."
        )
    mesh = torch.distributed.init_device_mesh(device.type, (torch.distributed.get_world_size(),))
    policy = fsdp.MixedPrecisionPolicy()
    if precision == "bf16" and not any(is_batch_norm(module) for module in model.modules()):
        # Gather weights as bf16. Not with batch norm: its statistics are fp32, and the weights must
        # have the same dtype. Autocast computes in bf16 in both cases.
        policy = fsdp.MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in blocks(model):
        fsdp.fully_shard(block, mesh=mesh, mp_policy=policy)
    fsdp.fully_shard(model, mesh=mesh, mp_policy=policy)
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
    """Recompute the activations of each block in the backward pass instead of storing them."""
    found = list(blocks(model))
    if not found:
        raise errors.UsageError(
            "--activation-checkpointing: the model has no blocks (modules with children in a"
            " Sequential or ModuleList)."
        )
    for block in found:
        block.forward = functools.partial(  # type: ignore[method-assign]
            activation_checkpoint.checkpoint,
            block.forward,
            use_reentrant=False,
            context_fn=lambda block=block: (
                contextlib.nullcontext(),
                _without_statistics(block),
            ),
        )


@contextlib.contextmanager
def _without_statistics(block: nn.Module) -> Iterator[None]:
    """Do not update batch-norm statistics a second time in the recomputation."""
    norms = [module for module in block.modules() if is_batch_norm(module)]
    kept = [(norm.momentum, norm.num_batches_tracked) for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
        if norm.num_batches_tracked is not None:
            norm.num_batches_tracked = norm.num_batches_tracked.clone()
    try:
        yield
    finally:
        for norm, (momentum, count) in zip(norms, kept, strict=True):
            norm.momentum = momentum
            norm.num_batches_tracked = count


def is_batch_norm(module: nn.Module) -> bool:
    """Return whether a module is a batch norm of any kind; their base class has no public name."""
    return isinstance(module, batchnorm._BatchNorm)


@contextlib.contextmanager
def pass_contexts(model: nn.Module, *, is_last: bool, is_batch_norm_frozen: bool) -> Iterator[None]:
    """Hold the contexts of one forward and backward pass of a step.

    Gradients accumulate on the rank and are reduced in the last pass. Frozen batch norm uses its
    running statistics and leaves them unchanged.
    """
    module = getattr(model, "_orig_mod", model)  # the module that torch.compile wrapped
    norms = [
        norm
        for norm in (model.modules() if is_batch_norm_frozen else ())
        if is_batch_norm(norm) and norm.training
    ]
    # With a static graph, no_sync in the first step fails an assertion of the reducer (torch 2.15),
    # so every pass reduces: the mean of gradients that are equal changes nothing.
    is_ddp = isinstance(module, parallel.DistributedDataParallel) and not module.static_graph
    if isinstance(module, fsdp.FSDPModule):
        module.set_requires_gradient_sync(is_last)
    for norm in norms:
        norm.eval()
    try:
        with contextlib.nullcontext() if is_last or not is_ddp else module.no_sync():
            yield
    finally:
        for norm in norms:
            norm.train()


def reshard(model: nn.Module) -> None:
    """Release what FSDP keeps of its root module after a forward pass without a backward pass.

    The next forward pass would use these weights, even if the shards have changed.
    """
    if isinstance(model, fsdp.FSDPModule):
        model.reshard()


@torch.no_grad()
def average_batch_norm(model: nn.Module) -> None:
    """Average the batch-norm statistics over all ranks; all ranks must call it.

    The statistics of a rank cover only its own samples, so rank 0's alone would miss the rest.
    """
    if not torch.distributed.is_initialized():
        return
    for module in model.modules():
        if is_batch_norm(module):
            for statistic in (module.running_mean, module.running_var):
                if statistic is not None:
                    distributed.all_reduce(statistic).div_(torch.distributed.get_world_size())


def resolve_compile(choice: str, mode: str, device: torch.device) -> str:
    """Return the mode of torch.compile, or `off`; auto: on GPUs, except with DataParallel."""
    if choice == "auto":
        return "default" if device.type == "cuda" and mode != "dp" else "off"
    if mode == "dp" and choice != "off":
        raise errors.UsageError(
            "--compile does not work with --mode dp, which replicates the model in each step."
        )
    return choice


def compile_model(model: nn.Module, mode: str) -> nn.Module:
    """Return the wrapped model, compiled unless `mode` is off.

    The model is wrapped before it is compiled: the graph is then split at the bucket boundaries, so
    that the all-reduce overlaps with the backward pass (PyTorch, notes on DDP).
    """
    if mode == "off":
        return model
    # Code that cannot be compiled runs uncompiled; `compile_failures` tells.
    torch._dynamo.config.suppress_errors = True
    result: Any = torch.compile(model, mode=mode)
    return result


def check_compiled(mode: str, rank: int) -> str:
    """Return the compile mode; with a warning and a note if code runs uncompiled nevertheless."""
    counts = torch._dynamo.utils.counters["frames"]
    failures = counts["total"] - counts["ok"]
    if mode == "off" or not failures:
        return mode
    metrics.warn(
        f"rank {rank}: torch.compile failed for {failures} of {counts['total']} parts of the code,"
        " which run uncompiled: see its messages above, or set --compile off."
    )
    return f"{mode} ({failures} of {counts['total']} parts run uncompiled)"
