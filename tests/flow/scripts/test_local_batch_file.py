"""Resources of a batch file on a machine without Slurm."""

from __future__ import annotations

import pytest

from orchestrator import errors, jobs
from orchestrator.rendering import batch_options

FILED = jobs.JobSpec(name="filed", launch=jobs.Launch(batch_file="/home/alice/filed.sbatch"))


def asked(*lines: str, **options: jobs.SbatchValue) -> jobs.JobSpec:
    spec = jobs.JobSpec(name="filed", launch=FILED.launch, sbatch=options)
    return batch_options.with_directives(spec, "\n".join(["#!/bin/bash", *lines, "true"]))


@pytest.mark.parametrize(
    ("line", "gpus"),
    [
        ("#SBATCH --gpus-per-node=a100:2", 2),
        ("#SBATCH -G 3", 3),
        ("#SBATCH --gpus=a100:4", 4),
        ("# nothing", None),
    ],
)
def test_gpus(line: str, gpus: int | None) -> None:
    assert asked(line).resources.gpus_per_node == gpus


def test_directives_that_apply_without_slurm() -> None:
    spec = asked(
        "#SBATCH -N 2-4 -c 3 --gres=gpu:2 -t 0:30",
        "#SBATCH --exclusive --no-requeue --export=NONE --dependency=afterok:local-1",
        "#SBATCH --signal=B:SIGUSR1@90",
    )
    assert (spec.resources.nodes, spec.resources.cpus_per_task, spec.resources.gres) == (
        2,
        3,
        "gpu:2",
    )
    assert (spec.time_limit, spec.exclusive, spec.requeue) == ("0:30", True, False)
    assert (spec.environment.export, spec.dependency) == ("none", "afterok:local-1")
    assert spec.signal_seconds == 90
    # Without B: the signal is for the steps of srun.
    assert asked("#SBATCH --signal=USR1@90").signal_seconds is None


def test_the_command_line_wins() -> None:
    assert asked("#SBATCH -t 5", time="7").time_limit == "7"


def test_only_a_batch_file_is_read() -> None:
    spec = jobs.JobSpec(name="x", launch=jobs.Launch(script="train.py"))
    assert batch_options.with_directives(spec, "#!/bin/bash\nsrun x\n") is spec


@pytest.mark.parametrize(
    "line", ["srun a", "if ! srun a; then", "  exec time srun a", "A=1 srun a"]
)
def test_srun_is_refused(line: str) -> None:
    with pytest.raises(errors.SpecError, match="srun needs Slurm"):
        asked(line)


@pytest.mark.parametrize("line", ["# srun a", "echo srun", "command -v srun", "srunner"])
def test_other_lines_with_srun_are_accepted(line: str) -> None:
    asked(line)
