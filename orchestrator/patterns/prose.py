"""Counts the words of a line that are neither names of metrics nor usual beside them."""

from __future__ import annotations

import functools
import re

from orchestrator.patterns import vocabulary

WORDS = re.compile(r"[A-Za-z][A-Za-z_]+")
#: Words beside metrics that are no prose.
_USUAL = frozenset(
    "learning eta elapsed remaining left time total gpu gpus rank node info set results result "
    "metrics summary stats on at in performance lr max min avg mean std best cur current per ms "
    "sec secs seconds min mins hours hour hrs days mb gb gib mib done finished completed samples "
    "images tokens steps batches examples epoch step iter progress rate save saved saving "
    "new number timer".split()
)
#: What is counted from one training to the next.
_RUNS = frozenset("fold folds kfold split trial seed run client".split())


def other_words(text: str) -> int:
    """Return the number of words that are neither names of metrics nor usual beside them."""
    return sum(map(is_other, WORDS.findall(text)))


@functools.lru_cache(4096)
def is_other(word: str) -> bool:
    return (
        word.lower() not in _USUAL
        and vocabulary.meaning(word) is None
        and vocabulary.last_phase([word], None) is None
    )


def is_run(words: str) -> bool:
    """Return whether what is counted under this name is no part of one training: Fold [1/5]"""
    return words.rpartition(" ")[2].lower() in _RUNS
