"""Names on the command line, and the packages behind them."""

import difflib
import importlib
from collections.abc import Iterable
from typing import Any

import torch

from trainers import errors

TORCHVISION = "torchvision:"


def check(option: str, name: str, names: Iterable[str]) -> str:
    """Return the name; raise UsageError with suggestions if it is not one of `names`."""
    known = {each.lower(): each for each in sorted(names)}
    if name in known.values():
        return name
    similar = difflib.get_close_matches(name.lower(), known, n=1)
    fix = f"did you mean {known[similar[0]]}?" if similar else f"use {', '.join(known.values())}."
    raise errors.UsageError(f"unknown name in {option}{name}: {fix}")


def import_package(module: str, package: str, option: str) -> Any:
    """Import a module of a package that only some options need; raise UsageError if that fails."""
    try:
        return importlib.import_module(module)
    # A torchvision for another release of PyTorch raises RuntimeError or OSError.
    except (ImportError, RuntimeError, OSError) as error:
        raise errors.UsageError(
            f"{option} requires {package}, which cannot be imported ({error}): install a release"
            f" for PyTorch {torch.__version__} in the same environment."
        ) from error
