"""The names of common metrics, and what programs call them."""

from __future__ import annotations

from orchestrator.patterns import vocabulary

#: All other metrics keep the name that the program prints.
_NORMALIZED = frozenset(
    "loss val_loss accuracy val_accuracy learning_rate epoch step_time data_time grad_norm mfu "
    "memory".split()
)
#: Where programs print several of a kind: normalized name -> other names of it.
_ALIASES = {
    "throughput": (
        "throughput samples_per_second samples_per_sec train_samples_per_second images_per_second "
        "images_per_sec examples_per_second examples_per_sec samples_s images_s img_s "
        "img_per_sec imgs_per_sec samples_sec images_sec examples_sec"
    ),
    "tokens_per_second": (
        "tokens_per_second tokens_per_sec tokens_s tok_s tok_sec tokens_sec tok_per_sec "
        "tokens_per_s tps token_per_sec train_tokens_per_second"
    ),
    "step": "step iter iteration global_step it train_step num_updates training_step",
}
_BY_ALIAS = {alias: name for name, text in _ALIASES.items() for alias in text.split()}
#: Rates that are stored as throughput too.
RATES = ("tokens_per_second",)


def normalized(key: str) -> str | None:
    """Return the normalized name for a program's name, if there is one."""
    found = vocabulary.meaning(key)
    is_known = found is not None and found.name in _NORMALIZED
    return found.name if found and is_known else _BY_ALIAS.get(vocabulary.snake(key))
