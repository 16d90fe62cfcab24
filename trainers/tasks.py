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
from trainers.data import loading


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
        if args.task_options:
            raise errors.UsageError("--task-options requires --task.")
        return Classification(args, dist)
    ignored = arguments.ignored_with_task(args)
    if ignored and dist.rank == 0:
        metrics.warn(f"Ignored with --task: {', '.join(ignored)}.")
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
    return task_class(**options)


def make_model(task: Task) -> nn.Module:
    """Return the model; raise UsageError if it cannot be trained."""
    model = task.model()
    if not isinstance(model, nn.Module):
        raise errors.UsageError(
            f"{type(task).__name__}.model must return an nn.Module, but it returned"
            f" {type(model).__name__}."
        )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise errors.UsageError(
            f"{type(task).__name__}.model returned a model without trainable parameters."
        )
    return model


def load_data(
    task: Task, min_eval_samples: int
) -> tuple[torch_data.Dataset[Any], torch_data.Dataset[Any]]:
    """Return the training and the evaluation data; raise UsageError if they cannot be used."""
    parts = task.train_data(), task.eval_data()
    for name, part in zip(("train_data", "eval_data"), parts, strict=True):
        is_map = hasattr(part, "__len__") and hasattr(part, "__getitem__")
        if not (is_map or isinstance(part, torch_data.IterableDataset)):
            raise errors.UsageError(
                f"{type(task).__name__}.{name} must return a data set with __len__ and __getitem__,"
                f" or an IterableDataset, but it returned {type(part).__name__}."
            )
    check_eval_size(task, loading.num_samples_of(parts[1]), min_eval_samples)
    return parts


def check_eval_size(task: Task, size: int | None, minimum: int = 1) -> None:
    """Raise UsageError if there are too few evaluation samples; None: their number is unknown."""
    if size is not None and size < minimum:
        raise errors.UsageError(
            f"{type(task).__name__}.eval_data returned {size} samples, but evaluation needs at"
            f" least {minimum}{', one for each rank (--mode fsdp)' if minimum > 1 else ''}."
        )


def losses(
    task: Task, model: nn.Module, batch: Any, num_samples: int = 0
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return the losses and metrics of a batch; raise UsageError if they are not per sample.

    `num_samples` is 0 if it is unknown. One loss per token, or a mean, would scale the gradient.
    """
    name, result = type(task).__name__, task.losses(model, batch)
    if not (isinstance(result, tuple | list) and len(result) == 2 and isinstance(result[1], dict)):
        raise errors.UsageError(
            f"{name}.losses must return a pair: the losses, and a dictionary of metrics ({{}} if"
            f" there are none), but it returned {_kind(result)}."
        )
    losses, values = result
    # A number has no shape.
    shape = (num_samples or getattr(losses, "numel", int)(),)
    if any(getattr(value, "shape", None) != shape for value in (losses, *values.values())):
        kinds = {key: _kind(value) for key, value in {"loss": losses, **values}.items()}
        raise errors.UsageError(
            f"{name}.losses must return one loss per sample, and metrics of the same"
            f' shape ({num_samples or "B"},), but it returned {kinds}: use reduction="none", and'
            " average over all other dimensions."
        )
    if model.training and not losses.requires_grad:
        raise errors.UsageError(
            f"{name}.losses returned losses without a gradient: compute them with the model,"
            " without detach() and no_grad()."
        )
    if reserved := {"loss", "count"} & values.keys():
        raise errors.UsageError(
            f"{name}.losses returned a metric named {' and '.join(sorted(reserved))}, a name of the"
            " trainer's own: use another name."
        )
    if task.best_metric not in ("loss", *values):
        raise errors.UsageError(
            f"{name}.best_metric is {task.best_metric!r}, but {name}.losses returns no such metric:"
            f" use {' or '.join(map(repr, ('loss', *values)))}."
        )
    return losses, values


def _kind(value: Any) -> Any:
    """Return the shape of a tensor, else the name of the type."""
    return tuple(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__


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
    if not issubclass(task_class, Task):
        raise errors.UsageError(
            f"--task {name}: {class_name} is not a task: let it inherit from trainers.tasks.Task."
        )
    if missing := ", ".join(sorted(task_class.__abstractmethods__)):
        raise errors.UsageError(
            f"--task {name}: {class_name} lacks {missing}: a task has the methods model,"
            " train_data, eval_data and losses."
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
