"""Prometheus' text format, as an independent parser reads it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import parser

from orchestrator.monitoring import text_format
from orchestrator.monitoring.text_format import Family, Sample

#: Without \r, which the parser takes for the end of a line.
TEXTS = st.text(st.characters(exclude_characters="\r\x1c\x1d\x1e\x85\u2028\u2029\x0b\x0c"))


def test_golden_text() -> None:
    families = [
        Family(
            name="jobs",
            kind="gauge",
            help="Jobs\\by\nstate.",
            samples=[Sample(2, {"state": 'a"b\\c\nd', "n": "学"}), Sample(0.25)],
        ),
        Family(name="none", kind="gauge", help="Left out.", samples=[]),
        Family(
            name="wait_seconds",
            kind="summary",
            help="Wait.",
            samples=[Sample(1e300, suffix="_sum"), Sample(3, suffix="_count")],
        ),
    ]
    assert text_format.text(families) == (
        "# HELP jobs Jobs\\\\by\\nstate.\n"
        "# TYPE jobs gauge\n"
        'jobs{state="a\\"b\\\\c\\nd",n="学"} 2\n'
        "jobs 0.25\n"
        "# HELP wait_seconds Wait.\n"
        "# TYPE wait_seconds summary\n"
        "wait_seconds_sum 1e+300\n"
        "wait_seconds_count 3\n"
    )


@given(st.dictionaries(st.sampled_from(["a", "b"]), TEXTS), st.floats(), TEXTS)
def test_a_parser_reads_the_same(labels: dict[str, str], value: float, help: str) -> None:
    family = Family(name="x", kind="gauge", help=help, samples=[Sample(value, labels)])
    (parsed,) = parser.text_string_to_metric_families(text_format.text([family]))
    (sample,) = parsed.samples
    assert (parsed.name, parsed.type) == ("x", "gauge")
    # The parser strips the help text.
    assert parsed.documentation.strip() == help.strip()
    assert sample.labels == labels
    assert sample.value == value or (math.isnan(value) and math.isnan(sample.value))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1795885904.326748, "1795885904.326748"),
        (1.0, "1"),
        (-0.5, "-0.5"),
        (math.nan, "NaN"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
    ],
)
def test_numbers(value: float, shown: str) -> None:
    family = Family(name="x", kind="gauge", help="", samples=[Sample(value)])
    assert text_format.text([family]).splitlines()[-1] == f"x {shown}"
