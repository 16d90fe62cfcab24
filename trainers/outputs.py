"""What rank 0 writes besides the log: metrics, result.json, TensorBoard; and where."""

import argparse
import json
import math
import os
import pathlib
import platform
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from trainers import checkpoints, errors, fence, metrics, ranks


class Outputs:
    """The files of a run; other ranks than 0 have one that writes nothing."""

    def __init__(
        self,
        *,
        run_dir: pathlib.Path | None,
        metrics_file: metrics.MetricsFile | None,
        attempt_fence: fence.Fence | None,
        suffix: str,
        tensorboard: bool,
    ) -> None:
        self._run_dir = run_dir
        self._metrics_file = metrics_file
        self._fence = attempt_fence
        self._suffix = suffix
        self._board = None
        if tensorboard and run_dir is not None:
            self._board = _open_board(run_dir / f"tensorboard{suffix}")

    def append(self, records: Sequence[metrics.Metric]) -> None:
        """Write metrics to metrics.jsonl, and for TensorBoard where that is wanted."""
        if self._metrics_file is not None:
            self._metrics_file.append(records)
        for record in records if self._board is not None else ():
            name = record.name if record.rank == 0 else f"{record.name}/rank{record.rank}"
            self._board.add_scalar(name, record.value, record.step)

    def write_result(self, result: Mapping[str, Any]) -> None:
        """Write result.json whole, or leave the one before; a full disk is told on stderr."""
        if self._run_dir is None:
            return
        path = self._run_dir / f"result{self._suffix}.json"
        draft = path.with_name(f"{path.name}.draft")
        try:
            draft.write_text(json.dumps(_finite(result), indent=2, allow_nan=False) + "\n")
            self.check()
            os.replace(draft, path)
        except OSError as error:
            sys.stderr.write(f"trainers.train: warning: {path} not written: {error}\n")
            sys.stderr.flush()

    def check(self) -> None:
        """Raise SupersededError where a newer attempt of this job has begun."""
        if self._fence is not None:
            self._fence.check()

    def profile_dir(self) -> pathlib.Path | None:
        """Return where the profiler writes."""
        return None if self._run_dir is None else self._run_dir / f"profile{self._suffix}"

    def close(self) -> None:
        """Finish the files."""
        if self._board is not None:
            self._board.close()


def open_outputs(
    arguments: argparse.Namespace, environ: Mapping[str, str], place: ranks.Ranks
) -> Outputs:
    """Return rank 0's files; nothing is written where no folder is named."""
    path = metrics.file_path(arguments.run_dir, environ)
    if place.rank != 0 or path is None:
        return Outputs(
            run_dir=None, metrics_file=None, attempt_fence=None, suffix="", tensorboard=False
        )
    if not path.parent.is_dir():
        raise errors.UsageError(
            f"The run folder {path.parent} is no folder here: make it, or bind it into the"
            " container."
        )
    attempt_fence = fence.read_fence(environ, path.parent)
    if attempt_fence is not None:
        attempt_fence.check()
    return Outputs(
        run_dir=path.parent,
        metrics_file=metrics.MetricsFile(
            path, attempt_fence=attempt_fence, world_size=place.world_size
        ),
        attempt_fence=attempt_fence,
        suffix=task_suffix(arguments.run_dir, environ),
        tensorboard=arguments.tensorboard,
    )


def run_dir(wanted: argparse.Namespace, environ: Mapping[str, str]) -> pathlib.Path | None:
    """Return the run folder, None where no rank has one."""
    path = metrics.file_path(wanted.run_dir, environ)
    return path.parent if path is not None and path.parent.is_dir() else None


def task_suffix(run_dir: pathlib.Path | None, environ: Mapping[str, str]) -> str:
    """Return what tells apart the tasks of an array, which share a run folder: `.4`, or nothing.

    It is that of the metrics file which the job script names, `metrics.4.jsonl`.
    """
    named = environ.get("ORCHESTRATOR_METRICS_FILE")
    if run_dir is not None or not named:
        return ""
    return pathlib.Path(named).name.removeprefix("metrics").removesuffix(".jsonl")


def open_checkpoints(
    arguments: argparse.Namespace, environ: Mapping[str, str], place: ranks.Ranks, files: Outputs
) -> checkpoints.Store | None:
    """Return rank 0's checkpoints, None on other ranks and where no folder is named."""
    folder = checkpoint_dir(arguments, environ)
    if place.rank != 0 or folder is None:
        return None
    store = checkpoints.Store(folder, keep=arguments.keep_checkpoints, check=files.check)
    try:
        store.open()
    except OSError as error:
        raise errors.UsageError(
            f"The folder of checkpoints can't be used: {error}. --checkpoint-dir names another."
        ) from error
    if arguments.resume == "never" and store.steps():
        raise errors.UsageError(
            f"--resume never, but {folder} holds checkpoints: remove them, or name another"
            " --checkpoint-dir."
        )
    return store


def checkpoint_dir(
    arguments: argparse.Namespace, environ: Mapping[str, str]
) -> pathlib.Path | None:
    """Return the folder of checkpoints, None for a run that writes none."""
    if arguments.checkpoint_dir is not None:
        return pathlib.Path(arguments.checkpoint_dir)
    path = metrics.file_path(arguments.run_dir, environ)
    if path is None:
        return None
    return path.parent / f"checkpoints{task_suffix(arguments.run_dir, environ)}"


def surroundings(place: ranks.Ranks, device: torch.device, mode: str) -> dict[str, Any]:
    """Describe what a run depends on besides its settings."""
    on_gpu = device.type == "cuda"
    return {
        "mode": mode,
        "launcher": place.launcher.value,
        "world_size": place.world_size,
        "num_nodes": place.num_nodes,
        "device": torch.cuda.get_device_name(device) if on_gpu else "cpu",
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda if on_gpu else None,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if on_gpu else None,
        "python": platform.python_version(),
        "host": socket.gethostname(),
    }


def _finite(tree: Any) -> Any:
    # JSON has no NaN and no infinity; null says that there was no finite number.
    if isinstance(tree, float):
        return tree if math.isfinite(tree) else None
    if isinstance(tree, Mapping):
        return {key: _finite(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_finite(value) for value in tree]
    return tree


def _open_board(folder: pathlib.Path) -> Any:
    try:
        from torch.utils import tensorboard
    except ImportError as error:
        raise errors.UsageError(
            f"--tensorboard needs the package tensorboard, which can't be imported ({error}):"
            " install it beside PyTorch."
        ) from error
    return tensorboard.SummaryWriter(str(folder))
