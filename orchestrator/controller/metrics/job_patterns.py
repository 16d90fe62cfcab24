"""Which log patterns a job uses: its own, those of the configuration, and the included ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orchestrator import config, errors, jobs, patterns
from orchestrator.toml import documents


def configured(
    configuration: config.Configuration, files: Sequence[Path] = ()
) -> tuple[patterns.Pattern, ...]:
    """Return the patterns that any job may use: of `files`, the configuration, and this package.

    If a name comes twice, the first pattern counts. Raises ConfigurationError with all problems.
    """
    problems: list[errors.Problem] = []
    from_files = [_load(path, problems) for path in files]
    own = configuration.patterns
    from_tables, table_problems = patterns.check(own.data, origin="configuration")
    problems += [own.problem(("pattern", *path), message) for path, message in table_problems]
    from_pattern_files = [_load(path, problems) for path in configuration.pattern_files]
    if problems:
        raise errors.ConfigurationError(problems)
    return patterns.joined(*from_files, from_tables, *from_pattern_files, patterns.load_shipped())


def of_job(
    configured: Sequence[patterns.Pattern], spec: jobs.JobSpec, *, source: str = "spec"
) -> tuple[patterns.Pattern, ...]:
    """Return the patterns that a spec defines, and those that it names (none: all).

    Raises ConfigurationError for unknown names and invalid patterns.
    """
    own, problems = patterns.check(spec.metrics.pattern, origin="spec")
    if problems:
        raise errors.ConfigurationError(
            [
                errors.Problem(
                    source=source,
                    key=documents.dotted(("metrics", "pattern", *path)),
                    message=message,
                )
                for path, message in problems
            ]
        )
    available = patterns.joined(own, configured)
    available = patterns.joined(available, _plugins(spec.metrics.patterns, available))
    return patterns.joined(own, patterns.select(available, spec.metrics.patterns, source=source))


def _plugins(
    names: Sequence[str], known: Sequence[patterns.Pattern]
) -> tuple[patterns.Pattern, ...]:
    """Return the named patterns that are not known, but that installed plugins have."""
    missing = set(names) - {pattern.name for pattern in known}
    if not missing:
        return ()
    from orchestrator import plugins

    loaded: list[patterns.Pattern] = []
    for name in sorted(missing & set(plugins.installed(plugins.LogPatterns))):
        text = plugins.load(plugins.LogPatterns, name).text
        origin = f"plugin {name}"
        document, problems = documents.parse(text, origin)
        found, pattern_problems = patterns.check(document.data, origin=origin)
        problems += [document.problem(at, text) for at, text in pattern_problems]
        if problems:
            raise errors.ConfigurationError(problems)
        loaded += found
    return tuple(loaded)


def _load(path: Path, problems: list[errors.Problem]) -> tuple[patterns.Pattern, ...]:
    _, document, file_problems = documents.read(path)
    loaded, pattern_problems = patterns.check(document.data, origin=str(path))
    problems += [*file_problems, *(document.problem(at, text) for at, text in pattern_problems)]
    return loaded
