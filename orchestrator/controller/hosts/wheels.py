"""The wheel of the running version of orchestrator, to install the same on a host."""

from __future__ import annotations

import base64
import csv
import hashlib
import importlib.metadata
import io
import json
import os
import sys
import tempfile
import urllib.parse
import zipfile
from collections.abc import Mapping
from pathlib import Path

from orchestrator import errors, files
from orchestrator.processes import process

#: Of a wheel.
MAX_BYTES = 512 * 1024**2
_BUILD_SECONDS = 120.0
#: Of the installation, not of the wheel.
_NOT_IN_WHEEL = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_build.json")
#: The oldest time that a zip file can have: the same files are always the same wheel.
_TIME = (1980, 1, 1, 0, 0, 0)
_BUILD = "import sys, hatchling.build; print(hatchling.build.build_wheel(sys.argv[1]))"


def of_this_version(environ: Mapping[str, str]) -> tuple[str, bytes]:
    """Return the name and content of the wheel. Raises OrchestratorError.

    An installed package is packed again; of an editable install its checkout is built.
    """
    try:
        distribution = importlib.metadata.distribution("orchestrator")
    except importlib.metadata.PackageNotFoundError:
        raise errors.OrchestratorError(
            "orchestrator is not an installed package here: install it, or put its wheel into the "
            "folder of --wheels"
        ) from None
    checkout = _checkout(distribution)
    return packed(distribution) if checkout is None else _built(checkout, environ)


def _checkout(distribution: importlib.metadata.Distribution) -> Path | None:
    """Return the folder of an editable install."""
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    if not origin.get("dir_info", {}).get("editable"):
        return None
    return Path(urllib.parse.unquote(urllib.parse.urlsplit(origin["url"]).path))


def packed(distribution: importlib.metadata.Distribution) -> tuple[str, bytes]:
    """Return the wheel of an installed package of pure Python."""
    names = {
        str(path): path
        for path in distribution.files or ()
        # Scripts are outside; pip makes them again from entry_points.txt.
        if ".." not in path.parts
        and path.suffix != ".pyc"
        and not (path.parent.name.endswith(".dist-info") and path.name in _NOT_IN_WHEEL)
    }
    info = next(name.partition("/")[0] for name in names if name.endswith(".dist-info/METADATA"))
    record, content = io.StringIO(), io.BytesIO()
    rows = csv.writer(record, lineterminator="\n")
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(names):
            path = Path(str(distribution.locate_file(names[name])))
            data = files.read_bytes(path, limit_bytes=MAX_BYTES)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            rows.writerow([name, f"sha256={digest}", len(data)])
            _add(archive, name, data)
        rows.writerow([f"{info}/RECORD", "", ""])
        _add(archive, f"{info}/RECORD", record.getvalue().encode())
    tag = (distribution.read_text("WHEEL") or "").partition("\nTag: ")[2].partition("\n")[0]
    return f"{info.removesuffix('.dist-info')}-{tag or 'py3-none-any'}.whl", content.getvalue()


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name, _TIME)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    archive.writestr(entry, data)


def _built(checkout: Path, environ: Mapping[str, str]) -> tuple[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        argv = [sys.executable, "-c", _BUILD, folder]
        done = process.run(argv, _BUILD_SECONDS, environ, folder=os.fspath(checkout))
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode or len(wheels) != 1:
            last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            raise errors.OrchestratorError(
                f"cannot build the wheel of {checkout}: {last}. Build it (`pip wheel --no-deps "
                f"{checkout}`), and name its folder: --wheels"
            )
        return wheels[0].name, files.read_bytes(wheels[0], limit_bytes=MAX_BYTES)
