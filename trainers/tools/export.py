"""Write the weights of a checkpoint alone, a state_dict, for use outside of the trainer.

python -m trainers.tools.export RUN/checkpoints/best.pt weights.pt
"""

import argparse
import pathlib
import sys
import tempfile
from collections.abc import Sequence

import torch
from torch.distributed.checkpoint import format_utils

from trainers import checkpoint, errors


def export(path: pathlib.Path, output: pathlib.Path, *, ema: bool) -> str:
    """Write the weights, with `ema` the averages instead, and return a line about them."""
    if path.is_dir() or checkpoint.checksum_path(path).exists():
        checkpoint.verify(path)
    if path.is_dir():
        with tempfile.TemporaryDirectory(dir=output.parent) as folder:
            whole = pathlib.Path(folder, "checkpoint.pt")
            format_utils.dcp_to_torch_save(path, whole)
            state = torch.load(whole, map_location="cpu", weights_only=True, mmap=True)
    else:
        state = checkpoint.load(path)
    weights = state["model"]
    if ema and not state.get("ema"):
        raise errors.UsageError(f"{path} has no averaged weights: omit --ema.")
    if ema:
        weights.update(state["ema"])
    with output.open("xb") as file:
        torch.save(weights, file)
    num_bytes = sum(tensor.nbytes for tensor in weights.values())
    return f"{output}: {len(weights)} tensors, {num_bytes / 1e6:.1f} MB"


def main(argv: Sequence[str] | None = None) -> int:
    description = "Write the weights of a checkpoint alone."
    parser = argparse.ArgumentParser(prog="trainers.tools.export", description=description)
    parser.add_argument("checkpoint", type=pathlib.Path, help="file, or folder of FSDP")
    parser.add_argument("output", type=pathlib.Path, help="file to write")
    parser.add_argument("--ema", action="store_true", help="write the averaged weights (EMA)")
    args = parser.parse_args(argv)
    try:
        print(export(args.checkpoint, args.output, ema=args.ema))
    # torch.save turns an OSError of the file into a RuntimeError.
    except (errors.TrainerError, OSError, RuntimeError) as error:
        print(f"trainers.tools.export: error: {error}", file=sys.stderr)
        return getattr(error, "exit_code", 1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
