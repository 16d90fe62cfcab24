"""Variables of the environment that the API reads besides the configuration."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator import errors

#: As click reads them for the command line.
_TRUE = ("1", "true", "t", "yes", "y", "on")
_FALSE = ("", "0", "false", "f", "no", "n", "off")


def is_read_only(environ: Mapping[str, str]) -> bool:
    """Return whether ORCHESTRATOR_READ_ONLY is set. Raises RequestError if it is unclear."""
    word = environ.get("ORCHESTRATOR_READ_ONLY", "").strip().lower()
    if word not in (*_TRUE, *_FALSE):
        raise errors.RequestError(f"ORCHESTRATOR_READ_ONLY is {word!r}: set it to 1 or 0")
    return word in _TRUE
