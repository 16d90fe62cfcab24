"""The sweeps of examples/compare, which compare the throughput of configurations."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the trainer needs PyTorch")

from orchestrator import jobs, sweeps
from orchestrator.config import profiles
from orchestrator.rendering import job_script, templates
from trainers import arguments

pytestmark = pytest.mark.trainer

COMPARE = Path(__file__).parents[2] / "examples" / "compare"


def _points(name: str) -> list[jobs.JobSpec]:
    """Return the specs of the points without repeats."""
    sweep = sweeps.load(COMPARE / f"{name}.toml", [], profile=profiles.Profile(), folder=None)
    return [point.spec for point in sweep.points if point.repeat == 1]


def _words(spec: jobs.JobSpec) -> list[str]:
    return [f"--{key.replace('_', '-')}={value}" for key, value in spec.args.items()]


def test_the_trainer_accepts_each_point() -> None:
    parsed = {
        name: [arguments.parse_arguments(_words(spec)) for spec in _points(name)]
        for name in ("precision", "batch_size", "dp_ddp")
    }
    assert [args.precision for args in parsed["precision"]] == ["fp32", "tf32", "bf16", "fp16"]
    sizes = [args.batch_size for args in parsed["batch_size"]]
    assert sizes == [2**power for power in range(5, 15)]
    assert all(args.synthetic_samples >= 2 * sizes[-1] for args in parsed["batch_size"])
    assert [args.mode for args in parsed["dp_ddp"]] == ["single", "dp", "ddp"]
    assert {args.batch_size for args in parsed["dp_ddp"]} == {512}


def test_data_parallel_is_one_process_and_ddp_a_rank_for_each_gpu() -> None:
    origin = templates.Origin(version="0.1.0", spec="example")
    launched = []
    for spec in _points("dp_ddp"):
        text = job_script.render(spec, profiles.Profile(), runs_dir=Path("/runs"), origin=origin)
        (gpus,) = re.findall(r"^#SBATCH --gpus-per-node=(.*)$", text.text, re.MULTILINE)
        launched.append((gpus, re.findall(r"--nproc-per-node=\d+", text.text)))
    assert launched == [("1", []), ("4", []), ("4", ["--nproc-per-node=4"])]


def test_precisions_are_compared_and_one_that_fails_does_not_end_the_others(
    orchestrator: Callable[..., str],
) -> None:
    small = (
        'sweep.axes.args.precision=["tf32", "fp32", "bf16"]', "sweep.repeats=1", "args.model=mlp",
        "args.synthetic_shape=20", "args.synthetic_samples=512", "args.batch_size=64",
    )  # fmt: skip
    words = [word for change in small for word in ("--set", change)]
    orchestrator("sweep", "submit", str(COMPARE / "precision.toml"), *words, "--scheduler=local")
    # CPUs have no tf32.
    for job_id, code in (("local-1_0", 1), ("local-1_1", 0), ("local-1_2", 0)):
        orchestrator("wait", job_id, code=code)
    metrics = ("--metric", "throughput", "--metric", "val_loss")
    rows = json.loads(orchestrator("sweep", "results", "precision", *metrics, "--json"))["items"]
    states = {row["parameters"]["args.precision"]: (row["rank"], row["state"]) for row in rows}
    assert states.pop("tf32") == (None, "FAILED")
    assert sorted(states.values()) == [(1, "COMPLETED"), (2, "COMPLETED")]
    assert states.keys() == {"fp32", "bf16"}
    fastest, slower = (row["metrics"]["throughput"]["value"] for row in rows[:2])
    assert fastest > slower > 0
    losses = [row["metrics"]["val_loss"]["value"] for row in rows[:2]]
    # bf16 has 8 significant bits.
    assert losses[0] == pytest.approx(losses[1], rel=2**-7)
