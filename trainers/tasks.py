"""Tasks: what is trained. The default is classification; `--task` names a task of your own."""

import abc
import argparse
import ast
import importlib
import importlib.util
import inspect
import os
import pathlib
import sys
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils import data as torch_data

from trainers import arguments, data, distributed, errors, metrics, models


class Task(abc.ABC):
    """Model, data, loss and metrics of a training; subclass it to inherit the defaults."""

    #: What throughput counts, in the plural: `images`, `windows`, `tokens`.
    unit: str = "samples"
    #: How many of them a sample has, such as the tokens of a sequence.
    units_per_sample: int = 1
    #: Metric that decides which checkpoint is the best: `loss` (the smallest), or a metric of
    #: `losses` (the largest).
    best_metric: str = "loss"

    @abc.abstractmethod
    def model(self) -> nn.Module:
        """Return the model, in host memory. Called with the same random seed on every rank."""

    @abc.abstractmethod
    def train_data(self) -> torch_data.Dataset[Any]:
        """Return the training data: TensorData, a map-style data set, or an IterableDataset.

        A stream yields the same samples in the same order in every process. Its attribute
        `num_samples` is the length of an epoch (otherwise `--steps-per-epoch` is required).
        Optional: `set_epoch(epoch)`; `samples_at(positions)` to skip samples without reading them;
        `collate_fn` of either kind of data set.
        """

    @abc.abstractmethod
    def eval_data(self) -> torch_data.Dataset[Any]:
        """Return the evaluation data, of the same kinds. A stream must end."""

    @abc.abstractmethod
    def losses(self, model: nn.Module, batch: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Run the model on a batch of B samples; return their losses [B] and metrics, each [B].

        Called within autocast, also for evaluation: then `model.training` is false. The trainer
        averages over all samples of a step or of an evaluation, on all ranks.
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
        smoothing = self._args.label_smoothing if model.training else 0.0
        options = {"reduction": "none", "label_smoothing": smoothing}
        losses = functional.cross_entropy(logits.float(), labels, **options)
        return losses, {"accuracy": logits.detach().argmax(dim=1) == labels}

    def description(self) -> dict[str, str]:
        return {"model": self._args.model, "data": self._args.dataset}


def load(args: argparse.Namespace, dist: distributed.DistInfo) -> Task:
    """Return the task of the arguments; all ranks must call it."""
    if args.task is None:
        if args.task_options:
            raise errors.UsageError("--task-options requires --task.")
        return Classification(args, dist)
    default, names = arguments.parser().get_default, arguments.OF_CLASSIFICATION
    ignored = ", ".join(f"--{name}" for name in names if getattr(args, name) != default(name))
    if ignored and dist.rank == 0:
        metrics.warn(f"Ignored with --task: {ignored.replace('_', '-')}.")
    task_class, options = find(args.task), parse_options(args.task_options or [])
    signature = inspect.signature(task_class)
    try:
        signature.bind(**options)
    except TypeError as error:
        names = ", ".join(signature.parameters) or "none"
        raise errors.UsageError(f"--task-options: {error}. {args.task} has: {names}.") from error
    return task_class(**options)


def losses(
    task: Task, model: nn.Module, batch: Any, num_samples: int = 0
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return the losses and metrics of a batch; raise UsageError if they are not per sample.

    `num_samples` is 0 if it is unknown. One loss per token, or a mean, would scale the gradient.
    """
    name, result = type(task).__name__, task.losses(model, batch)
    if not isinstance(result, tuple) or len(result) != 2:
        raise errors.UsageError(
            f"{name}.losses must return a pair, the losses and a dictionary of metrics ({{}} if"
            f" there are none), but it returned {type(result).__name__}."
        )
    losses, values = result
    shape = (num_samples or losses.numel(),)
    if any(getattr(value, "shape", None) != shape for value in (losses, *values.values())):
        named = {"loss": losses, **values}
        shapes = {key: tuple(getattr(value, "shape", ())) for key, value in named.items()}
        raise errors.UsageError(
            f"{name}.losses must return one loss per sample, and metrics of the same shape"
            f' ({num_samples or "B"},), but it returned {shapes}: use reduction="none", and average'
            " over all other dimensions."
        )
    if task.best_metric not in ("loss", *values) or "loss" in values:
        raise errors.UsageError(
            f"{name}.losses returned the metrics {list(values)}: they must include best_metric"
            f" ({task.best_metric!r}) unless it is 'loss', and none may be called loss."
        )
    return losses, values


def find(name: str) -> type[Task]:
    """Return the class `package.module:Class` or `path/to/file.py:Class`."""
    source, _, class_name = name.rpartition(":")
    is_file = source.endswith(".py")
    if not (is_file or all(part.isidentifier() for part in source.split("."))):
        raise errors.UsageError(f"--task {name}: give package.module:Class or file.py:Class.")
    # At the end: a folder of the working directory must not replace an installed package.
    sys.path += [os.getcwd()] if os.getcwd() not in sys.path else []
    try:
        module = _import_file(source) if is_file else importlib.import_module(source)
    except (ImportError, OSError) as error:
        raise errors.UsageError(
            f"--task {name}: cannot import {source}: {error}. The working directory is"
            f" {os.getcwd()}; a package elsewhere must be on PYTHONPATH or installed."
        ) from error
    task_class = getattr(module, class_name, None)
    if not (inspect.isclass(task_class) and issubclass(task_class, Task)):
        raise errors.UsageError(
            f"--task {name}: {source} has no class {class_name} derived from trainers.tasks.Task."
        )
    if missing := ", ".join(sorted(task_class.__abstractmethods__)):
        raise errors.UsageError(f"--task {name}: {class_name} must define {missing}.")
    return task_class


def _import_file(name: str) -> Any:
    # Otherwise it depends on the version of Python which path an error names.
    path = pathlib.Path(name).absolute().resolve(strict=True)
    if path.stem in sys.modules:
        raise ImportError(f"a module {path.stem} is already loaded: rename the file")
    spec: Any = importlib.util.spec_from_file_location(path.stem, path)
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
