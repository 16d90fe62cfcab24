"""The file `environment.TASK.ATTEMPT` of a run folder -> a record.

templates/environment/record_*.sh.j2 write it: lines KEY<tab>VALUE. Programs of the job can write
anything into it, so each text gives a record.
"""

from __future__ import annotations

import datetime
import functools
import re
from collections.abc import Iterable, Iterator, Mapping

from orchestrator.environments import records

#: The script writes less.
LIMIT_BYTES = 256 * 1024
#: After so long a record without its last line is not expected to be completed.
COMPLETE_WITHIN = datetime.timedelta(minutes=10)
#: Variables that name devices, and differ between equal tasks of one node.
_OF_PLACEMENT = re.compile(r"(?:CUDA|NVIDIA|ROCR|HIP)_VISIBLE_DEVICES|GPU_DEVICE_ORDINAL")
#: Folders of installed packages (PEP 427, PEP 376). Old .egg-info folders may lack the version.
_PACKAGE = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*?)(?:-(?P<version>[0-9][^/-]*))?"
    r"(?:\.dist-info|(?:-py3\.[0-9]+)?\.egg-info)"
)
#: No file system has longer names.
_NAME_CHARACTERS = 255
#: A snapshot of the code that is unpacked on each node, in a folder for each attempt
#: (templates/code.sh.j2).
_COPY_ON_NODE = re.compile(
    # Only from the start of a path: the time stays proportional to the length of the text.
    r"(?<![^\s:=])[^\s:=]*?/orchestrator-code\.[0-9]+\.[0-9]+\.[0-9]+"
)
_DRIVER = re.compile(r"(?<=\s)[0-9]{3,4}\.[0-9]+(?:\.[0-9]+)?(?=\s|$)")


def parse(text: str, run_dir: str) -> records.Record:
    """Return the record of a file's text.

    run_dir: its path in values becomes `$ORCHESTRATOR_RUN_DIR`, and that of a snapshot on a node
    `$ORCHESTRATOR_CODE`, so that the records of equal jobs are equal.
    """
    lines: dict[str, list[str]] = {}
    text = _COPY_ON_NODE.sub("$ORCHESTRATOR_CODE", text.replace(run_dir, "$ORCHESTRATOR_RUN_DIR"))
    for line in text.split("\n"):
        key, tab, value = line.partition("\t")
        if tab and (value := value.strip()):
            lines.setdefault(key, []).append(value)
    # A value that is written twice counts as it was last.
    last = {key: values[-1] for key, values in lines.items()}
    variables = dict(sorted(_variables(lines.get("variable", ()))))
    placed = {name: value for name, value in variables.items() if _OF_PLACEMENT.fullmatch(name)}
    gpus = lines.get("gpu", [])
    driver = _DRIVER.search(last.get("driver", ""))
    environment = records.Environment(
        python=last.get("python", ""),
        python_version=last.get("python_version", ""),
        packages=dict(_packages(tuple(lines.get("package", ())))),
        modules=tuple(filter(None, last.get("modules", "").split(":"))),
        driver=driver[0] if driver else "",
        gpus=tuple(sorted(set(gpus))),
        cpu=last.get("cpu", ""),
        kernel=last.get("kernel", ""),
        os=last.get("os", ""),
        libc=last.get("libc", ""),
        variables={name: value for name, value in variables.items() if name not in placed},
    )
    placement = records.Placement(
        host=last.get("host", ""),
        nodes=last.get("nodes", ""),
        gpus_on_host=len(gpus),
        variables=placed,
    )
    return records.Record(
        environment=environment,
        placement=placement,
        is_complete="end" in lines,
    )


def _variables(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        name, equals, value = line.partition("=")
        if equals and name:
            yield name, value


@functools.lru_cache(maxsize=4)
def _packages(names: tuple[str, ...]) -> Mapping[str, str]:
    """Return versions by name; the first of a name counts, as for Python.

    Cached for the tasks of an array: 400 names take 0.7 ms.
    """
    packages: dict[str, str] = {}
    folders = (name for name in names if len(name) <= _NAME_CHARACTERS)
    for match in filter(None, map(_PACKAGE.fullmatch, folders)):
        name = re.sub(r"[-_.]+", "-", match["name"]).lower()
        packages.setdefault(name, match["version"] or "")
    return dict(sorted(packages.items()))


def is_final(
    record: records.Record | None,
    *,
    started_at: datetime.datetime,
    ended_at: datetime.datetime | None,
    now: datetime.datetime,
) -> bool:
    """Return whether what was read (None: no file) is all that there will be.

    A file may be visible on this host later than its job's state.
    """
    is_complete = record is not None and record.is_complete
    return is_complete or now - (ended_at or started_at) > COMPLETE_WITHIN
