"""What NCCL's own log (NCCL_DEBUG=INFO, subsystems INIT and NET) says about the network.

NCCL names its choice since 2.5 ("Using network IB"); before, only what it found. RCCL writes the
same lines.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

from orchestrator.fabrics.records import Network

#: Longer lines are not NCCL's, and some expressions would take long on them.
_MAX_CHARACTERS = 4096
_VERSION = re.compile(r"\b([NR]CCL) version ?:? ?(\d+\.\d+\.\d+)")
_NETWORK = re.compile(r"\bNCCL INFO Using network (\S.*?)\s*$")
_PROVIDER = re.compile(r"\bNET/OFI Selected [Pp]rovider is ([\w;+-]+)")
#: The chosen network is the first one that is found, in this order.
_FOUND = (
    ("IB", re.compile(r"\bNET/IB : Using \[0\]")),
    ("Socket", re.compile(r"\bNET/Socket : Using \[0\]")),
)
_SOCKETS = re.compile(r"\bNET/Socket : Using (.*)")
_SOCKET = re.compile(r"\[\d+\]([\w.-]+):")
#: InfiniBand's adapters have no address; the ranks meet on another interface.
_OUT_OF_BAND = re.compile(r"\bNET/IB : Using .*\bOOB ([\w.-]+):")
_NOT_FOUND = re.compile(r"\bNCCL WARN Error: network (\S.*?) not found")
_NO_PLUGIN = re.compile(r"\bNET/Plugin ?:.*?(lib[nr]ccl-net[\w.-]*\.so)")
#: The names of the plugins: aws-ofi-nccl (before and since 1.19), NVIDIA's with SHARP.
_KINDS: tuple[tuple[str, Network], ...] = (
    ("AWS Libfabric", "ofi"),
    ("Libfabric", "ofi"),
    ("OFI", "ofi"),
    ("IB", "ib"),
    ("Socket", "socket"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NcclLog:
    #: "NCCL 2.27.7"; "" if the log has none
    version: str = ""
    #: names of the networks that were chosen: "AWS Libfabric", "IB", "IBext_v8", "Socket"; usually
    #: one
    networks: tuple[str, ...] = ()
    #: of libfabric: "cxi"
    providers: tuple[str, ...] = ()
    #: that sockets use, and the host's side of InfiniBand
    interfaces: tuple[str, ...] = ()
    #: the network that NCCL_NET names and NCCL does not find
    missing: str = ""
    #: the plugin that NCCL looks for and does not find: "libnccl-net.so"
    missing_plugin: str = ""

    @property
    def kinds(self) -> set[Network | None]:
        """What was chosen; None is a network that is not known here."""
        return {kind_of(name) for name in self.networks}


def kind_of(network: str) -> Network | None:
    """Return the kind of a network by the name that NCCL prints."""
    return next((kind for name, kind in _KINDS if network.startswith(name)), None)


def read(lines: Iterable[str]) -> NcclLog:
    """Return what a log says. Lines of several ranks may be mixed."""
    version = missing = missing_plugin = ""
    # In the order of their first line.
    networks: dict[str, None] = {}
    found: dict[str, None] = {}
    providers: dict[str, None] = {}
    interfaces: dict[str, None] = {}
    for whole_line in lines:
        line = whole_line[:_MAX_CHARACTERS]
        if match := _VERSION.search(line):
            version = version or f"{match[1]} {match[2]}"
        if match := _NETWORK.search(line):
            networks[match[1]] = None
        if match := _PROVIDER.search(line):
            providers[match[1]] = None
        if match := _SOCKETS.search(line):
            interfaces |= dict.fromkeys(_SOCKET.findall(match[1]))
        if match := _OUT_OF_BAND.search(line):
            interfaces[match[1]] = None
        if match := _NOT_FOUND.search(line):
            missing = match[1]
        if "No plugin found" in line or "Could not find" in line or "cannot open" in line:
            if match := _NO_PLUGIN.search(line):
                missing_plugin = match[1]
        found |= {name: None for name, pattern in _FOUND if pattern.search(line)}
    if not networks:
        networks = dict.fromkeys([name for name, _ in _FOUND if name in found][:1])
    return NcclLog(
        version=version,
        networks=tuple(networks),
        providers=tuple(providers),
        interfaces=tuple(interfaces),
        missing=missing,
        missing_plugin=missing_plugin,
    )
