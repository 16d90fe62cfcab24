"""Notes on runs that differ in code or environment."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orchestrator import reports, reproduction
from orchestrator.reports import comparison

Identity = reproduction.Identity


def runs(*codes: str, environment: str = "") -> list[Identity]:
    return [
        Identity(job=str(number), code=code, environment=environment)
        for number, code in enumerate(codes, 1)
    ]


def test_equal_and_unknown_runs_need_no_note() -> None:
    assert reproduction.notes([]) == []
    assert reproduction.notes(runs("commit a", "", "commit a", environment="x")) == []


def test_each_version_is_named_with_its_number_of_runs() -> None:
    assert reproduction.notes(runs("commit a", "commit b", "commit b", "")) == [
        "the runs differ in their code: 2 ran commit b (such as 2), 1 ran commit a (such as 1); "
        "`orchestrator diff 2 1` shows the differences"
    ]
    many = reproduction.notes(runs("a", "b", "c", "d", "e"))
    assert many == [
        "the runs differ in their code: 1 ran a (such as 1), 1 ran b (such as 2), 1 ran c (such "
        "as 3), 2 more versions; `orchestrator diff 1 2` shows the differences"
    ]


def test_environments() -> None:
    both = [*runs("a", "a", environment="x"), Identity(job="9", code="a", environment="y")]
    assert reproduction.notes(both) == [
        "the runs differ in their environment: 2 had that of 1, 1 had that of 9; "
        "`orchestrator diff 1 9` shows the differences"
    ]


@given(st.lists(st.tuples(st.sampled_from("ab "), st.sampled_from("xy ")), max_size=8))
def test_there_is_a_note_for_each_kind_with_two_values(pairs: list[tuple[str, str]]) -> None:
    found = reproduction.notes(
        [
            Identity(job=str(number), code=code.strip(), environment=environment.strip())
            for number, (code, environment) in enumerate(pairs)
        ]
    )
    expected = sum(len({each[kind] for each in pairs} - {" "}) > 1 for kind in (0, 1))
    assert len(found) == expected


def measurements(code: str, *names: str) -> list[reports.Measurement]:
    return [reports.Measurement(size=1, throughput=100.0, job=name, code=code) for name in names]


def test_reports_and_comparisons_have_the_note() -> None:
    new, old = measurements("commit b", "8", "9"), measurements("commit a", "5", "6", "7")
    note = (
        "the runs differ in their code: 3 ran commit a (such as 5), 2 ran commit b (such as 8); "
        "`orchestrator diff 5 8` shows the differences"
    )
    assert comparison.compare(new, old).notes[0] == note
    assert note not in comparison.compare(new, new).notes
    assert reports.build_report("x", [*old, *new]).warnings[0] == note
    assert note not in reports.build_report("x", old).warnings
