"""The CPU architecture of an image, under the names of `uname -m`, which Slurm uses too."""

from __future__ import annotations

import struct

#: Bytes at the start of a file that `architecture` reads.
HEAD_BYTES = 64
# A SIF file: a launch script of 32 bytes, magic, version (3), architecture (3)
# (github.com/apptainer/sif, pkg/sif/sif.go and arch.go).
_SIF_MAGIC = b"SIF_MAGIC\0"
_SIF_MAGIC_AT = 32
_SIF_ARCHITECTURE_AT = _SIF_MAGIC_AT + len(_SIF_MAGIC) + 3
_SIF_ARCHITECTURES = {
    b"01": "i686",
    b"02": "x86_64",
    b"03": "armv7l",
    b"04": "aarch64",
    b"05": "ppc64",
    b"06": "ppc64le",
    b"11": "s390x",
    b"12": "riscv64",
}
# An ELF file: magic, class, byte order, ...; the machine is the 16-bit number at 18 (man elf).
_ELF_MAGIC = b"\x7fELF"
_ELF_BYTE_ORDER = {1: "<", 2: ">"}
_ELF_MACHINES = {
    (3, "<"): "i686",
    (21, ">"): "ppc64",
    (21, "<"): "ppc64le",
    (22, ">"): "s390x",
    (40, "<"): "armv7l",
    (62, "<"): "x86_64",
    (183, "<"): "aarch64",
    (243, "<"): "riscv64",
}
#: Names that images have in registries.
_ALIASES = {"x86_64": "amd64", "aarch64": "arm64"}
#: Architectures whose programs these nodes usually run too.
_OLDER = {"x86_64": {"i686"}, "aarch64": {"armv7l"}}


def architecture(head: bytes) -> str | None:
    """Return the architecture of a SIF image or a program by its first bytes; None: unknown."""
    if head[_SIF_MAGIC_AT:].startswith(_SIF_MAGIC):
        return _SIF_ARCHITECTURES.get(head[_SIF_ARCHITECTURE_AT:][:2])
    if not head.startswith(_ELF_MAGIC) or len(head) < 20 or head[5] not in _ELF_BYTE_ORDER:
        return None
    order = _ELF_BYTE_ORDER[head[5]]
    return _ELF_MACHINES.get((struct.unpack_from(f"{order}H", head, 18)[0], order))


def alias(name: str) -> str:
    """Return the name with that of registries: "aarch64 (arm64)"."""
    return f"{name} ({_ALIASES[name]})" if name in _ALIASES else name


def fits(image: str, nodes: str) -> bool:
    """Return whether nodes of an architecture run an image; "": unknown."""
    return not nodes or image == nodes or image in _OLDER.get(nodes, ())
