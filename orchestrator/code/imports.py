"""Editable installs and PYTHONPATH: folders from which Python would import the original code."""

from __future__ import annotations

import ast
import json
import os
import re
import urllib.parse
from collections.abc import Iterable, Iterator

#: setuptools writes the packages of an editable install into a module that finds them.
_MAPPING = re.compile(r"^(?:MAPPING|mapping)[^=\n]*=\s*(\{.*?\})\s*$", re.MULTILINE)


def of_pth(text: str) -> Iterator[str]:
    """Yield the folders that a .pth file adds to Python's path (site, Python's documentation)."""
    for line in text.splitlines():
        if line.strip() and not line.startswith(("#", "import ", "import\t")):
            yield line.rstrip()


def of_finder(text: str) -> Iterator[str]:
    """Yield the folders of the packages that an editable finder (`__editable__*.py`) knows."""
    for match in _MAPPING.finditer(text):
        try:
            mapping = ast.literal_eval(match[1])
        except (ValueError, SyntaxError):
            continue
        for package, path in mapping.items():
            # "a.b" is the package b of a.
            parents = str(package).count(".") + 1
            yield os.path.normpath(os.path.join(str(path), *[".."] * parents))


def of_direct_url(text: str) -> str | None:
    """Return the folder of an editable install from its direct_url.json (PEP 610)."""
    try:
        record = json.loads(text)
        is_editable = record.get("dir_info", {}).get("editable") is True
        url = urllib.parse.urlsplit(str(record.get("url", "")))
    except (ValueError, AttributeError):
        return None
    return urllib.parse.unquote(url.path) if is_editable and url.scheme == "file" else None


def inside(paths: Iterable[str], root: str) -> list[str]:
    """Return the paths at or below `root`, relative to it, each once and in their order.

    All are absolute, without symbolic links.
    """
    relative: dict[str, None] = {}
    for path in paths:
        if path == root or path.startswith(f"{root.rstrip('/')}/"):
            relative[os.path.relpath(path, root)] = None
    return list(relative)
