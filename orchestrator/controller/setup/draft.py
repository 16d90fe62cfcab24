"""config init: a first profile of a cluster, from what Slurm says of it."""

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
from orchestrator.toml import values

#: Variables by which sites name a user's large shared folder.
SCRATCH = ("SCRATCH", "SCRATCHDIR", "WORK", "PROJECT", "DATA")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cluster:
    """What was found out about a cluster."""

    cluster: str
    slurm_version: str
    #: SelectType, "select/cons_tres"
    select_type: str
    kinds: Sequence[sinfo.NodeKind]
    associations: Sequence[sacctmgr.Association]
    #: why the accounts are not known; "" where they are
    accounts_error: str
    #: NAME=FOLDER of SCRATCH that are set
    scratch: Mapping[str, str]


def query(client: Client, environ: Mapping[str, str]) -> Cluster:
    """Ask Slurm three questions; raises SlurmError when slurmctld does not answer."""
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


def draft(found: Cluster) -> str:
    """Return a configuration file with a profile of the cluster."""
    return "\n".join([*_head(found), *_profile(found), *_partitions(found)]) + "\n"


def write(path: Path, text: str, shared_folders: Sequence[Path] = ()) -> None:
    """Make the file, mode 0600, and its folder; ConflictError where there is one already.

    Raises OrchestratorError where it cannot be written, or others could change it.
    """
    try:
        files.make_private_folder(
            path.parent, shared_folders=shared_folders, setting="XDG_CONFIG_HOME"
        )
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as exc:
        raise errors.ConflictError(
            f"{path} is there already and was left alone; "
            "`orchestrator config init --print` shows the draft"
        ) from exc
    except files.PrivateFolderError as exc:
        raise errors.OrchestratorError(str(exc.strerror)) from exc
    except OSError as exc:
        raise errors.OrchestratorError(
            f"{path} cannot be written ({exc.strerror}); `--print` shows the draft"
        ) from exc
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(text)


def _head(found: Cluster) -> Iterator[str]:
    yield (
        f"# Drafted by orchestrator {orchestrator.__version__} from cluster {found.cluster}, "
        f"Slurm {found.slurm_version}."
    )
    yield "# Look through it; `orchestrator doctor` checks what it says."
    yield ""
    yield "# Run folders (scripts, logs, checkpoints) must be seen from the compute nodes."
    name = next(iter(found.scratch), None)
    folder = f"${name}/orchestrator-runs" if name else "~/orchestrator-runs"
    yield f'runs_dir = "{folder}"'
    yield "# The database: on a disk of this host if it can be, else on a shared one."
    yield '# state_dir = "~/.local/state/orchestrator"'
    yield ""


def _profile(found: Cluster) -> Iterator[str]:
    yield f"[profiles.{_key(found.cluster)}]"
    default = next((kind.partition for kind in found.kinds if kind.default), None)
    if default is not None:
        yield f"partition = {_string(default)}  # Slurm's default"
    else:
        yield '# partition = "..."  # Slurm has no default here: name one, or each spec must'
    accounts = list(dict.fromkeys(one.account for one in found.associations))
    if found.accounts_error:
        yield f"# account = ...  # your accounts are not known: {found.accounts_error}"
    elif accounts:
        yield f"# account = {_string(accounts[0])}  # yours: {', '.join(accounts)}"
    levels = list(dict.fromkeys(name for one in found.associations for name in one.qos))
    if levels:
        yield f"# qos = {_string(levels[0])}  # yours: {', '.join(levels)}"
    gpus = any(kind.gpus for kind in found.kinds)
    if gpus and not found.select_type.endswith("cons_tres"):
        # man sbatch: --gpus-per-node is for select/cons_tres only.
        yield f'gres_style = "gres"  # {found.select_type} does not know --gpus-per-node'
    yield '# modules = ["..."]  # loaded where a spec names none: `module avail`'
    yield '# binds = ["/data:/data"]  # bound into every container'
    yield "# poll_floor_seconds = 10  # Slurm is not asked more often than this"


def _partitions(found: Cluster) -> Iterator[str]:
    profile = _key(found.cluster)
    for name in dict.fromkeys(kind.partition for kind in found.kinds):
        kinds = [kind for kind in found.kinds if kind.partition == name]
        yield ""
        yield f"# {_nodes(kinds)}"
        if values.form_error("partition", name):
            yield f"# partition {_string(name)} is left out: such a name is not taken here"
            continue
        yield f"[profiles.{profile}.partitions.{_key(name)}]"
        if kinds[0].max_time:
            yield f'max_time = "{kinds[0].max_time}"'
        yield f"gpus_per_node = {max(kind.gpus for kind in kinds)}"
        types = list(dict.fromkeys(one for kind in kinds for one in kind.gpu_types))
        if len(types) == 1:
            yield f"gpu_type = {_string(types[0])}"
        elif types:
            yield f"# gpu_type: several, {', '.join(types)}"


def _nodes(kinds: Sequence[sinfo.NodeKind]) -> str:
    told = []
    for kind in kinds:
        gpus = f", {kind.gpus} GPUs" if kind.gpus else ""
        memory = f"{kind.memory_mib // 1024} GiB" if kind.memory_mib else "unknown memory"
        told.append(f"{kind.nodes} nodes: {kind.cpus} CPUs, {memory}{gpus}")
    state = "" if kinds[0].availability == "up" else f" ({kinds[0].availability} now)"
    return "; ".join(told) + state


def _key(text: str) -> str:
    bare = text.replace("-", "").replace("_", "")
    return text if bare.isascii() and bare.isalnum() else _string(text)


def _string(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
