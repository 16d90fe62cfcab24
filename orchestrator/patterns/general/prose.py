"""Tells lines of metrics from prose: counts words that are neither names nor usual beside them."""

from __future__ import annotations

import functools
import re

from orchestrator.patterns import training_phases, vocabulary

WORDS = re.compile(r"[A-Za-z][A-Za-z_]+")
#: Words beside metrics that are no prose.
_USUAL = frozenset(
    "learning eta elapsed remaining left time total gpu gpus rank node info set results result "
    "metrics summary stats on at in performance lr max min avg mean std best cur current per ms "
    "sec secs seconds min mins hours hour hrs days mb gb gib mib done finished completed samples "
    "images tokens steps batches examples epoch step iter progress rate save saved saving "
    "new number estimated timer gradient chain warmup sampling adaptation".split()
)
_STEP = r"[ ]?(?:global|training)?[ _]?(?:step|iter|iteration|update)[ ]?[=:#]?[ ]?[0-9]+"
_EVENT = r"(?:sav|check|evaluat|validat|test|record|dump|render|sampl|generat|stopp|synch)\w*+"
#: Saving the model (step 100), starting iteration 100, [step 100] Saving the model
AT_STEP = re.compile(
    r"(?!.*\b(?:will|every|interval|until|next)\b)"
    rf"(?:.*\b{_EVENT}.*(?:\b(?:at|after|for)|[(\[,@-]){_STEP}|.*\b(?:start|begin)\w*{_STEP}|"
    rf"\W*(?:\[{_STEP}\]|iter(?:ation)?[ ][0-9]+:)[ ]*{_EVENT}(?:(?<=ing)|(?<=ed)))",
    re.IGNORECASE,
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
        and training_phases.last_phase([word], None) is None
    )


def is_counted(words: str, *, in_bracket: bool) -> bool:
    """Tell whether a number of a total is a part of one training.

    Task [1/3] is one, but neither Waves:1/3 nor fold[1/5].
    """
    last = words.rpartition(" ")[2]
    return (in_bracket and last.lower() not in _RUNS) or not is_other(last)
