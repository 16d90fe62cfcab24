"""Checkpoints: written atomically, verified when read; the newest few and the best are kept.

A checkpoint is a file for `torch.load(weights_only=True)`, with its SHA-256 in a file beside it, in
the format of sha256sum. With FSDP it is a folder of torch.distributed.checkpoint, which any number
of ranks can read. Both get their final name when they are complete and on disk.
"""

import argparse
import concurrent.futures
import contextlib
import errno
import os
import pathlib
import pickle
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint import state_dict as dcp_state

from trainers import distributed, durable, errors, metrics, optim

BEST_NAME = "best"
NAME = re.compile(r"checkpoint-([0-9]{10})(\.pt)?")
#: The part of a folder that is not a model or an optimizer.
REST_NAME = "trainer.pt"
CHECKSUMS_NAME = "SHA256SUMS"
BLOCK_BYTES = 1 << 24

State = dict[str, Any]


class Store:
    """The checkpoints of a run in one folder; used by all ranks, written by rank 0.

    With `sharded`, all ranks write their parts of model and optimizer.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        *,
        keep: int,
        sharded: bool = False,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.folder = folder
        #: Error of the last write, such as a full disk; None if it succeeded.
        self.failure: errors.CheckpointError | None = None
        self._keep = keep
        self._sharded = sharded
        self._check = check
        self._writer = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: concurrent.futures.Future[None] | None = None

    def open(self) -> None:
        """Create the folder, and remove unfinished files of killed writers (rank 0)."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        for draft in self.folder.glob("*.draft.*"):
            durable.remove(draft)

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint, newest first."""
        return sorted(self._paths(), reverse=True)

    def newest(self) -> pathlib.Path | None:
        """Return the newest intact checkpoint, or None if there is no checkpoint (rank 0).

        A damaged checkpoint is reported on stderr and renamed, and the previous one is used. Raises
        CheckpointError if all are damaged: the user must decide whether to start from scratch.
        """
        paths = self._paths()
        for step in sorted(paths, reverse=True):
            try:
                verify(paths[step])
                return paths[step]
            except errors.CheckpointError as error:
                metrics.warn(f"{error} Renamed to {paths[step].name}.damaged.")
                self._set_aside(paths[step])
        if paths:
            raise errors.CheckpointError(
                f"all checkpoints in {self.folder} are damaged; they were renamed to *.damaged."
                " The next start begins at step 0."
            )
        return None

    def save(self, state: State, *, step: int, is_best: bool) -> None:
        """Write rank 0's state in the background, after the previous one; it must not change.

        If it cannot be written, for example because the disk is full, a warning is printed.
        """
        self.wait()
        self._writing = self._writer.submit(self._write, state, step, is_best)

    def save_sharded(self, sharded: State, state: State, *, step: int, is_best: bool) -> None:
        """Write all ranks' parts of `sharded`, and rank 0's state; all ranks must call it."""
        path = self._path(step)
        draft = path.with_name(f"{path.name}.draft.{distributed.broadcast(os.getpid())}")
        try:
            dcp.save(sharded, checkpoint_id=draft)
            rank = torch.distributed.get_rank()
            mine = {file.name: durable.sha256(file) for file in draft.glob(f"__{rank}_*")}
            parts = distributed.gather(mine)
            if rank == 0:
                torch.save(state, draft / REST_NAME)
                sums = {name: digest for part in parts for name, digest in part.items()}
                for name in (".metadata", REST_NAME):
                    sums[name] = durable.sha256(draft / name)
                lines = (f"{digest}  {name}\n" for name, digest in sorted(sums.items()))
                (draft / CHECKSUMS_NAME).write_text("".join(lines))
                durable.sync(draft, *draft.iterdir())
                self._publish(draft, path, is_best)
            self.failure = None
        # CheckpointException of PyTorch is a BaseException.
        except (OSError, RuntimeError, dcp.api.CheckpointException) as error:
            self._fail(path, error)
        distributed.barrier()
        if torch.distributed.get_rank() == 0:
            durable.remove(draft)

    def wait(self) -> None:
        """Wait until the last checkpoint is on disk, or has failed."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def close(self) -> None:
        """Wait for the writer thread to end."""
        self.wait()
        self._writer.shutdown()

    def _write(self, state: State, step: int, is_best: bool) -> None:
        path = self._path(step)
        draft = path.with_name(f"{path.name}.draft.{os.getpid()}")
        try:
            with open(draft, "wb") as file:
                writer = durable.HashingWriter(file)
                torch.save(state, writer)
                file.flush()
                os.fsync(file.fileno())
            self._publish(draft, path, is_best, writer.hexdigest())
            self.failure = None
        except (OSError, RuntimeError) as error:
            self._fail(path, error)
        finally:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)

    def _publish(
        self, draft: pathlib.Path, path: pathlib.Path, is_best: bool, digest: str = ""
    ) -> None:
        """Give a complete checkpoint its name, mark the best, remove old ones."""
        self._check()
        if is_best:
            # Before the rename: a run that resumes from this checkpoint does not mark it again.
            best = path.with_name(BEST_NAME + path.suffix)
            copy = best.with_name(f"{best.name}.draft.{os.getpid()}")
            try:
                durable.copy(draft, copy)
                durable.replace(copy, best, digest)
            finally:
                # As a hard link it would keep the space of a failed checkpoint on a full disk.
                durable.remove(copy)
        durable.replace(draft, path, digest)
        durable.sync(path.parent)
        paths = self._paths()
        for step in sorted(paths, reverse=True)[self._keep :]:
            durable.checksum_path(paths[step]).unlink(missing_ok=True)
            durable.remove(paths[step])

    def _fail(self, path: pathlib.Path, error: BaseException) -> None:
        cause = _cause(error)
        is_full = isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)
        what = "the disk is full" if is_full else str(cause)
        self.failure = errors.CheckpointError(
            f"cannot write checkpoint {path}: {what}."
            + (" Free space, or set another folder with --checkpoint-dir." if is_full else "")
        )
        if not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0:
            metrics.warn(f"{self.failure} Training continues; earlier checkpoints are kept.")

    def _set_aside(self, path: pathlib.Path) -> None:
        try:
            path.rename(path.with_name(f"{path.name}.damaged"))
        except OSError as error:
            raise errors.CheckpointError(f"cannot rename {path}: {error}.") from error

    def _paths(self) -> dict[int, pathlib.Path]:
        matches = (NAME.fullmatch(name) for name in os.listdir(self.folder))
        return {int(match[1]): self.folder / match[0] for match in matches if match}

    def _path(self, step: int) -> pathlib.Path:
        return self.folder / f"checkpoint-{step:010d}{'' if self._sharded else '.pt'}"


