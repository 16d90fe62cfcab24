"""What a job script records about the environment of an attempt."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, kw_only=True)
class Environment:
    """What equal attempts share. "" and empty collections: not recorded, or there is none."""

    #: path of the interpreter
    python: str = ""
    python_version: str = ""
    #: versions by normalized name (PEP 503); "": without a version
    packages: Mapping[str, str] = dataclasses.field(default_factory=dict)
    modules: tuple[str, ...] = ()
    #: version of the NVIDIA kernel driver
    driver: str = ""
    #: models of the first node's NVIDIA GPUs, each once
    gpus: tuple[str, ...] = ()
    cpu: str = ""
    kernel: str = ""
    #: distribution that the program sees: in a container, that of the image
    os: str = ""
    libc: str = ""
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Placement:
    """Where an attempt ran: it differs between attempts that are otherwise equal."""

    #: the first node
    host: str = ""
    #: Slurm's list of the nodes
    nodes: str = ""
    #: NVIDIA GPUs of the first node, allocated or not
    gpus_on_host: int = 0
    #: such as CUDA_VISIBLE_DEVICES
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
    environment: Environment
    placement: Placement
    #: nothing more will be written
    is_complete: bool
