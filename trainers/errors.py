"""Expected errors before and during a run, and checks that raise them."""

import difflib
import importlib
import math
from collections.abc import Iterable
from typing import Any

import torch


class TrainerError(Exception):
    """The run cannot continue; the message names a fix."""

    exit_code = 1


class UsageError(TrainerError):
    """The run cannot start with these arguments or in this environment."""

    exit_code = 2


class SupersededError(TrainerError):
    """A newer attempt of this job has started, so this attempt must not write any more."""

    # EX_TEMPFAIL of sysexits.h. The job script uses the same exit code for this case.
    exit_code = 75


class DataError(UsageError):
    """A data set is missing, damaged, or cannot be downloaded."""

    def __init__(self, message: str) -> None:
        # An error of a DataLoader worker is made again from its traceback.
        super().__init__(message.rpartition("trainers.errors.DataError: ")[2].rstrip())


class CheckpointError(TrainerError):
    """A checkpoint cannot be written, read, or used for this run."""


class LostRankError(TrainerError):
    """Another rank has exited or cannot be reached."""


class StoppedError(TrainerError):
    """The run was stopped before its end and will not be requeued."""

    # 128 + SIGTERM, as a shell reports it. The job script ends with it as well.
    def __init__(self, message: str = "", exit_code: int = 143) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class DivergedError(TrainerError):
    """A loss or a weight is NaN or infinite."""

    # EX_DATAERR of sysexits.h.
    exit_code = 65

    def __init__(self, what: str) -> None:
        fix = "Use a lower --base-lr, a longer --warmup-epochs or --max-gradient-norm"
        super().__init__(f"training diverged: {what}. {fix}; earlier checkpoints are kept.")


def check_loss(value: float, where: str) -> None:
    """Raise DivergedError if a loss, which is the same on all ranks, is NaN or infinite."""
    if not math.isfinite(value):
        name = "NaN" if math.isnan(value) else "infinite"
        raise DivergedError(f"the loss became {name} in {where}")


def check_name(option: str, name: str, names: Iterable[str]) -> str:
    """Return the name; raise UsageError if `names` have neither it nor, for `A:B`, `A:NAME`."""
    known = {each.lower(): each for each in sorted(names)}
    if {name, f"{name[: name.find(':') + 1]}NAME"} & {*known.values()}:
        return name
    similar = difflib.get_close_matches(name.lower(), known, n=1)
    fix = f"did you mean {known[similar[0]]}?" if similar else f"use {', '.join(known.values())}."
    raise UsageError(f"unknown name in {option}{name}: {fix}")


def import_package(module: str, package: str, option: str) -> Any:
    """Import a module of a package that only some options need; raise UsageError if that fails."""
    try:
        return importlib.import_module(module)
    # A torchvision for another release of PyTorch raises RuntimeError or OSError.
    except (ImportError, RuntimeError, OSError) as error:
        fix = f"install a release for PyTorch {torch.__version__} in the same environment"
        message = f"{option} requires {package}, which cannot be imported ({error}): {fix}."
        raise UsageError(message) from error
