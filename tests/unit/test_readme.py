"""README.md: every session in it is run by a test, and every file that it names is there."""

from __future__ import annotations

import re
from pathlib import Path

from tests import readme

#: Section -> the test that runs its commands.
RUN_BY = {
    "A first session": "tests/cluster/test_readme.py",
    "Without Slurm": "tests/trainer/test_readme.py",
    "Batch scripts and jobs that you have already": "tests/cluster/test_readme.py",
}


def test_every_session_is_run(checkout: Path) -> None:
    assert list(readme.sections()) == list(RUN_BY)
    for section, test in RUN_BY.items():
        assert f'"{section}"' in (checkout / test).read_text()
    text = readme.README.read_text()
    assert len(re.findall(r"^ *\$ ", text, flags=re.MULTILINE)) == sum(
        len(steps) for steps in readme.sections().values()
    )


def test_the_links_lead_somewhere(checkout: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)", readme.README.read_text())
    assert len(links) > 5
    assert [link for link in links if not (checkout / link).exists()] == []


def test_the_first_two_commands(checkout: Path) -> None:
    first, second = re.findall(r"^    (script/\w+)$", readme.README.read_text(), flags=re.M)[:2]
    assert (first, second) == ("script/demo", "script/test")


def test_what_varies_and_what_does_not() -> None:
    step = readme.Step(
        command="x",
        shown=["10:01:37 1 PENDING", "10:02:27 1 COMPLETED on n[1-2]", "JOB_ID  NAME", "1       a"],
    )
    readme.check(step, "08:00:00 731 COMPLETED on n3\r\nJOB_ID  NAME\r\n731     a   \r\n")
    for other in ("FAILED on n3\nJOB_ID NAME\n731 a", "COMPLETED on n3\nJOB_ID NAME\n731 b"):
        try:
            readme.check(step, f"08:00:00 731 {other}\n")
        except AssertionError:
            continue
        raise AssertionError(f"taken for the same: {other}")
