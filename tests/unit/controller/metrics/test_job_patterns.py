"""Selection of the patterns for a job's log."""

import pytest

from orchestrator import errors, jobs, patterns
from orchestrator.controller.metrics import job_patterns

LINE = {"name": "speed", "regex": "speed (?P<speed>{number})", "metrics": {"speed": "m/s"}}


def spec(*names: str, **own: object) -> jobs.JobSpec:
    return jobs.JobSpec(name="own", metrics=jobs.Metrics(patterns=names, pattern=own))


def names(chosen: jobs.JobSpec) -> list[str]:
    return [item.name for item in job_patterns.of_job(patterns.load_shipped(), chosen)]


def test_own_patterns_come_first_and_default_is_all() -> None:
    everything = [item.name for item in patterns.load_shipped()]
    assert names(spec()) == everything
    assert names(spec(own={"line": [LINE]})) == ["own", *everything]


def test_own_patterns_count_besides_named_ones() -> None:
    assert names(spec("olivia", own={"line": [LINE]})) == ["own", "olivia"]
    assert names(spec("own", own={"line": [LINE]})) == ["own"]


def test_an_own_pattern_replaces_an_included_one() -> None:
    (own,) = job_patterns.of_job(patterns.load_shipped(), spec("keras", keras={"line": [LINE]}))
    assert (own.name, own.origin, len(own.lines)) == ("keras", "spec", 1)


def test_problems_name_their_key() -> None:
    with pytest.raises(errors.ConfigurationError) as caught:
        job_patterns.of_job((), spec(own={"line": [{**LINE, "form": "xml"}]}), source="a.toml")
    assert str(caught.value) == (
        'a.toml: metrics.pattern.own.line[0].form: must be one of "json", "dict", "pairs", '
        '"general" (got "xml")\n1 problem; nothing was done.'
    )
