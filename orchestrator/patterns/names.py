"""One name for what trainers call by many: `lr`, `learning_rate` and `LR` are learning_rate."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

#: The names that all patterns use; what is none of these keeps the program's own.
NORMALISED = (
    "throughput",
    "tokens_per_second",
    "loss",
    "val_loss",
    "accuracy",
    "val_accuracy",
    "learning_rate",
    "step",
    "epoch",
    "step_time",
    "data_time",
    "grad_norm",
    "mfu",
    "memory",
)

#: A rate under a name of its own is the line's throughput as well.
RATES = ("tokens_per_second",)

_OTHERS: Mapping[str, Sequence[str]] = {
    "throughput": (
        "samples_per_second samples_per_sec train_samples_per_second images_per_second "
        "images_per_sec examples_per_second examples_per_sec samples_s images_s img_s "
        "img_per_sec imgs_per_sec samples_sec images_sec examples_sec"
    ).split(),
    "tokens_per_second": (
        "tokens_per_sec tokens_s tok_s tok_sec tokens_sec tok_per_sec tokens_per_s tps "
        "token_per_sec train_tokens_per_second"
    ).split(),
    "loss": "train_loss training_loss loss_train train_total_loss".split(),
    "val_loss": "eval_loss valid_loss validation_loss test_loss loss_val".split(),
    "accuracy": "acc train_acc train_accuracy training_accuracy acc1 train_acc1 top1".split(),
    "val_accuracy": (
        "val_acc valid_acc valid_accuracy validation_accuracy validation_acc test_acc "
        "test_accuracy eval_acc eval_accuracy val_acc1 test_acc1 val_top1"
    ).split(),
    "learning_rate": "lr learning_rate train_lr lrate current_lr".split(),
    "step": ("iter iteration global_step it train_step num_updates training_step").split(),
    "epoch": "epochs_done current_epoch epoch_num".split(),
    "step_time": (
        "iter_time iteration_time time_per_step sec_per_step seconds_per_step step_time_s "
        "time_per_iter time_per_iteration batch_time sec_per_iter step_seconds"
    ).split(),
    "data_time": "data_loading_time time_data dataloader_time data_wait".split(),
    "grad_norm": "gnorm gradnorm gradient_norm total_grad_norm global_grad_norm".split(),
    "mfu": ["model_flops_utilization"],
    "memory": "mem max_mem max_memory gpu_memory gpu_mem memory_allocated peak_memory".split(),
}
_NORMALISED = {other: name for name, others in _OTHERS.items() for other in others} | {
    name: name for name in NORMALISED
}
_WORD_END = re.compile(r"(?<=[a-z])(?=[A-Z][a-z])")
_NO_NAME = re.compile(r"[^a-z0-9]+")

#: Words that tell that a line is of validation; the others are of training.
_VALIDATION = frozenset(
    ("val", "valid", "validate", "validation", "test", "eval", "evaluation", "dev")
)


def snake(key: str) -> str:
    """Return a program's name for something as a metric's name; "" where nothing is left."""
    words = _NO_NAME.sub("_", _WORD_END.sub("_", key).lower()).strip("_")
    return f"n{words}"[:64] if words[:1].isdigit() else words[:64]


def known(key: str) -> str | None:
    """Return the normalised name of what a program calls so; none where there is none."""
    return _NORMALISED.get(snake(key))


def in_phase(name: str, phase: str) -> str:
    """Return a metric's name on a line of this phase: loss is val_loss in "valid"."""
    if phase.lower() not in _VALIDATION or name in ("step", "epoch") or name.startswith("val_"):
        return name
    return f"val_{name}"[:64]
