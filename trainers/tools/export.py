"""Write the weights of a checkpoint alone, for use outside of the trainer.

    python -m trainers.tools.export RUN/checkpoints/best.pt weights.pt

The result is a state_dict: model.load_state_dict(torch.load("weights.pt", weights_only=True)).
A checkpoint is a file, or with FSDP a folder of torch.distributed.checkpoint.
"""

import argparse
import contextlib
import os
import pathlib
import re
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
import torch.distributed.checkpoint.api as dcp_api
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from trainers import checkpoint
from trainers.errors import CheckpointError, TrainerError, UsageError

NAME = re.compile(rf"best(\.pt)?|{checkpoint.NAME.pattern}")


def read_weights(path: pathlib.Path, *, ema: bool) -> dict[str, torch.Tensor]:
    """Return the weights of a checkpoint, in host memory.

    With `ema`, averaged weights replace those that have an average. A file without checksum is not
    verified.
    """
    if not path.exists():
        raise UsageError(
            f"{path} does not exist: name a file such as best.pt or checkpoint-0000000120.pt, or"
            " with FSDP a folder such as checkpoint-0000000120."
        )
    if path.is_dir() and not any((path / name).exists() for name in (".metadata", "SHA256SUMS")):
        files = sorted([*path.glob("*"), *path.glob("*/*")])
        inside = [str(file) for file in files if NAME.fullmatch(file.name)]
        fix = f"name one of {', '.join(inside)}." if inside else "it contains none."
        raise UsageError(f"{path} is not a checkpoint, but a folder: {fix}")
    if path.is_dir() or checkpoint.checksum_path(path).exists():
        checkpoint.verify(path)
    state = _read(path)
    if not isinstance(state, dict) or "model" not in state:
        raise CheckpointError(f"{path} is not a checkpoint of this trainer: it has no model.")
    model, averaged = state["model"], state.get("ema", {}) if ema else {}
    if ema and not averaged:
        raise UsageError(f"{path} has no averaged weights, as the run used no EMA: omit --ema.")
    return {**model, **averaged}


def _read(path: pathlib.Path) -> Any:
    """Return what a file contains, or `model` and `ema` of a folder; needs no process group."""
    try:
        if not path.is_dir():
            # With mmap only the weights are read, not the state of the optimizer.
            return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        reader = dcp.FileSystemReader(path)
        metadata = reader.read_metadata()
        state: dict[str, dict[str, torch.Tensor]] = {}
        for name, (part, *keys) in (metadata.planner_data or {}).items():
            tensor = metadata.state_dict_metadata[name]
            if part in ("model", "ema") and isinstance(tensor, TensorStorageMetadata):
                empty = torch.empty(tensor.size, dtype=tensor.properties.dtype)
                state.setdefault(part, {})[".".join(map(str, keys))] = empty
        with warnings.catch_warnings():
            # That there is no process group.
            warnings.simplefilter("ignore")
            dcp.load(state, storage_reader=reader)
        return state
    # Damaged files raise any error; CheckpointException is not a subclass of Exception.
    except (Exception, dcp_api.CheckpointException) as error:
        # The messages of pickle and torch are long and about their internals.
        reason = error if isinstance(error, OSError) else "damaged, or not of this trainer"
        message = f"{path} cannot be read: {reason}. Use another checkpoint."
        raise CheckpointError(message) from error


def write(path: pathlib.Path, weights: dict[str, torch.Tensor]) -> None:
    """Write the weights; an existing file is replaced only after they are on disk."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("wb") as file:
            torch.save(weights, file)
        checkpoint.sync(draft)
        os.replace(draft, path)
    # torch.save turns an OSError of the file into a RuntimeError.
    except (OSError, RuntimeError) as error:
        message = f"{path} cannot be written: {error}. Free space, or choose another folder."
        raise CheckpointError(message) from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


def main(argv: Sequence[str] | None = None) -> int:
    """Run from the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="trainers.tools.export", description="Write the weights of a checkpoint alone."
    )
    parser.add_argument("checkpoint", type=pathlib.Path, help="file, or folder of FSDP")
    parser.add_argument("output", type=pathlib.Path, help="file to write")
    parser.add_argument("--ema", action="store_true", help="write the averaged weights (EMA)")
    args = parser.parse_args(argv)
    source, output = args.checkpoint.resolve(), args.output.resolve()
    try:
        weights = read_weights(args.checkpoint, ema=args.ema)
        is_checkpoint = (
            source in (output, output.parent) or checkpoint.checksum_path(output).exists()
        )
        if output.is_dir() or is_checkpoint:
            raise UsageError(f"{args.output} is a folder or a checkpoint: name another file.")
        write(args.output, weights)
    except TrainerError as error:
        print(f"trainers.tools.export: error: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    num_bytes = sum(tensor.nbytes for tensor in weights.values())
    print(f"{args.output}: {len(weights)} tensors, {num_bytes / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
