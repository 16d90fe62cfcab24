"""Where two jobs differ: spec, arguments, code, environment and results."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator import environments, jobs
from orchestrator.metrics import summaries
from orchestrator.reproduction.records import CodeVersion, Difference, Run, Section
from orchestrator.specs import arguments, toml_tables, writing
from orchestrator.toml import documents

#: Keys of specs that the section on the code covers, or that say where a copy was taken.
_OF_CODE = tuple(f"code.{name}" for name in ("tree", "root"))
#: Speed differs by less between equal runs.
_SPEED_SHARE = 0.05
_DURATION_SECONDS = 10.0
#: The head of a script, which names the spec's file and the templates.
_HEAD = ("# Made by orchestrator ", "# Template ", "# With your own ")


def differences(first: Run, second: Run, code_diff: str | None = None) -> list[Difference]:
    """Return all differences, section by section.

    code_diff: of the two snapshots, if both have one. Tokens, run folders, job IDs, times and hosts
    always differ and are no differences.
    """
    of_specs = [*_of_specs(first.spec, second.spec), *_of_scripts(first, second)]
    own_variables = {
        each.key.removeprefix("environment.variables.")
        for each in of_specs
        if each.key.startswith("environment.variables.")
    }
    return [
        *(each for each in of_specs if each.section == "spec"),
        *(each for each in of_specs if each.section == "arguments"),
        *_of_code(first.code, second.code, code_diff),
        *(
            each
            for each in _of_environments(first, second)
            # The spec says it already.
            if each.key.removeprefix("variable ") not in own_variables
        ),
        *_of_results(first, second),
    ]


def differs(found: Sequence[Difference]) -> bool:
    """Return whether anything but speed differs."""
    return any(not each.is_speed for each in found)


def unknown(first: Run, second: Run) -> list[str]:
    """Return sentences on what cannot be compared."""
    sentences = []
    for run in (first, second):
        if not run.code.identity:
            sentences.append(f"The code of {run.name} is not recorded: no snapshot and no git.")
        if run.environment is None:
            sentences.append(f"The environment of {run.name} is not recorded.")
    if (first.code.tree is None) != (second.code.tree is None):
        owner = first if first.code.tree is not None else second
        sentences.append(f"Only {owner.name} has a snapshot: there is no diff of the code.")
    return sentences


def flat(spec: jobs.JobSpec) -> dict[str, Any]:
    """Return all set keys of a spec, with their values as in JSON.

    Arguments of a Python program after `--` are arguments, if they can be told apart.
    """
    data = json.loads(toml_tables.to_json(spec))
    stored = documents.of(_without_nulls(data), "stored spec")
    tables = {**data, **_without_nulls(writing.with_arguments(stored))}
    if not tables["launch"].get("program"):
        tables["launch"] = {**tables["launch"], "program": []}
    tables["args"] = {
        arguments.flag(key).removeprefix("--").replace("-", "_"): value
        for key, value in tables["args"].items()
        # An option that is switched off is not passed.
        if value is not False
    }
    return dict(_leaves(tables, ()))


def _without_nulls(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}


def _leaves(table: Mapping[str, Any], at: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        path = (*at, key)
        if isinstance(value, Mapping):
            yield from _leaves(value, path)
        elif value is not None and value != []:
            yield documents.dotted(path), value


def _of_specs(first: jobs.JobSpec, second: jobs.JobSpec) -> Iterator[Difference]:
    values = [flat(first), flat(second)]
    for key in sorted(values[0].keys() | values[1].keys()):
        before, after = (each.get(key) for each in values)
        if key in _OF_CODE or (before == after and type(before) is type(after)):
            continue
        section: Section = "arguments" if key.startswith(("args.", "launch.program")) else "spec"
        texts = [value for value in (before, after) if isinstance(value, str) and "\n" in value]
        diff = _unified(str(before), str(after)) if len(texts) == 2 else None
        yield Difference(section=section, key=key, first=before, second=after, diff=diff)


def _of_scripts(first: Run, second: Run) -> Iterator[Difference]:
    """Yield the difference of two batch files: the scripts of other jobs follow from the spec."""
    if first.spec.launch.batch_file is None or second.spec.launch.batch_file is None:
        return
    diff = _unified(
        *(
            "\n".join(line for line in run.script.split("\n") if not line.startswith(_HEAD))
            for run in (first, second)
        )
    )
    if diff:
        yield Difference(section="spec", key="script", first=None, second=None, diff=diff)


def _of_code(
    first: CodeVersion, second: CodeVersion, code_diff: str | None
) -> Iterator[Difference]:
    if first.tree == second.tree and (first.tree or first.commit_text == second.commit_text):
        return
    diff = code_diff
    if first.tree is None and second.tree is None and first.diff != second.diff:
        is_edit = first.commit == second.commit and not first.diff
        diff = second.diff if is_edit else _unified(first.diff, second.diff)
    yield Difference(
        section="code", key="version", first=first.text, second=second.text, diff=diff or None
    )


def _unified(before: str, after: str) -> str:
    lines = difflib.unified_diff(before.split("\n"), after.split("\n"), lineterm="")
    # Without the names of files.
    return "".join(f"{line}\n" for line in list(lines)[2:])


def _of_environments(first: Run, second: Run) -> Iterator[Difference]:
    images = [_image(run.provenance.get("container")) for run in (first, second)]
    if images[0] != images[1]:
        key = "container image"
        yield Difference(section="environment", key=key, first=images[0], second=images[1])
    if first.environment is None or second.environment is None:
        return
    comparable = map(environments.comparable, (first.environment, second.environment))
    for kind, name, before, after in environments.differences(*comparable):
        yield Difference(section="environment", key=f"{kind} {name}", first=before, second=after)


def _image(recorded: Mapping[str, Any] | None) -> str | None:
    """Return what identifies the content of a container image, the best that is known."""
    if not recorded:
        return None
    if recorded.get("sha256"):
        return f"SHA-256 {recorded['sha256']}"
    if recorded.get("sif_id"):
        return f"SIF ID {recorded['sif_id']}"
    if recorded.get("size_bytes") is not None:
        return f"{recorded['size_bytes']} bytes, changed {recorded.get('changed_at')}"
    return None


def _of_results(first: Run, second: Run) -> Iterator[Difference]:
    for key in ("state", "exit"):
        before, after = getattr(first, key), getattr(second, key)
        if before != after:
            yield Difference(section="results", key=key, first=before or None, second=after or None)
    durations = first.elapsed_seconds, second.elapsed_seconds
    if all(value is not None for value in durations):
        before, after = map(float, durations)  # type: ignore[arg-type]
        if abs(after - before) >= _DURATION_SECONDS:
            yield from _of_numbers("duration_seconds", before, after, is_speed=True)
    for name, unit in sorted(first.metrics.keys() | second.metrics.keys()):
        yield from _of_numbers(
            f"{name} ({unit})" if unit else name,
            first.metrics.get((name, unit)),
            second.metrics.get((name, unit)),
            is_speed=summaries.usual(name) == "median",
        )


def _of_numbers(
    key: str, before: float | None, after: float | None, *, is_speed: bool
) -> Iterator[Difference]:
    if before == after or (_is_nan(before) and _is_nan(after)):
        return
    ratio = summaries.ratio(after, before)
    relative = None if ratio is None else ratio - 1.0
    if is_speed and relative is not None and abs(relative) < _SPEED_SHARE:
        return
    yield Difference(
        section="results",
        key=key,
        first=before,
        second=after,
        relative=relative,
        # One that only one of the jobs reports is a difference.
        is_speed=is_speed and before is not None and after is not None,
    )


def _is_nan(value: float | None) -> bool:
    return value is not None and math.isnan(value)
