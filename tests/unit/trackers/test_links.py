"""`[tracking]`: what is refused, and the pages of a run."""

from __future__ import annotations

import dataclasses

import pytest

from orchestrator import config, errors, jobs
from orchestrator.trackers import checks, links


def test_what_is_refused() -> None:
    tracking = jobs.Tracking(
        project="",
        mlflow_uri="http://me:secret@host:5000",
        links={
            "script": "javascript:alert(1)",
            "field": "https://x/{password}",
            "attribute": "https://x/{name.__class__}",
            "brace": "https://x/{",
            "good": "https://x/{project}/{run_id}",
        },
    )
    known = "{run_id}, {project}, {entity}, {name}, {token}"
    assert {path: text for path, text in checks.findings(tracking)} == {
        ("project",): "is empty: remove the key",
        ("mlflow_uri",): (
            "must not contain a password, which scripts and messages would show: set "
            "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, for jobs in "
            "environment.secrets_file"
        ),
        ("links", "script"): 'must begin with https:// or http:// (got "javascript:alert(1)")',
        ("links", "field"): f"contains {{password}}: use only {known}",
        ("links", "attribute"): f"contains {{name.__class__}}: use only {known}",
        ("links", "brace"): "has a brace without a field: for a brace itself write {{ or }}",
    }
    ((_, message),) = checks.findings(jobs.Tracking(mlflow_uri="host:5000"))
    assert message == 'must be an address such as "http://host:5000" (got "host:5000")'


def test_mlflow_needs_the_experiment_also_from_the_profile() -> None:
    spec = jobs.JobSpec(name="x", tracking=jobs.Tracking(trackers=("mlflow",)))
    profile = config.Profile(tracking=jobs.Tracking(project="vision", trackers=("wandb",)))
    filled = config.with_profile(spec, profile).tracking
    assert filled == jobs.Tracking(trackers=("mlflow",), project="vision")
    with pytest.raises(errors.SpecError) as raised:
        config.with_profile(spec, config.Profile())
    assert str(raised.value) == (
        "tracking.project: is missing: mlflow needs the name of the experiment that the program "
        "uses\n1 problem; nothing was submitted."
    )
    # No run is made for a batch file.
    batch = dataclasses.replace(spec, launch=jobs.Launch(batch_file="/x.sbatch"))
    assert config.with_profile(batch, config.Profile()).tracking == spec.tracking


def test_pages_of_a_run() -> None:
    tracking = jobs.Tracking(
        trackers=("wandb", "mlflow"),
        project='a b"<',
        entity="team/x",
        mlflow_uri="http://host:5000/",
        links={"own": "https://own/{name}?t={token}", "bad": "javascript:{name}"},
    )
    known = {"run_id": "abc-3", "name": "x", "token": "abc"}
    assert links.of_run(tracking, **known, mlflow=("7", "f00")) == {
        "W&B": "https://wandb.ai/team%2Fx/a%20b%22%3C/runs/abc-3",
        "own": "https://own/x?t=abc",
        "MLflow": "http://host:5000/#/experiments/7/runs/f00",
    }
    assert links.of_run(jobs.Tracking(), **known, mlflow=("7", "f00")) == {}
