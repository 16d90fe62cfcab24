"""Whether the nodes of a job can run its image; Slurm is asked at most once a day."""

from __future__ import annotations

import contextlib
import datetime
import json
import platform
from collections.abc import Mapping
from pathlib import Path

from orchestrator import errors, files, images, jobs
from orchestrator.controller.session import clusters, contexts

#: Programs that images have; one of them is usually no link to another folder.
_PROGRAMS = ("usr/bin/env", "usr/bin/bash", "bin/bash", "bin/busybox", "usr/bin/dash")


def check(context: contexts.Context, spec: jobs.JobSpec) -> None:
    """Raise SpecError if all nodes that the job may get have another architecture than its image.

    What is unknown fits: an image without a path, a SquashFS file, a node that never registered.
    """
    image = None if spec.container.runtime == "edf" else spec.container.image_path
    if image is None:
        return
    found = of_image(context.calling_folder / (spec.chdir or "") / image)
    if found is None:
        return
    cluster = clusters.facts(context).cluster
    nodes = of_partition(context, cluster, spec.partition)
    if not nodes or any(images.fits(found, each) for each in nodes):
        return
    where = (
        f"nodes of partition {spec.partition}" if spec.partition else f"nodes of cluster {cluster}"
    )
    if context.is_local:
        where = "CPUs of this machine"
    needed = " and ".join(images.alias(each) for each in sorted(nodes))
    message = (
        f"the image is for {images.alias(found)}, and the {where} are {needed}: "
        "use an image for these"
    )
    problem = errors.Problem(source="", key="container.image", message=message)
    raise errors.SpecError([problem])


def of_partition(context: contexts.Context, cluster: str, partition: str | None) -> set[str]:
    """Return the architectures of its nodes, without one of all nodes; "" is an unknown one."""
    by_partition = _of_nodes(context, cluster)
    names = list(by_partition)
    if partition and not context.is_local:
        names = partition.split(",")
    return {each for name in names for each in by_partition.get(name, [""])}


def of_image(path: Path) -> str | None:
    """Return the architecture of a SIF file, or of the programs in a folder; None: unknown."""
    try:
        if not path.is_dir():
            return images.architecture(_head(path))
        folder = path.resolve()
        for name in _PROGRAMS:
            program = (folder / name).resolve()
            # An absolute link would lead to a program of this host.
            if program.is_relative_to(folder) and program.is_file():
                return images.architecture(_head(program))
    except (OSError, ValueError, RuntimeError):
        # Whether the image can be read is another question.
        pass
    return None


def _head(path: Path) -> bytes:
    with files.open_regular(path) as file:
        return file.read(images.HEAD_BYTES)


def _of_nodes(context: contexts.Context, cluster: str) -> Mapping[str, list[str]]:
    """Return the architectures of the nodes of each partition; "" is an unknown one."""
    if context.is_local:
        return {"": [platform.machine()]}
    key = f"architectures:{cluster}"
    with context.store.reading() as work:
        text = work.settings.get(key) or ""
    stored: dict[str, list[str]] = {}
    with contextlib.suppress(ValueError, TypeError):
        # Otherwise missing, or written by another version.
        asked_at, stored = json.loads(text)
        age = context.clock.now() - datetime.datetime.fromisoformat(asked_at)
        if 0 <= age.total_seconds() < clusters.MAX_AGE_SECONDS:
            return stored
    # After a failure Slurm is asked again after the same time.
    with contextlib.suppress(errors.SlurmError):
        stored = context.slurm.architectures()
    with context.store.writing() as work:
        work.settings.put(key, json.dumps([context.clock.now().isoformat(), stored]))
    return stored