def open_store(
    args: argparse.Namespace,
    environ: Mapping[str, str],
    dist: distributed.DistInfo,
    outputs: metrics.Outputs | None,
    *,
    sharded: bool,
) -> Store | None:
    """Return the checkpoints; None without --checkpoint-dir and without a run folder."""
    folder = args.checkpoint_dir
    if folder is None:
        path = metrics.file_path(args.run_dir, environ)
        if path is None:
            return None
        folder = path.parent / f"checkpoints{metrics.task_suffix(args.run_dir, environ)}"
    check = outputs.check if outputs is not None else lambda: None
    store = Store(folder, keep=args.keep_checkpoints, sharded=sharded, check=check)
    if dist.rank == 0:
        try:
            store.open()
        except OSError as error:
            raise errors.UsageError(
                f"Cannot use the checkpoint folder: {error}. Set another one with --checkpoint-dir."
            ) from error
        if args.resume == "never" and store.steps():
            raise errors.UsageError(
                f"--resume never, but {folder} contains checkpoints: remove them, or set another"
                " --checkpoint-dir."
            )
    return store


def verify(path: pathlib.Path) -> None:
    """Compare a checkpoint with its checksums; raise CheckpointError if it is damaged."""
    try:
        if path.is_dir():
            lines = (path / CHECKSUMS_NAME).read_text().splitlines()
            files = {path / line[66:]: line[:64] for line in lines}
        else:
            files = {path: " ".join(durable.digests(path))}
        damaged = [
            file.name for file, digests in files.items() if durable.sha256(file) not in digests
        ]
    except OSError as error:
        raise errors.CheckpointError(f"cannot read {path}: {error}.") from error
    if damaged or not files:
        raise errors.CheckpointError(
            f"{path} is damaged or incomplete: the checksum of {', '.join(damaged)} differs."
        )


def load(path: pathlib.Path) -> State:
    """Return the state of rank 0 in a checkpoint, with tensors in host memory."""
    file = path / REST_NAME if path.is_dir() else path
    try:
        state: State = torch.load(file, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError) as error:
        raise errors.CheckpointError(
            f"{file} is intact, but PyTorch {torch.__version__} cannot load it: {error}"
        ) from error
    return state


def sharded_state(
    model: nn.Module, optimizer: torch.optim.Optimizer, ema: optim.ExponentialMovingAverage | None
) -> State:
    """Return this rank's parts of the model, the optimizer and the averages."""
    model_state, optimizer_state = dcp_state.get_state_dict(model, optimizer)
    state = {"model": model_state, "optimizer": optimizer_state}
    return state if ema is None else {**state, "ema": ema.state_dict()}


def load_sharded(
    path: pathlib.Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    ema: optim.ExponentialMovingAverage | None,
) -> None:
    """Load this rank's parts from a folder written by any number of ranks."""
    state = sharded_state(model, optimizer, ema)
    dcp.load(state, checkpoint_id=path)
    dcp_state.set_state_dict(
        model,
        optimizer,
        model_state_dict=state["model"],
        optim_state_dict=state["optimizer"],
    )


def load_unsharded(
    state: State,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    ema: optim.ExponentialMovingAverage | None,
) -> None:
    """Load this rank's parts from the state of a run without FSDP."""
    names = [name for name, _ in model.named_parameters()]
    saved = state["optimizer"]
    optimizer_state = {
        "state": {names[number]: values for number, values in saved["state"].items()},
        "param_groups": [
            {**group, "params": [names[number] for number in group["params"]]}
            for group in saved["param_groups"]
        ],
    }
    options = dcp_state.StateDictOptions(full_state_dict=True)
    dcp_state.set_state_dict(
        model,
        optimizer,
        model_state_dict=state["model"],
        optim_state_dict=optimizer_state,
        options=options,
    )
    if ema is not None:
        averages = {**state["model"], **state.get("ema", {})}
        with ema.applied():
            dcp_state.set_model_state_dict(model, averages, options=options)


def copied(tree: Any) -> Any:
    """Return a copy in host memory, which further training does not change."""
    if isinstance(tree, torch.Tensor):
        return tree.detach().to("cpu", copy=True)
    if isinstance(tree, dict):
        return {key: copied(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(copied(value) for value in tree)
    return tree


def _cause(error: BaseException) -> BaseException:
    """Return the OSError that PyTorch wrapped in another exception, else the exception itself."""
    if isinstance(error, dcp.api.CheckpointException) and error.failures:
        # Of all ranks; those of the disk count most.
        causes = [_cause(failure) for failure, _ in error.failures.values()]
        return max(causes, key=lambda cause: isinstance(cause, OSError))
    within = error
    while not isinstance(within, OSError):
        following = within.__cause__ or within.__context__
        if following is None:
            return error
        within = following
    return within
