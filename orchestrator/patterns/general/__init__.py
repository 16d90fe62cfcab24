"""The general reader: metrics in the lines of any program, without a pattern of its own."""

from __future__ import annotations

from orchestrator.patterns.general.lines import read
from orchestrator.patterns.general.readings import Reading
