"""Definition files of Apptainer: which local files they copy, and the digest of all of it.

The format: apptainer.org/docs/user/latest/definition_files.html (1.4).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import shlex
from collections.abc import Iterator, Sequence

from orchestrator import errors

#: Bootstrap agents that start from a local image or folder; but for the first one a name in it may
#: follow a colon.
_LOCAL_AGENTS = ("localimage", "oci-archive", "docker-archive", "oci")
_HEADER = re.compile(r"\s*(bootstrap|from|stage)\s*:\s*(.*?)\s*", re.IGNORECASE)
_SECTION = re.compile(r"\s*%(\w+)(.*)")
_DIGEST_CHARACTERS = 32


class DefinitionError(errors.OrchestratorError):
    """A definition file cannot be built."""

    exit_code = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Definition:
    """What of a definition file decides about the image beside its own text."""

    text: str
    #: local files, folders and shell patterns, with the numbers of their lines
    sources: Sequence[tuple[int, str]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class CopiedFile:
    """A local file that the build reads."""

    #: as the build finds it: absolute, or relative to the folder of the build
    path: str
    is_executable: bool
    sha256: str


def parse(text: str, name: str) -> Definition:
    """Parse a definition file; raises DefinitionError with `name` and the line."""
    if not any(match and match[1].lower() == "bootstrap" for match in _headers(text)):
        raise DefinitionError(f"{name} is no definition file: it has no line `Bootstrap: ...`")
    return Definition(text=text, sources=tuple(_sources(text, name)))


def digest(text: str, builder: Sequence[str], copied: Sequence[CopiedFile]) -> str:
    """Return the name of an image: the same for the same definition, program, options and files."""
    document = [text, list(builder), [dataclasses.astuple(each) for each in copied]]
    whole = hashlib.sha256(json.dumps(document).encode(errors="surrogateescape"))
    return whole.hexdigest()[:_DIGEST_CHARACTERS]


def checksums(copied: Sequence[CopiedFile]) -> str:
    """Return the files as `sha256sum --check` reads them."""
    return "".join(f"{_checksum(each)}\n" for each in copied)


def _checksum(each: CopiedFile) -> str:
    escaped = each.path.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    mark = "" if escaped == each.path else "\\"
    return f"{mark}{each.sha256}  {escaped}"


def _headers(text: str) -> Iterator[re.Match[str] | None]:
    return (_HEADER.fullmatch(line.partition("#")[0]) for line in text.splitlines())


def _sources(text: str, name: str) -> Iterator[tuple[int, str]]:
    agent, section, has_stage = "", "", False
    for number, line in enumerate(text.splitlines(), start=1):
        if match := _SECTION.fullmatch(line):
            section = match[1].lower()
            # `%files from STAGE` copies within the build.
            has_stage = match[2].split()[:1] == ["from"]
            continue
        header = _HEADER.fullmatch(line.partition("#")[0])
        if header and header[1].lower() == "bootstrap":
            # The next stage begins.
            agent, section = header[2].lower(), ""
        elif header and not section and header[1].lower() == "from" and agent in _LOCAL_AGENTS:
            _refuse_variables(line, name, number)
            path = header[2] if agent == _LOCAL_AGENTS[0] else header[2].partition(":")[0]
            yield number, path
        elif section == "files" and not has_stage and (words := _words(line, name, number)):
            _refuse_variables(line, name, number)
            yield number, words[0]


def _words(line: str, name: str, number: int) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError as error:
        raise DefinitionError(f"{name}:{number}: {error} in {line.strip()}") from error


def _refuse_variables(line: str, name: str, number: int) -> None:
    if "{{" in line:
        raise DefinitionError(
            f"{name}:{number}: `{line.strip()}` depends on a build argument, so whether the image "
            "is built already is unknown: write the path"
        )
