"""Merging a profile into a spec, and checks against the profile's partitions."""

import dataclasses
from pathlib import Path

import pytest

from orchestrator import config, errors, jobs
from orchestrator.rendering import directives

PROFILE = config.Profile(
    name="olivia",
    account="nn1",
    partition="accel",
    qos="normal",
    modules=("NRIS/GPU",),
    binds=("/cluster", "/data:/data"),
    variables={"A": "profile", "B": "profile"},
    partitions={
        "accel": config.Partition(max_time="2-00", gpus_per_node=4, gpu_type="gh200"),
        "long": config.Partition(max_time="UNLIMITED", gpus_per_node=8),
        "empty": config.Partition(),
    },
)
CONFIGURATION = config.Configuration(
    state_dir=Path("/s"),
    runs_dir=Path("/r"),
    templates_dir=None,
    database="sqlite:////s/o.db",
    profile=PROFILE,
)


def test_profile_fills_missing_keys() -> None:
    spec = config.with_profile(jobs.JobSpec(name="x"), CONFIGURATION.profile)
    assert (spec.account, spec.partition, spec.qos) == ("nn1", "accel", "normal")
    assert spec.environment.modules == ("NRIS/GPU",)
    assert spec.environment.variables == {"A": "profile", "B": "profile"}
    assert spec.container == jobs.Container()


def test_empty_keys_of_the_spec_stay_empty() -> None:
    spec = jobs.JobSpec(
        name="x",
        account="",
        partition="",
        qos="",
        environment=jobs.Environment(modules=(), variables={}),
        container=jobs.Container(runtime="apptainer", image="a.sif", binds=()),
    )
    assert config.with_profile(spec, CONFIGURATION.profile) == spec
    assert not {"account", "partition", "qos"} & dict(directives.intended(spec, PROFILE)).keys()


def test_keys_of_the_spec_stay() -> None:
    spec = jobs.JobSpec(
        name="x",
        account="nn2",
        partition="long",
        qos="devel",
        environment=jobs.Environment(modules=("M",), variables={"A": "spec"}),
        container=jobs.Container(runtime="apptainer", image="a.sif", binds=("/scratch:/data",)),
    )
    filled = config.with_profile(spec, CONFIGURATION.profile)
    assert filled == dataclasses.replace(
        spec,
        environment=jobs.Environment(modules=("M",), variables={"A": "spec", "B": "profile"}),
        # The spec's own /data is in the container, not the profile's.
        container=dataclasses.replace(spec.container, binds=("/cluster", "/scratch:/data")),
    )
    assert config.with_profile(filled, CONFIGURATION.profile) == filled


def test_a_bind_of_the_profile_stays_read_only() -> None:
    spec = jobs.JobSpec(name="x", container=jobs.Container(runtime="charliecloud", image="/a"))
    profile = config.Profile(binds=("/data:/data:ro",))
    with pytest.raises(errors.SpecError) as raised:
        config.with_profile(spec, profile)
    assert str(raised.value) == (
        "container.binds: charliecloud cannot bind /data:/data:ro of the profile read-only: name "
        "it here without :ro, and the job can write there\n1 problem; nothing was submitted."
    )
    own = dataclasses.replace(spec.container, binds=("/data",))
    spec = dataclasses.replace(spec, container=own)
    assert config.with_profile(spec, profile).container == own


@pytest.mark.parametrize(
    ("partition", "resources", "time_limit", "message"),
    [
        (
            None,
            jobs.Resources(gpus_per_node=8),
            None,
            "resources.gpus_per_node: partition accel has 4 GPUs per node (requested: 8)",
        ),
        (
            "accel",
            jobs.Resources(gpus_per_node=1, gpu_type="a100"),
            None,
            'resources.gpu_type: partition accel has GPUs of type "gh200" (requested: "a100")',
        ),
        (
            "accel",
            jobs.Resources(),
            "49:00:00",
            "job.time_limit: partition accel allows 2-00 (requested: 49:00:00)",
        ),
        (
            "accel",
            jobs.Resources(),
            "UNLIMITED",
            "job.time_limit: partition accel allows 2-00 (requested: UNLIMITED)",
        ),
    ],
)
def test_a_spec_beyond_its_partition_is_refused(
    partition: str | None, resources: jobs.Resources, time_limit: str | None, message: str
) -> None:
    spec = jobs.JobSpec(name="x", partition=partition, resources=resources, time_limit=time_limit)
    with pytest.raises(errors.SpecError) as caught:
        config.with_profile(spec, CONFIGURATION.profile)
    assert str(caught.value) == f"profile olivia: {message}\n1 problem; nothing was submitted."


@pytest.mark.parametrize(
    ("partition", "gpus", "time_limit"),
    [
        ("accel", 4, "2-00:00:00"),
        ("long", 8, "UNLIMITED"),
        # Slurm starts it in whichever can.
        ("accel,long", 8, "100-00"),
        ("elsewhere", 100, "UNLIMITED"),
        ("empty", 100, "UNLIMITED"),
    ],
)
def test_a_spec_within_its_partition_passes(partition: str, gpus: int, time_limit: str) -> None:
    spec = jobs.JobSpec(
        name="x",
        partition=partition,
        time_limit=time_limit,
        resources=jobs.Resources(gpus_per_node=gpus),
    )
    assert config.with_profile(spec, CONFIGURATION.profile).partition == partition
