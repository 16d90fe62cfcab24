"""README.md and docs/: a test runs each session, and links and quoted files exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import sessions

#: Page -> section -> the test that runs its commands.
RUN_BY = {
    sessions.README: {
        "Run your own train.py": "tests/trainer/test_sessions.py",
        "When a job fails": "tests/trainer/test_sessions.py",
    },
    sessions.TUTORIAL: {
        "First job": "tests/trainer/test_sessions.py",
        "First sweep": "tests/trainer/test_sessions.py",
        "First scaling study": "tests/trainer/test_sessions.py",
    },
    sessions.FROM_SBATCH: {
        "Submit a batch script unchanged": "tests/cluster/test_sessions.py",
        "Follow a job that was submitted by hand": "tests/cluster/test_sessions.py",
    },
}
PAGES = sorted([sessions.README, *(sessions.CHECKOUT / "docs").rglob("*.md")])


@pytest.mark.parametrize("page", RUN_BY, ids=lambda page: page.name)
def test_a_test_runs_each_session(page: Path, checkout: Path) -> None:
    assert list(sessions.sections(page)) == list(RUN_BY[page])
    for section, test in RUN_BY[page].items():
        assert f'"{section}"' in (checkout / test).read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text())
    local = [link for link in links if not re.match(r"\w+:", link)]
    assert [link for link in local if not (page.parent / link).exists()] == []


def test_readme_is_short() -> None:
    assert len(sessions.README.read_text().splitlines()) <= 120


def test_readme_starts_with_the_demo_and_the_tests() -> None:
    assert re.findall(r"^    (script/\w+) ", sessions.README.read_text(), flags=re.M)[:2] == [
        "script/demo",
        "script/test",
    ]


def test_quoted_spec_is_the_example(checkout: Path) -> None:
    (spec,) = re.findall(r"^```toml\n(.*?)^```", sessions.README.read_text(), flags=re.M | re.S)
    assert spec == (checkout / "examples/own/train.toml").read_text()


def test_varying_parts_of_sessions_are_ignored() -> None:
    step = sessions.Step(
        command="x",
        shown=["10:01:37 1 PENDING", "10:02:27 1 COMPLETED on n[1-2]", "JOB_ID  NAME", "1       a"],
    )
    output = "08:00:00 731 COMPLETED on n3\r\nJOB_ID  NAME\r\n731     {}   \r\n"
    sessions.check(step, output.format("a"))
    assert not sessions.is_as_shown(step, output.format("b"))
    assert not sessions.is_as_shown(step, output.format("a").replace("COMPLETED", "FAILED"))


def test_tests_named_in_the_tables_of_reliability_exist(checkout: Path) -> None:
    rows = re.findall(r"^\|.*\|$", (checkout / "docs/reliability.md").read_text(), flags=re.M)
    missing = []
    for row in rows:
        text = ""
        for name in re.findall(r"[\w/]*\btest_\w+", row):
            floors = ("", "unit", "flow", "cluster")
            paths = [checkout / "tests" / floor / f"{name}.py" for floor in floors]
            found = [path for path in paths if path.exists()]
            if found:
                text = "".join(path.read_text() for path in found)
            elif f"def {name}(" not in text:
                missing.append(name)
    assert missing == []


def test_sections_of_the_design_named_in_code_exist(checkout: Path) -> None:
    headings = re.findall(r"^#+ (.+)$", (checkout / "docs/design.md").read_text(), flags=re.M)
    named = [
        section
        for folder in ("orchestrator", "db", "trainers", "templates")
        for path in (checkout / folder).rglob("*.[pj]*")
        if path.suffix in (".py", ".j2")
        for section in re.findall(r'design\.md, "(.+?)"', path.read_text())
    ]
    assert named and set(named) <= set(headings)


def test_each_page_of_the_web_server_is_described(checkout: Path) -> None:
    template = checkout / "orchestrator" / "web" / "templates" / "base.html.j2"
    names = re.findall(r'\("(\w+)", "/\w*"\)', template.read_text())
    assert "Graphs" in names
    page = (checkout / "docs" / "howto" / "web.md").read_text()
    assert [name for name in names if f"\n| {name} | " not in page] == []
