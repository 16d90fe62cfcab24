"""Differences of two jobs as text of at most 80 columns."""

from __future__ import annotations

import dataclasses

import pytest

from orchestrator import jobs, reproduction
from orchestrator.cli.output import difference_rows
from tests import builders

Difference = reproduction.Difference


def shown(capsys: pytest.CaptureFixture[str], *found: Difference) -> list[str]:
    """Return the lines after those that name the jobs."""
    job = builders.make_job(state=jobs.JobState.COMPLETED)
    difference_rows.print_differences([job, job], ["n1", ""], found)
    return capsys.readouterr().out.splitlines()[2:]


def test_jobs_are_named_with_their_hosts(capsys: pytest.CaptureFixture[str]) -> None:
    job = builders.make_job(state=jobs.JobState.RUNNING)
    ended = dataclasses.replace(job, row=2, job_id="8\x1b", state=jobs.JobState.FAILED)
    difference_rows.print_differences([job, ended], ["n1", ""], [])
    assert capsys.readouterr().out == (
        "A: 7 (@1, demo)  RUNNING on n1\nB: 8\\x1b (@2, demo)  FAILED\n\nNo differences.\n"
    )


def test_long_values_are_on_lines_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    path = Difference(
        section="environment", key="variable PATH", first="/a" * 20 + ":/bin", second="/b" * 20
    )
    assert shown(capsys, path) == [
        "",
        "Environment:",
        "  variable PATH",
        f"    - {'/a' * 20}:/bin",
        f"    + {'/b' * 20}",
    ]


def test_values_are_those_of_a_spec(capsys: pytest.CaptureFixture[str]) -> None:
    keys = [
        Difference(section="spec", key="job.exclusive", first=False, second=True),
        Difference(section="spec", key="environment.modules", first=None, second=["a", "b"]),
        Difference(section="spec", key="environment.setup", first=None, second="a\nb\n"),
        Difference(section="spec", key="script", first=None, second=None, diff="@@ @@\n-a\n+b\n"),
        Difference(section="environment", key="module gcc/13", first="", second=None),
    ]
    assert shown(capsys, *keys) == [
        "",
        "Spec:",
        "  job.exclusive  false -> true",
        '  environment.modules  not set -> ["a", "b"]',
        "  environment.setup",
        "    - not set",
        "    + a",
        "    + b",
        "  script",
        "    @@ @@",
        "    -a",
        "    +b",
        "",
        "Environment:",
        "  module gcc/13  present -> absent",
    ]


def test_characters_of_a_diff_that_are_not_printable(capsys: pytest.CaptureFixture[str]) -> None:
    diff = "@@ @@\n-a\r\n+a\n b\x0cc\u2028d\x1b[31m\n"
    script = Difference(section="code", key="version", first="x", second="y", diff=diff)
    expected = ["@@ @@", "-a\\r", "+a", " b\\x0cc\\u2028d\\x1b[31m"]
    assert shown(capsys, script)[4:] == [f"  {line}" for line in expected]


def test_results_and_speed(capsys: pytest.CaptureFixture[str]) -> None:
    speed = Difference(
        section="results",
        key="duration_seconds",
        first=60.0,
        second=90.0,
        relative=0.5,
        is_speed=True,
    )
    assert shown(capsys, speed) == [
        "",
        "Results:",
        "  duration  00:01:00 -> 00:01:30 (+50 %)",
        "",
        "No differences but speed.",
    ]
    loss = Difference(section="results", key="loss", first=0.5, second=0.49, relative=-0.02)
    gone = Difference(section="results", key="acc (%)", first=90.0, second=None)
    assert shown(capsys, loss, gone) == [
        "",
        "Results:",
        "  loss  0.5 -> 0.49 (-2 %)",
        "  acc (%)  90.0 -> absent",
    ]
