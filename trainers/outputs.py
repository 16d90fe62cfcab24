"""The files that rank 0 writes: metrics, result.json, TensorBoard, checkpoints."""

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
    """The output files of a run; on ranks other than 0 nothing is written."""

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
        """Write metrics to metrics.jsonl, and for TensorBoard if enabled."""
        if self._metrics_file is not None:
            self._metrics_file.append(records)
        for record in records if self._board is not None else ():
            name = record.name if record.rank == 0 else f"{record.name}/rank{record.rank}"
            self._board.add_scalar(name, record.value, record.step)

    def write_result(self, result: Mapping[str, Any]) -> None:
        """Replace result.json atomically; print a warning if it cannot be written."""
        if self._run_dir is None:
            return
        path = self._run_dir / f"result{self._suffix}.json"
        draft = path.with_name(f"{path.name}.draft")
        try:
            draft.write_text(json.dumps(_finite(result), indent=2, allow_nan=False) + "\n")
            self.check()
            os.replace(draft, path)
        except OSError as error:
            sys.stderr.write(f"trainers.train: warning: cannot write {path}: {error}\n")
            sys.stderr.flush()

    def check(self) -> None:
        """Raise SupersededError if a newer attempt of this job has started."""
        if self._fence is not None:
            self._fence.check()

    def profile_dir(self) -> pathlib.Path | None:
        """Return the output folder of the profiler."""
        return None if self._run_dir is None else self._run_dir / f"profile{self._suffix}"

    def close(self) -> None:
        """Close the files."""
        if self._board is not None:
            self._board.close()


def open_outputs(
    arguments: argparse.Namespace, environ: Mapping[str, str], place: ranks.Ranks
) -> Outputs:
    """Return the output files; nothing is written on other ranks or without a folder."""
    path = metrics.file_path(arguments.run_dir, environ)
    if place.rank != 0 or path is None:
        return Outputs(
            run_dir=None, metrics_file=None, attempt_fence=None, suffix="", tensorboard=False
        )
    if not path.parent.is_dir():
        raise errors.UsageError(
            f"The run folder {path.parent} does not exist here: create it, or bind it into the"
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
    """Return the run folder, or None if there is none."""
    path = metrics.file_path(wanted.run_dir, environ)
    return path.parent if path is not None and path.parent.is_dir() else None


def task_suffix(run_dir: pathlib.Path | None, environ: Mapping[str, str]) -> str:
    """Return the suffix of an array task's files, such as `.4`, or an empty string.

    The tasks of an array share a run folder. The suffix is that of the metrics file that the job
    script sets, such as `metrics.4.jsonl`.
    """
    named = environ.get("ORCHESTRATOR_METRICS_FILE")
    if run_dir is not None or not named:
        return ""
    return pathlib.Path(named).name.removeprefix("metrics").removesuffix(".jsonl")


def open_checkpoints(
    arguments: argparse.Namespace, environ: Mapping[str, str], place: ranks.Ranks, files: Outputs
) -> checkpoints.Store | None:
    """Return rank 0's checkpoints; None on other ranks and without a folder."""
    folder = checkpoint_dir(arguments, environ)
    if place.rank != 0 or folder is None:
        return None
    store = checkpoints.Store(folder, keep=arguments.keep_checkpoints, check=files.check)
    try:
        store.open()
    except OSError as error:
        raise errors.UsageError(
            f"Cannot use the checkpoint folder: {error}. Set another one with --checkpoint-dir."
        ) from error
    if arguments.resume == "never" and store.steps():
        raise errors.UsageError(
            f"--resume never, but {folder} contains checkpoints: remove them, or set another"
            " --checkpoint-dir."
        )
    return store


def checkpoint_dir(
    arguments: argparse.Namespace, environ: Mapping[str, str]
) -> pathlib.Path | None:
    """Return the folder of checkpoints, or None for a run without checkpoints."""
    if arguments.checkpoint_dir is not None:
        return pathlib.Path(arguments.checkpoint_dir)
    path = metrics.file_path(arguments.run_dir, environ)
    if path is None:
        return None
    return path.parent / f"checkpoints{task_suffix(arguments.run_dir, environ)}"


def surroundings(place: ranks.Ranks, device: torch.device, mode: str) -> dict[str, Any]:
    """Return the environment of a run: launcher, ranks, device and versions."""
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
    # JSON has no NaN and no infinity; null means not finite.
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
            f"--tensorboard requires the package tensorboard, which cannot be imported ({error}):"
            " install it in PyTorch's environment."
        ) from error
    return tensorboard.SummaryWriter(str(folder))
