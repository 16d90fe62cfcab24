"""The schema of a configuration file, and the variables that set its keys."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from orchestrator.config import channels, paths, profiles
from orchestrator.toml import schema

#: ssh joins the words for the login shell, which may be tcsh. `setup --host` installs a link in
#: ~/.local/bin, which is often not on PATH of a command that ssh runs.
REMOTE_COMMAND = ("sh", "-c", "PATH=$PATH:$HOME/.local/bin; exec orchestrator agent --stdio")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Agents:
    """`[agents]`: what `orchestrator plan` allows, whoever calls it."""

    #: a plan that may use more GPU-hours gets no token; default: no limit
    max_gpu_hours: float | int | None = None
    #: GPU-hours of all plans that are applied within 24 hours; default: no limit
    max_gpu_hours_per_day: float | int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Nodes:
    """`[nodes]`: which nodes jobs avoid because of earlier jobs, see `orchestrator nodes`."""

    #: suggest: `nodes` and `explain` name them; auto: all jobs are submitted without them
    exclude: Literal["suggest", "auto"] = "suggest"
    #: failures and slow runs after which a node is excluded, if they are not older than
    #: half_life_days; 0: never
    exclude_after: int = 2
    #: after so many days a failure counts half, then a quarter
    half_life_days: int = 7
    #: nodes that are excluded at a time, those with the highest scores
    max_excluded: int = 4
    #: the same in percent of the nodes of the cluster; one node may always be excluded
    max_excluded_percent: int = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tracking:
    """`[tracking]`: what the controller sends to experiment trackers from its host."""

    #: each pass uploads offline runs of W&B (`wandb sync`) of attempts that have ended, and exports
    #: new metrics
    sync: bool = False
    #: seconds for this in a pass; the next one continues
    sync_seconds: int = 60
    #: where new metrics of all jobs are exported
    export: tuple[Literal["tensorboard", "mlflow"], ...] = ()
    #: folder for TensorBoard
    export_dir: str | None = None
    #: server of the exports to MLflow; default: MLFLOW_TRACKING_URI, else that of the job
    mlflow_uri: str | None = None
    #: Python with the packages of W&B and MLflow; default: that of the job
    python: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Host:
    """`[hosts.NAME]`: a host on which `--host NAME` runs commands."""

    #: where ssh connects to: a host, USER@HOST or a name in ~/.ssh/config; default: NAME
    address: str | None = None
    #: options of ssh, such as ["-o", "ConnectTimeout=10"]
    ssh_options: tuple[str, ...] = ()
    #: command that starts the agent there, for the login shell of that host; the default finds
    #: orchestrator on PATH or in ~/.local/bin
    remote_command: tuple[str, ...] = REMOTE_COMMAND
    #: profile there, unless --profile is given
    profile: str | None = None
    #: folder there in which commands run; default: the home folder
    folder: str | None = None
    #: seconds for which a broken connection is tried again
    reconnect_seconds: int = 600


@dataclasses.dataclass(frozen=True, kw_only=True)
class File:
    """The keys of a configuration file."""

    #: folder of the database, preferably on a local disk; default: ~/.local/state/orchestrator
    state_dir: str | None = None
    #: folder of the run folders, on a file system of the compute nodes; default:
    #: ~/orchestrator-runs
    runs_dir: str | None = None
    #: folder with your own template blocks
    templates_dir: str | None = None
    #: folders that other users may change, accepted by you
    shared_folders: tuple[str, ...] = ()
    #: TOML files of patterns
    pattern_files: tuple[str, ...] = ()
    #: file that each controller pass writes for Prometheus; default: none
    metrics_file: str | None = None
    #: permissions of this file; with "0644" all users of the host can read it
    metrics_file_mode: Literal["0600", "0640", "0644"] = "0600"
    #: URL of the database, `postgresql://...`; default: orchestrator.db in state_dir
    database: str | None = None
    #: name of the profile that is used; default: the only one
    profile: str | None = None
    #: patterns, by name
    pattern: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    notices: Mapping[str, channels.Channel] = dataclasses.field(default_factory=dict)
    agents: Agents = Agents()
    nodes: Nodes = Nodes()
    tracking: Tracking = Tracking()
    profiles: Mapping[str, profiles.Profile] = dataclasses.field(default_factory=dict)
    hosts: Mapping[str, Host] = dataclasses.field(default_factory=dict)


def variables() -> dict[str, tuple[str, Any]]:
    """Return variable and type of each key that a variable sets; a profile's without the table."""
    hints = {**schema.fields_of(profiles.Profile), **schema.fields_of(File)}
    return {
        key: (f"ORCHESTRATOR_{key.upper()}", hint)
        for key, hint in hints.items()
        if key in paths.FOLDER_LISTS
        or (key != "name" and (schema.bare(hint) in (str, int, bool) or schema.is_choice(hint)))
    }
