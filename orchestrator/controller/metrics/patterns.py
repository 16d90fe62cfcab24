"""The patterns that there are: those of a job, of the configuration, and those that ship."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orchestrator import config, errors, jobs, patterns
from orchestrator.toml import documents


def known(
    configuration: config.Configuration, files: Sequence[Path] = ()
) -> tuple[patterns.Pattern, ...]:
    """Return the patterns that any job may use; a name that comes twice is the earlier one's.

    Those of `files` come first, then the configuration's tables, its files, and what ships.
    ConfigurationError with all that is wrong in them.
    """
    problems: list[errors.Problem] = []
    named = [_of_file(path, problems) for path in files]
    own = configuration.patterns
    tables, found = patterns.check(own.data, origin="configuration")
    problems += [own.problem(("pattern", *path), message) for path, message in found]
    configured = [_of_file(path, problems) for path in configuration.pattern_files]
    if problems:
        raise errors.ConfigurationError(problems)
    return patterns.joined(*named, tables, *configured, patterns.load_shipped())


def of_job(
    everything: Sequence[patterns.Pattern], spec: jobs.JobSpec, *, source: str = "spec"
) -> tuple[patterns.Pattern, ...]:
    """Return the patterns of a job: its own, and those that it names, else all.

    ConfigurationError for a name that nothing has, and for what is wrong in its own.
    """
    own, found = patterns.check(spec.metrics.pattern, origin="spec")
    if found:
        raise errors.ConfigurationError(
            [
                errors.Problem(
                    source=source,
                    key=documents.dotted(("metrics", "pattern", *path)),
                    message=message,
                )
                for path, message in found
            ]
        )
    every = patterns.joined(own, everything)
    return patterns.joined(own, patterns.select(every, spec.metrics.patterns, source=source))


def _of_file(path: Path, problems: list[errors.Problem]) -> tuple[patterns.Pattern, ...]:
    document, unread = documents.read(path)
    read, found = patterns.check(document.data, origin=str(path))
    problems += [*unread, *(document.problem(at, told) for at, told in found)]
    return read
