"""Maps the names that programs use to ours: `lr` and `LR` are learning_rate."""

from __future__ import annotations

import re

#: Normalized name -> other names of it. All other names stay as the program prints them.
_ALIASES = {
    "throughput": (
        "samples_per_second samples_per_sec train_samples_per_second images_per_second "
        "images_per_sec examples_per_second examples_per_sec samples_s images_s img_s "
        "img_per_sec imgs_per_sec samples_sec images_sec examples_sec"
    ),
    "tokens_per_second": (
        "tokens_per_sec tokens_s tok_s tok_sec tokens_sec tok_per_sec tokens_per_s tps "
        "token_per_sec train_tokens_per_second"
    ),
    "loss": "train_loss training_loss loss_train train_total_loss",
    "val_loss": "eval_loss valid_loss validation_loss test_loss loss_val",
    "accuracy": "acc train_acc train_accuracy training_accuracy acc1 train_acc1 top1",
    "val_accuracy": (
        "val_acc valid_acc valid_accuracy validation_accuracy validation_acc test_acc "
        "test_accuracy eval_acc eval_accuracy val_acc1 test_acc1 val_top1"
    ),
    "learning_rate": "lr train_lr lrate current_lr",
    "step": "iter iteration global_step it train_step num_updates training_step",
    "epoch": "epochs_done current_epoch epoch_num",
    "step_time": (
        "iter_time iteration_time time_per_step sec_per_step seconds_per_step step_time_s "
        "time_per_iter time_per_iteration batch_time sec_per_iter step_seconds"
    ),
    "data_time": "data_loading_time time_data dataloader_time data_wait",
    "grad_norm": "gnorm gradnorm gradient_norm total_grad_norm global_grad_norm",
    "mfu": "model_flops_utilization",
    "memory": "mem max_mem max_memory gpu_memory gpu_mem memory_allocated peak_memory",
}
_NORMALIZED = {alias: name for name, text in _ALIASES.items() for alias in [name, *text.split()]}
#: Rates that are stored as throughput too.
RATES = ("tokens_per_second",)

_WORD_END = re.compile(r"(?<=[a-z])(?=[A-Z][a-z])")
_OTHER_CHARACTERS = re.compile(r"[^a-z0-9]+")
#: Phases other than training.
_VALIDATION = frozenset("val valid validate validation test eval evaluation dev".split())


def snake(key: str) -> str:
    """Convert a program's name to a metric name; "" if nothing is left."""
    words = _OTHER_CHARACTERS.sub("_", _WORD_END.sub("_", key).lower()).strip("_")
    return f"n{words}"[:64] if words[:1].isdigit() else words[:64]


def normalized(key: str) -> str | None:
    """Return the normalized name for a program's name, if there is one."""
    return _NORMALIZED.get(snake(key))


def in_phase(name: str, phase: str) -> str:
    """Return the name of a metric in this phase: loss is val_loss in "valid"."""
    if phase.lower() not in _VALIDATION or name in ("step", "epoch") or name.startswith("val_"):
        return name
    return f"val_{name}"[:64]
