"""The #SBATCH options of a batch file."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence

from orchestrator import errors, jobs
from orchestrator.rendering import directives
from orchestrator.specs import sbatch_options
from orchestrator.text import escaping

#: Long options of sbatch without a value, or with one only after `=`. Source: man sbatch 24.11.
_WITHOUT_VALUE = frozenset(
    {
        *("contiguous", "exclusive", "get-user-env", "help", "hold", "ignore-pbs", "nice"),
        *("no-kill", "no-requeue", "overcommit", "oversubscribe", "parsable", "propagate"),
        *("quiet", "reboot", "requeue", "spread-job", "stepmgr", "test-only", "usage"),
        *("use-min-nodes", "verbose", "version", "wait", "immediate"),
    }
)
#: Overridden, or without effect here.
_HARMLESS = frozenset({"open-mode", "ignore-pbs"})
_REFUSED = {
    **{name: why for name, why in sbatch_options.REFUSED.items() if name not in _HARMLESS},
    "array": "submit an array with sbatch, and follow it with `orchestrator track JOBID`",
}
_COMPONENTS = frozenset({"hetjob", "packjob"})
#: A line that calls srun, after words that keep it a command.
_SRUN = re.compile(r"^\s*(?:(?:exec|time|if|!|then|do|\w+=\S*)\s+)*srun\b")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Option:
    #: the long name, "job-name"; as written if it is unknown
    name: str
    value: str | None = None
    #: line number, from 1; None: not in the file
    line: int | None = None
    #: the line itself
    text: str = ""


def read(text: str, source: str) -> list[Option]:
    """Return the options in a batch file's #SBATCH lines; the last of several is valid.

    Parsed like sbatch does with getopt_long: long options with `=` or a separate value, unambiguous
    abbreviations, and short options with or without attached value. Raises SpecError with all lines
    that cannot be used; `source` is the file's name in messages.
    """
    lines = text.split("\n")
    problems: list[errors.Problem] = []

    def add_problem(line: int, key: str, message: str) -> None:
        problem = errors.Problem(
            source=escaping.visible(source),
            line=line,
            key=key,
            message=message,
            text=escaping.visible(lines[line - 1]),
        )
        problems.append(problem)

    words: list[tuple[str, int]] = []
    for number, line in directives.header(lines):
        if line.startswith(("#PBS", "#BSUB")):
            message = "sbatch also reads such lines, orchestrator does not: write it as #SBATCH"
            add_problem(number, "", message)
        if line.startswith("#SBATCH"):
            try:
                words += [(word, number) for word in directives.arguments(line)]
            except errors.TemplateError as exc:
                add_problem(number, "", str(exc))
    options = []
    for name, value, number in _options(words):
        if name in _COMPONENTS:
            add_problem(number, name, "heterogeneous jobs are not supported")
            continue
        options.append(Option(name=name, value=value, line=number, text=lines[number - 1]))
        if name in _REFUSED:
            add_problem(number, f"--{name}", f"is refused: {_REFUSED[name]}")
    if problems:
        raise errors.SpecError(sorted(problems, key=lambda problem: problem.line or 0))
    return options


def with_directives(spec: jobs.JobSpec, script: str) -> jobs.JobSpec:
    """Return a batch file's spec with what its directives request, for use without Slurm.

    Options of the command line take precedence. A spec without batch file is returned unchanged.
    Raises SpecError for a file that calls srun.
    """
    source = spec.launch.batch_file
    if source is None:
        return spec
    for line in script.split("\n"):
        if _SRUN.match(line):
            message = f"{line.strip()}: srun needs Slurm: use --scheduler slurm on a cluster"
            raise errors.SpecError([errors.Problem(source=source, message=message)])
    options = {option.name: option.value for option in read(script, source)}
    options |= {name: None if value is True else str(value) for name, value in spec.sbatch.items()}
    resources = dataclasses.replace(
        spec.resources,
        nodes=_number(options, "nodes") or 1,
        cpus_per_task=_number(options, "cpus-per-task"),
        gpus_per_node=_number(options, "gpus-per-node") or _number(options, "gpus"),
        gres=options.get("gres"),
    )
    signal = re.fullmatch(r"B:(?:SIG)?(?:USR1|10)@(\d+)", options.get("signal") or "")
    exports_none = (options.get("export") or "").upper() in ("NONE", "NIL")
    return dataclasses.replace(
        spec,
        resources=resources,
        time_limit=options.get("time"),
        dependency=options.get("dependency"),
        exclusive="exclusive" in options,
        requeue=False if "no-requeue" in options else None,
        signal_seconds=int(signal[1]) if signal else None,
        environment=dataclasses.replace(spec.environment, export="none" if exports_none else "all"),
        sbatch={},
    )


def _number(options: Mapping[str, str | None], name: str) -> int | None:
    """Return the number in "2", "2-4" or "a100:2"."""
    match = re.search(r"(?:^|:)(\d+)(?:-\d+)?$", options.get(name) or "")
    return int(match[1]) if match else None


def _options(words: Sequence[tuple[str, int]]) -> Iterator[tuple[str, str | None, int]]:
    """Yield name, value and line of each option; sbatch itself refuses words that are none."""
    rest = iter(words)
    for word, line in rest:
        if word in _COMPONENTS:
            yield word, None, line
        elif word.startswith("--"):
            option, equals, value = word[2:].partition("=")
            name = sbatch_options.long_name(option)
            if equals:
                yield name, value, line
            else:
                yield name, None if name in _WITHOUT_VALUE else next(rest, ("", line))[0], line
        elif word.startswith("-"):
            letters = word[1:]
            while letters:
                name, letters = sbatch_options.long_name(letters[0]), letters[1:]
                if name not in _WITHOUT_VALUE:
                    yield name, letters or next(rest, ("", line))[0], line
                    break
                yield name, None, line
