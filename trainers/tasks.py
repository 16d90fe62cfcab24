"""Tasks: what is trained. The default is classification; `--task` names a task of your own."""

import argparse
import ast
import importlib
import importlib.util
import inspect
import os
import pathlib
import sys
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn import functional
from torch.utils import data as torch_data

from trainers import data, distributed, errors, models


class Task(Protocol):
    """Model, data, loss and metrics of a training; subclass it to inherit the defaults."""

    #: What throughput counts, in the plural: `images`, `windows`, `tokens`.
    unit: str = "samples"
    #: How many of them a sample has, such as the tokens of a sequence.
    units_per_sample: int = 1
    #: Metric that decides which checkpoint is the best: `loss` (the smallest), or a metric of
    #: `losses` (the largest).
    best_metric: str = "loss"

    def model(self) -> nn.Module:
        """Return the model, in host memory. Called with the same random seed on every rank."""

    def train_data(self) -> torch_data.Dataset[Any]:
        """Return the training data: TensorData, a map-style data set, or an IterableDataset.

        A stream yields the same samples in the same order in every process. Its attribute
        `num_samples` is the length of an epoch (otherwise `--steps-per-epoch` is required).
        Optional: `set_epoch(epoch)`; `samples_at(positions)` to skip samples without reading them;
        `collate_fn` of either kind of data set.
        """

    def eval_data(self) -> torch_data.Dataset[Any]:
        """Return the evaluation data, of the same kinds. A stream must end."""

    def losses(self, model: nn.Module, batch: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Run the model on a batch of B samples; return their losses [B] and metrics, each [B].

        Called for training and for evaluation (`model.training` tells which), within autocast. The
        trainer averages over all samples of a step or of an evaluation, on all ranks.
        """

    def description(self) -> dict[str, str]:
        """Return the names of model and data, printed at the start of a run."""
        return {"model": type(self).__name__, "data": type(self).__name__}


class Classification(Task):
    """Classification of `--dataset` with `--model` and the cross entropy."""

    best_metric = "accuracy"

    def __init__(self, args: argparse.Namespace, dist: distributed.DistInfo) -> None:
        self._args = args
        self._splits = data.load_on_all_ranks(args, dist)
        self.unit = self._splits.unit

    def model(self) -> nn.Module:
        return models.build(self._args.model, self._splits.sample_shape, self._splits.num_classes)

    def train_data(self) -> torch_data.Dataset[Any]:
        return self._splits.train

    def eval_data(self) -> torch_data.Dataset[Any]:
        return self._splits.eval

    def losses(self, model: nn.Module, batch: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Return cross entropy and accuracy; labels are smoothed only in training."""
        inputs, labels = batch
        logits = model(inputs)
        losses = functional.cross_entropy(
            logits.float(),
            labels,
            reduction="none",
            label_smoothing=self._args.label_smoothing if model.training else 0.0,
        )
        return losses, {"accuracy": logits.detach().argmax(dim=1) == labels}

    def description(self) -> dict[str, str]:
        return {"model": self._args.model, "data": self._args.dataset}


def load(args: argparse.Namespace, dist: distributed.DistInfo) -> Task:
    """Return the task of the arguments; all ranks must call it."""
    if args.task is None:
        return Classification(args, dist)
    task_class = find(args.task)
    options = parse_options(args.task_options or [])
    signature = inspect.signature(task_class)
    try:
        signature.bind(**options)
    except TypeError as error:
        raise errors.UsageError(
            f"--task-options do not match {args.task}: {error}. Its signature is"
            f" {signature.replace(return_annotation=signature.empty)}."
        ) from error
    task: Task = task_class(**options)
    return task


def losses(
    task: Task, model: nn.Module, batch: Any, num_samples: int = 0
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return the losses and metrics of a batch; raise UsageError if they are not per sample.

    `num_samples` is 0 if it is unknown. One loss per token, or a mean, would scale the gradient.
    """
    losses, metrics = task.losses(model, batch)
    shape = (num_samples or losses.numel(),)
    if losses.shape != shape or any(value.shape != shape for value in metrics.values()):
        shapes = {name: tuple(value.shape) for name, value in {"loss": losses, **metrics}.items()}
        raise errors.UsageError(
            f"{type(task).__name__}.losses must return one loss per sample, and metrics of the same"
            f' shape ({num_samples or "B"},), but it returned {shapes}: use reduction="none", and'
            " average over all other dimensions."
        )
    return losses, metrics


def find(name: str) -> type[Task]:
    """Return the class `package.module:Class` or `path/to/file.py:Class`.

    Modules are also searched in the working directory, after all other places.
    """
    place, _, class_name = name.rpartition(":")
    if not place:
        raise errors.UsageError(
            f"--task {name}: give module and class, such as my_package.tasks:MyTask or"
            " tasks.py:MyTask."
        )
    try:
        module = _import_file(place) if place.endswith(".py") else _import_module(place)
    except (ImportError, OSError) as error:
        raise errors.UsageError(
            f"--task {name}: cannot import {place}: {error}. The working directory is"
            f" {os.getcwd()}; a package elsewhere must be on PYTHONPATH or installed."
        ) from error
    task_class = getattr(module, class_name, None)
    if not inspect.isclass(task_class):
        classes = [
            each
            for each, value in vars(module).items()
            if inspect.isclass(value) and value.__module__ == module.__name__
        ]
        raise errors.UsageError(
            f"--task {name}: {place} has no class {class_name} (classes: {', '.join(classes)})."
        )
    return task_class


def _import_module(name: str) -> Any:
    # At the end: a folder of the working directory must not replace an installed package.
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    return importlib.import_module(name)


def _import_file(name: str) -> Any:
    path = pathlib.Path(name).resolve()
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    if path.stem in sys.modules:
        raise ImportError(f"a module {path.stem} is already loaded: rename the file")
    module = importlib.util.module_from_spec(spec)
    # Workers and pickle find its classes by this name; modules beside the file can be imported.
    sys.modules[path.stem] = module
    sys.path.append(str(path.parent))
    spec.loader.exec_module(module)
    return module


def parse_options(words: list[str]) -> dict[str, Any]:
    """Parse `name=value` arguments; values are Python literals, else text."""
    options = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name.isidentifier():
            raise errors.UsageError(f"--task-options {word}: give name=value.")
        try:
            options[name] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            options[name] = text
    return options
