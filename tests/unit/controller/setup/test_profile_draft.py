"""The profile drafted by config init is a valid configuration."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator import config, errors
from orchestrator.config import paths
from orchestrator.controller.setup import profile_draft
from orchestrator.slurm import sacctmgr, sinfo

# sinfo -h -o of a site with two kinds of GPU nodes in one partition.
SINFO = "\n".join(
    "\x1f".join(row)
    for row in (
        ("cpu*", "up", "7-00:00:00", "128", "128", "256000", "(null)"),
        ("accel", "up", "2-00:00:00", "8", "72+", "870000", "gpu:a100:4(S:0-1)"),
        ("accel", "up", "2-00:00:00", "4", "288", "870000", "gpu:gh200:4"),
        ("big-mem", "drain", "infinite", "2", "64", "4000000", "gpu:1,nvme:2"),
    )
)
ASSOCIATIONS = "nn1234k||normal,devel|||\nnn9999k|accel|normal|||\n"


def cluster(**changed: object) -> profile_draft.Cluster:
    values: dict[str, object] = {
        "cluster": "olivia-2",
        "slurm_version": "24.11.5",
        "select_type": "select/cons_tres",
        "kinds": sinfo.parse(SINFO),
        "associations": sacctmgr.parse_associations(ASSOCIATIONS),
        "accounts_error": "",
        "scratch": {"SCRATCH": "/scratch/alice"},
    }
    return profile_draft.Cluster(**{**values, **changed})  # type: ignore[arg-type]


def test_the_draft() -> None:
    assert (
        profile_draft.draft(cluster()).partition("\n")[2]
        == """\
# Review it; `orchestrator doctor` checks it.

# Run folders (scripts, logs, checkpoints): on a file system of the compute nodes.
runs_dir = "$SCRATCH/orchestrator-runs"
# The database: preferably on a local disk of this host.
# state_dir = "~/.local/state/orchestrator"

[profiles.olivia-2]
partition = "cpu"  # Slurm's default
# account = "nn1234k"  # yours: nn1234k, nn9999k
# qos = "normal"  # yours: normal, devel
# modules = ["..."]  # loaded if a spec sets none: `module avail`
# binds = ["/data:/data"]  # bound into every container
# poll_floor_seconds = 10  # minimum time between two queries of Slurm

# 128 nodes: 128 CPUs, 250 GiB
[profiles.olivia-2.partitions.cpu]
max_time = "7-00:00:00"
gpus_per_node = 0

# 8 nodes: 72 CPUs, 849 GiB, 4 GPUs; 4 nodes: 288 CPUs, 849 GiB, 4 GPUs
[profiles.olivia-2.partitions.accel]
max_time = "2-00:00:00"
gpus_per_node = 4
# gpu_type: several, a100, gh200

# 2 nodes: 64 CPUs, 3906 GiB, 1 GPUs (drain now)
[profiles.olivia-2.partitions.big-mem]
gpus_per_node = 1
"""
    )


def test_a_site_without_default_partition_gpus_per_node_and_accounts() -> None:
    text = profile_draft.draft(
        cluster(
            kinds=sinfo.parse(SINFO.replace("cpu*", "cpu")),
            select_type="select/linear",
            associations=(),
            accounts_error="sacctmgr: slurmdbd is away",
            scratch={},
        )
    )
    assert 'runs_dir = "~/orchestrator-runs"\n' in text
    assert '# partition = "..."  # Slurm has no default here' in text
    assert 'gres_style = "gres"  # select/linear does not support --gpus-per-node\n' in text
    assert "# account = ...  # your accounts are not known: sacctmgr: slurmdbd is away\n" in text


def test_the_draft_is_a_configuration(tmp_path: Path) -> None:
    environ = {
        "HOME": str(tmp_path),
        "XDG_CONFIG_DIRS": str(tmp_path / "none"),
        "SCRATCH": "/scratch/alice",
    }
    path = paths.user_file(environ)
    profile_draft.write(path, profile_draft.draft(cluster()))
    assert path == tmp_path / ".config/orchestrator/config.toml"
    assert (os.stat(path).st_mode & 0o777, os.stat(path.parent).st_mode & 0o777) == (0o600, 0o700)
    loaded = config.load(environ, tmp_path)
    assert loaded.runs_dir == Path("/scratch/alice/orchestrator-runs")
    assert loaded.profile.partition == "cpu"
    assert loaded.profile.partitions["accel"] == config.Partition(
        max_time="2-00:00:00", gpus_per_node=4
    )
    with pytest.raises(errors.ConflictError, match="exists already"):
        profile_draft.write(path, "")


def test_the_draft_is_private_under_any_umask(tmp_path: Path) -> None:
    path = paths.user_file({"HOME": str(tmp_path)})
    before = os.umask(0)
    try:
        profile_draft.write(path, "")
    finally:
        os.umask(before)
    modes = [os.stat(folder).st_mode & 0o777 for folder in (path, *path.parents[:2])]
    assert modes == [0o600, 0o700, 0o700]
    # A configuration in a folder writable by others would not be read.
    path.unlink()
    path.parent.chmod(0o777)
    with pytest.raises(errors.OrchestratorError) as caught:
        profile_draft.write(path, "")
    assert str(caught.value) == (
        f"{path.parent} is not used: {path.parent} can be written by every user, so others could "
        f"change what your jobs run. Run `chmod go-w {path.parent}`, or set "
        "XDG_CONFIG_HOME to a folder of your own."
    )


def test_a_partition_with_a_name_that_is_no_name() -> None:
    odd = sinfo.NodeKind(
        partition='x" #',
        default=False,
        availability="up",
        max_time=None,
        nodes=1,
        cpus=1,
        memory_mib=None,
        gpus=0,
        gpu_types=(),
    )
    assert profile_draft.draft(cluster(kinds=[odd])).splitlines()[-1] == (
        '# partition "x\\" #" is omitted: such a name is not valid here'
    )
