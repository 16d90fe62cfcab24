"""config init: a first profile of a cluster, from Slurm's own configuration."""

from __future__ import annotations

import dataclasses
import os
import pwd
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import orchestrator
from orchestrator import errors, files
from orchestrator.slurm import sacctmgr, sinfo
from orchestrator.slurm.client import Client
from orchestrator.text import formats
from orchestrator.toml import values

#: Variables with a user's large shared folder, at many sites.
SCRATCH = ("SCRATCH", "SCRATCHDIR", "WORK", "PROJECT", "DATA")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cluster:
    cluster: str
    slurm_version: str
    #: SelectType, "select/cons_tres"
    select_type: str
    kinds: Sequence[sinfo.NodeKind]
    associations: Sequence[sacctmgr.Association]
    #: why the accounts are not known; ""
    accounts_error: str
    #: folders by variable, of those in SCRATCH that are set
    scratch: Mapping[str, str]


def query(client: Client, environ: Mapping[str, str]) -> Cluster:
    """Query Slurm. Raises SlurmError if slurmctld does not answer."""
    facts = client.config()
    kinds = client.partitions()
    associations: list[sacctmgr.Association] = []
    accounts_error = ""
    if facts.accounting:
        try:
            associations = client.associations(pwd.getpwuid(os.getuid()).pw_name)
        except (errors.SlurmError, KeyError) as exc:
            accounts_error = str(exc).splitlines()[0]
    return Cluster(
        cluster=facts.cluster_name,
        slurm_version=facts.slurm_version,
        select_type=facts.settings.get("SelectType", ""),
        kinds=kinds,
        associations=associations,
        accounts_error=accounts_error,
        scratch={name: environ[name] for name in SCRATCH if environ.get(name, "").startswith("/")},
    )


def draft(cluster: Cluster) -> str:
    """Return a configuration file with a profile of the cluster."""
    return "\n".join([*_head(cluster), *_profile(cluster), *_partitions(cluster)]) + "\n"


def write(path: Path, text: str, shared_folders: Sequence[Path] = ()) -> None:
    """Create the file, mode 0600, and its folder. Raises ConflictError if it exists.

    Raises OrchestratorError if it cannot be written, or other users could change it.
    """
    try:
        files.make_private_folder(
            path.parent, shared_folders=shared_folders, setting="XDG_CONFIG_HOME"
        )
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as exc:
        message = f"{path} exists already; `orchestrator config init --print` shows the draft"
        raise errors.ConflictError(message) from exc
    except files.PrivateFolderError as exc:
        raise errors.OrchestratorError(str(exc.strerror)) from exc
    except OSError as exc:
        message = f"{path} cannot be written ({exc.strerror}); `--print` shows the draft"
        raise errors.OrchestratorError(message) from exc
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)


def _head(cluster: Cluster) -> Iterator[str]:
    name = next(iter(cluster.scratch), None)
    folder = f"${name}/orchestrator-runs" if name else "~/orchestrator-runs"
    yield from (
        f"# Drafted by orchestrator {orchestrator.__version__} from cluster {cluster.cluster}, "
        f"Slurm {cluster.slurm_version}.",
        "# Review it; `orchestrator doctor` checks it.",
        "",
        "# Run folders (scripts, logs, checkpoints): on a file system of the compute nodes.",
        f'runs_dir = "{folder}"',
        "# The database: preferably on a local disk of this host.",
        '# state_dir = "~/.local/state/orchestrator"',
        "",
    )


def _profile(cluster: Cluster) -> Iterator[str]:
    yield f"[profiles.{_key(cluster.cluster)}]"
    default = next((kind.partition for kind in cluster.kinds if kind.default), None)
    if default is not None:
        yield f"partition = {formats.json_text(default)}  # Slurm's default"
    else:
        yield '# partition = "..."  # Slurm has no default here: set one, or each spec has to'
    accounts = list(dict.fromkeys(entry.account for entry in cluster.associations))
    if cluster.accounts_error:
        yield f"# account = ...  # your accounts are not known: {cluster.accounts_error}"
    elif accounts:
        yield f"# account = {formats.json_text(accounts[0])}  # yours: {', '.join(accounts)}"
    levels = list(dict.fromkeys(name for entry in cluster.associations for name in entry.qos))
    if levels:
        yield f"# qos = {formats.json_text(levels[0])}  # yours: {', '.join(levels)}"
    has_gpus = any(kind.gpus for kind in cluster.kinds)
    if has_gpus and not cluster.select_type.endswith("cons_tres"):
        # man sbatch: --gpus-per-node is for select/cons_tres only.
        yield f'gres_style = "gres"  # {cluster.select_type} does not support --gpus-per-node'
    yield '# modules = ["..."]  # loaded if a spec sets none: `module avail`'
    yield '# binds = ["/data:/data"]  # bound into every container'
    yield "# poll_floor_seconds = 10  # minimum time between two queries of Slurm"


def _partitions(cluster: Cluster) -> Iterator[str]:
    for name in dict.fromkeys(kind.partition for kind in cluster.kinds):
        kinds = [kind for kind in cluster.kinds if kind.partition == name]
        yield ""
        yield f"# {_nodes(kinds)}"
        if values.form_error("partition", name):
            yield f"# partition {formats.json_text(name)} is omitted: such a name is not valid here"
            continue
        yield f"[profiles.{_key(cluster.cluster)}.partitions.{_key(name)}]"
        if kinds[0].max_time:
            yield f'max_time = "{kinds[0].max_time}"'
        yield f"gpus_per_node = {max(kind.gpus for kind in kinds)}"
        types = list(dict.fromkeys(gpu_type for kind in kinds for gpu_type in kind.gpu_types))
        if len(types) == 1:
            yield f"gpu_type = {formats.json_text(types[0])}"
        elif types:
            yield f"# gpu_type: several, {', '.join(types)}"


def _nodes(kinds: Sequence[sinfo.NodeKind]) -> str:
    texts = []
    for kind in kinds:
        gpus = f", {kind.gpus} GPUs" if kind.gpus else ""
        memory = f"{kind.memory_mib // 1024} GiB" if kind.memory_mib else "unknown memory"
        texts.append(f"{kind.nodes} nodes: {kind.cpus} CPUs, {memory}{gpus}")
    state = "" if kinds[0].availability == "up" else f" ({kinds[0].availability} now)"
    return "; ".join(texts) + state


def _key(text: str) -> str:
    bare = text.replace("-", "").replace("_", "")
    return text if bare.isascii() and bare.isalnum() else formats.json_text(text)
