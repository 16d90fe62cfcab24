"""What is wrong with the values of `[tracking]`."""

from __future__ import annotations

import string
import urllib.parse
from collections.abc import Iterator

from orchestrator import jobs
from orchestrator.toml import schema
from orchestrator.toml.key_paths import KeyPath

#: What a link may contain: {run_id}
FIELDS = ("run_id", "project", "entity", "name", "token")


def findings(tracking: jobs.Tracking) -> Iterator[tuple[KeyPath, str]]:
    """Yield the paths of wrong values, and what is wrong with them."""
    for key in ("project", "entity", "mlflow_uri"):
        if getattr(tracking, key) == "":
            yield (key,), "is empty: remove the key"
    if error := uri_error(tracking.mlflow_uri or ""):
        yield ("mlflow_uri",), error
    for name, link in tracking.links.items():
        if error := link_error(link):
            yield ("links", name), error


def uri_error(uri: str) -> str:
    """Return what is wrong with the address of an MLflow server; "" if nothing is."""
    if "://" not in uri and uri:
        return f'must be an address such as "http://host:5000" (got {schema.as_toml(uri)})'
    if _has_password(uri):
        return (
            "must not contain a password, which scripts and messages would show: set "
            "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, for jobs in "
            "environment.secrets_file"
        )
    return ""


def link_error(link: str) -> str:
    """Return what is wrong with the template of a link; "" if nothing is."""
    if not link.startswith(("https://", "http://")):
        return f"must begin with https:// or http:// (got {schema.as_toml(link)})"
    try:
        fields = [
            (name, form, conversion)
            for _, name, form, conversion in string.Formatter().parse(link)
            if name is not None
        ]
    except ValueError:
        return "has a brace without a field: for a brace itself write {{ or }}"
    for name, form, conversion in fields:
        if name not in FIELDS or form or conversion:
            known = ", ".join(f"{{{field}}}" for field in FIELDS)
            return f"contains {{{name}}}: use only {known}"
    return ""


def _has_password(uri: str) -> bool:
    try:
        return urllib.parse.urlsplit(uri).password is not None
    except ValueError:
        return False
