"""Write the weights of a checkpoint alone, for use outside of the trainer.

    python -m trainers.tools.export RUN/checkpoints/best.pt weights.pt

The result is a state_dict: model.load_state_dict(torch.load("weights.pt", weights_only=True)).
A checkpoint is a file, or with FSDP a folder of torch.distributed.checkpoint.
"""

import argparse
import contextlib
import os
import pathlib
import pickle
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
import torch.distributed.checkpoint.api as dcp_api
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from trainers import checkpoint, errors

Weights = dict[str, torch.Tensor]


def read_weights(path: pathlib.Path, *, ema: bool) -> Weights:
    """Return the weights of a checkpoint, in host memory.

    With `ema`, averaged weights replace those that have an average. A file without checksum is not
    verified. Raises UsageError if there are no averages, CheckpointError if the checkpoint is
    damaged.
    """
    if not path.exists():
        raise errors.UsageError(
            f"{path} does not exist: name a file such as best.pt or checkpoint-0000000120.pt, or"
            " with FSDP a folder such as checkpoint-0000000120."
        )
    if path.is_dir() or checkpoint.checksum_path(path).exists():
        checkpoint.verify(path)
    state = read_folder(path) if path.is_dir() else read_file(path)
    if "model" not in state:
        raise errors.CheckpointError(
            f"{path} is not a checkpoint of this trainer: it has no model."
        )
    model: Weights = dict(state["model"])
    if not ema:
        return model
    averaged = state.get("ema")
    if not averaged:
        raise errors.UsageError(
            f"{path} has no averaged weights, because the run used no EMA: omit --ema."
        )
    if unknown := sorted(averaged.keys() - model.keys()):
        raise errors.CheckpointError(
            f"{path}: the EMA has weights that the model does not have: {', '.join(unknown[:3])}."
            " Export without --ema."
        )
    return model | averaged


def read_file(path: pathlib.Path) -> Mapping[str, Any]:
    """Return the content of a checkpoint file; raise CheckpointError if it cannot be read."""
    try:
        # With mmap only the weights are read, not the state of the optimizer.
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except (OSError, RuntimeError, EOFError, ValueError, pickle.UnpicklingError) as error:
        raise _unreadable(path, error) from error
    return content if isinstance(content, dict) else {}


def read_folder(folder: pathlib.Path) -> Mapping[str, Any]:
    """Return `model` and `ema` of a checkpoint of torch.distributed.checkpoint.

    Needs no process group, and as much memory as these weights. Raises CheckpointError if it cannot
    be read.
    """
    try:
        reader = dcp.FileSystemReader(folder)
        metadata = reader.read_metadata()
        state: dict[str, Weights] = {}
        for name, (part, *keys) in (metadata.planner_data or {}).items():
            tensor = metadata.state_dict_metadata[name]
            if part in ("model", "ema") and isinstance(tensor, TensorStorageMetadata):
                empty = torch.empty(tensor.size, dtype=tensor.properties.dtype)
                state.setdefault(part, {})[".".join(map(str, keys))] = empty
        with warnings.catch_warnings():
            # That there is no process group.
            warnings.simplefilter("ignore")
            dcp.load(state, storage_reader=reader)
    # Damaged metadata raises any error; CheckpointException is not a subclass of Exception.
    except (Exception, dcp_api.CheckpointException) as error:
        raise _unreadable(folder, error) from error
    return state


def _unreadable(path: pathlib.Path, error: BaseException) -> errors.CheckpointError:
    # The messages of pickle and torch are long and about their internals.
    reason = error if isinstance(error, OSError) else "damaged, or not of this trainer"
    return errors.CheckpointError(f"{path} cannot be read: {reason}. Use another checkpoint.")


def write(path: pathlib.Path, weights: Weights) -> None:
    """Write the weights; an existing file is replaced only after they are on disk.

    Raises CheckpointError if they cannot be written.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("wb") as file:
            torch.save(weights, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    # torch.save turns an OSError of the file into a RuntimeError.
    except (OSError, RuntimeError) as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise errors.CheckpointError(
            f"{path} cannot be written: {error}. Free space, or choose another folder."
        ) from error


def run(args: argparse.Namespace) -> None:
    """Export; raise TrainerError if it is not possible."""
    has_checksum = checkpoint.checksum_path(args.output).exists()
    is_checkpoint = args.checkpoint.resolve() in (
        args.output.resolve(),
        args.output.resolve().parent,
    )
    if args.output.is_dir() or has_checksum or is_checkpoint:
        raise errors.UsageError(f"{args.output} is a folder or a checkpoint: name another file.")
    weights = read_weights(args.checkpoint, ema=args.ema)
    write(args.output, weights)
    num_bytes = sum(tensor.nbytes for tensor in weights.values())
    print(f"{args.output}: {len(weights)} tensors, {num_bytes / 1e6:.1f} MB")


def main(argv: Sequence[str] | None = None) -> int:
    """Run from the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="trainers.tools.export", description="Write the weights of a checkpoint alone."
    )
    parser.add_argument("checkpoint", type=pathlib.Path, help="file, or folder of FSDP")
    parser.add_argument("output", type=pathlib.Path, help="file to write")
    parser.add_argument("--ema", action="store_true", help="write the averaged weights (EMA)")
    try:
        run(parser.parse_args(argv))
    except errors.TrainerError as error:
        print(f"trainers.tools.export: error: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
