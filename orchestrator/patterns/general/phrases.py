"""Names of metrics in phrases: loss at step 10, average loss of all batches."""

from __future__ import annotations

import re

from orchestrator.patterns import training_phases, vocabulary
from orchestrator.patterns.general.readings import Value
from orchestrator.patterns.vocabulary import Meaning

_MAX_CHARACTERS = 100
_AT = re.compile(
    r"([A-Za-z_][\w @]*?)(?: \([a-z ]+\))?(?: (?:at|@|after|in|on|for|over|of)(?: |$)| ?\((?=\w+ $)"
    r"| (?=(?i:epoch|step|iter|iteration|batch) $))"
)
#: A name with more behind it: Average loss of all batches in this epoch:
_PHRASE = re.compile(
    r"(?:^|[^\w -][ ]*)([A-Za-z_][\w -]*?)[ ](?:at|after|in|on|for|over|of|this|during|from|across|"
    r"until|so|since|within|per|using)\b[^:=,;|.\[\]]*(?:[:=]+|[ ]is)[ ]*$",
    re.ASCII,
)
#: Between a step and the value of the metric named before it: loss at step 10: 0.5
AFTER_STEP = re.compile(r"\)?(?: \w+){0,2}(?: with(?: \w+){1,2})?\)?[ ]*(?::|=|is|was)[ ]*")


def of_phrase(name: re.Match[str], match: re.Match[str], before: str) -> Value | None:
    """Return the value of a long name: `Average loss of all batches in this epoch: 0.5`."""
    phrase = _PHRASE.search(before[-_MAX_CHARACTERS:]) if name["sign"].strip() else None
    found = vocabulary.last_meaning(phrase[1]) if phrase is not None else None
    if phrase is None or found is None or match["total"]:
        return None
    # Accuracy of cat: 81.5 %
    is_of_class = found.kind == "score" and " of " in phrase[0]
    if found.kind not in ("loss", "score") or is_of_class:
        return None
    return Value(found, match["number"], match["unit"], explicit=True)


def metric_at_step(before: str) -> Meaning | None:
    """Return the metric whose value follows the step: `Minibatch loss at step 3000: 58.9`."""
    metric = _AT.search(before[-_MAX_CHARACTERS:])
    found = vocabulary.last_meaning(metric[1]) if metric else None
    if found is not None or metric is None:
        return found if found is not None and found.kind in ("loss", "score") else None
    # Valid MR at step 40: 7084.9
    phase, _, rest = metric[1].partition(" ")
    unknown = vocabulary.snake(rest)
    is_unknown = unknown and not vocabulary.is_other(unknown, is_identifier=False)
    if not is_unknown or " " in rest or training_phases.last_phase([phase], None) is None:
        return None
    return Meaning(training_phases.in_phase(unknown, phase), "other")
