"""A sweep from the text of a spec's file."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from orchestrator import config, errors, sweeps
from orchestrator.toml import documents

HEAD = """\
[job]
name = "wrn"
partition = "accel"
time_limit = "01:00:00"
[launch]
module = "trainers.train"
[args]
batch_size = 1024
epochs = 10
"""
PROFILE = config.Profile(
    name="olivia",
    partitions={"accel": config.Partition(gpus_per_node=4, max_time="2-00")},
)

Expand: TypeAlias = Callable[..., sweeps.Sweep]


@pytest.fixture(scope="session")
def profile() -> config.Profile:
    """A cluster with four GPUs a node."""
    return PROFILE


@pytest.fixture(scope="session")
def expand() -> Expand:
    """Return the sweep of a spec whose last lines are given; the first are HEAD."""

    def run(text: str, head: str = HEAD, profile: config.Profile = PROFILE) -> sweeps.Sweep:
        document, problems = documents.parse(head + text, "sweep.toml")
        return sweeps.expand(document, profile, problems)

    return run


@pytest.fixture(scope="session")
def refused(expand: Expand) -> Callable[..., str]:
    """Return the problems of a spec, without the quoted lines."""

    def run(*arguments: str) -> str:
        with pytest.raises(errors.SpecError) as caught:
            expand(*arguments)
        lines = str(caught.value).splitlines()
        return "\n".join(line for line in lines if not line.startswith("    "))

    return run
