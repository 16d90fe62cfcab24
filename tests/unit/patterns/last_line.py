"""What a matcher reads from lines of a log."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator import patterns

SHIPPED = patterns.load_shipped()


def metrics(*lines: str, known: Sequence[patterns.Pattern] = SHIPPED) -> str:
    """Return the metrics of the last line as text."""
    matcher = patterns.Matcher(known)
    values = [matcher.metrics_of_line(line) for line in lines][-1]
    return ", ".join(f"{each.name}={each.value:.10g}{each.unit}" for each in values)
