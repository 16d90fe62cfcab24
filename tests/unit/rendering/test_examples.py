"""The specs in examples/ are read, rendered and understood by bash."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from orchestrator import jobs, rendering, specs
from orchestrator.config import profiles

EXAMPLES = sorted((Path(__file__).resolve().parents[3] / "examples").glob("*.toml"))


def _render(spec: jobs.JobSpec) -> str:
    return rendering.render(
        spec,
        profiles.Profile(),
        runs_dir=Path("/runs"),
        origin=rendering.Origin(version="0.1.0", spec="example"),
    )


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_an_example_is_rendered(file: Path) -> None:
    script = _render(specs.load(file, check_files=False))
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_digits_ddp_meets_over_two_nodes_and_stands_alone_on_one() -> None:
    (file,) = (file for file in EXAMPLES if file.stem == "digits_ddp")
    assert "exec torchrun --standalone " in _render(specs.load(file))
    two = ["resources.nodes=2", "resources.gpus_per_node=2"]
    script = _render(specs.load(file, two))
    assert re.search(r"--nproc-per-node=2 .*\n  --rdzv-backend=c10d ", script)
    assert "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n" in script
    assert "#SBATCH --gpus-per-node=2\n" in script
