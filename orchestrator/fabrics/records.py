"""The network between nodes, as a job's environment describes it to NCCL, RCCL and gloo."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Literal

#: What NCCL can choose: the OFI plugin (libfabric), InfiniBand or RoCE, TCP sockets.
Network = Literal["ofi", "ib", "socket"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Line:
    """A value, and where it is from."""

    value: str = ""
    #: a key of [sources], or the source itself
    source: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExpectedNetwork:
    value: Network | None = None
    source: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Containers:
    """`[containers]`: what jobs on several nodes need in a container."""

    #: as in container.binds; may begin with a variable: "$EBROOTNCCL:/opt/nccl"
    binds: tuple[Line, ...] = ()
    #: folders in the container for the beginning of LD_LIBRARY_PATH
    library_path: tuple[Line, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class File:
    """The content of a fabric's file."""

    summary: str = ""
    #: that set the variables in containers.binds
    modules: tuple[str, ...] = ()
    #: address and date, by a short name
    sources: Mapping[str, str] = dataclasses.field(default_factory=dict)
    #: what NCCL's log must name
    network: ExpectedNetwork = ExpectedNetwork()
    #: by name; variables of the job win
    variables: Mapping[str, Line] = dataclasses.field(default_factory=dict)
    containers: Containers = Containers()
    #: files that a node must have, by name
    libraries: Mapping[str, Line] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fabric(File):
    name: str
    #: path of the file, or "shipped"
    origin: str

    def source_of(self, line: Line) -> str:
        return self.sources.get(line.source, line.source)

    def lines(self) -> Iterator[tuple[str, str, Line]]:
        """Yield kind, name and value of each line, in the order of the file's tables."""
        if self.network.value is not None:
            yield "network", "", Line(value=self.network.value, source=self.network.source)
        for name, line in self.variables.items():
            yield "variable", name, line
        for line in self.containers.binds:
            yield "bind", "", line
        for line in self.containers.library_path:
            yield "library_path", "", line
        for name, line in self.libraries.items():
            yield "library", name, line
