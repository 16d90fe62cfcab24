"""The Python environment of the hosts, installed from a lock file and cached."""

from __future__ import annotations

import json
import os
import pathlib
import time
import tomllib
from collections.abc import Mapping

from tests.cluster import machine, root

#: Path of the environment on the hosts.
PLACE = "/opt/orchestrator-env"
#: Path of the checkout on the hosts.
CHECKOUT_PLACE = "/srv/orchestrator"
LOCK = "requirements/train.txt"
UV_LOCK = "requirements/uv.txt"

SCRIPT = f"""#!{PLACE}/bin/python
import sys

from {{module}} import {{name}}

sys.exit({{name}}())
"""


def build(
    made: root.Root, cache: pathlib.Path, checkout: pathlib.Path, *, fresh: bool = False
) -> pathlib.Path:
    """Return the environment of `checkout`'s lock file for a root, installing it if need be."""
    lock = checkout / LOCK
    if not lock.exists():
        raise machine.LabError(f"{lock} is missing: the environment is installed from it.")
    source = pathlib.Path(__file__).read_bytes()
    python = os.readlink(made.folder / "usr/bin/python3")
    project = tomllib.loads((checkout / "pyproject.toml").read_text())["project"]
    key = machine.digest(python, lock.read_bytes(), json.dumps(project["scripts"]), source)
    suite = root.SUITES[made.release]
    environments = cache / "environments"
    folder = environments / f"{suite}-{key}"
    with root.exclusive(cache / "environments.lock"):
        if fresh or not (folder / root.STAMP).exists():
            started = time.monotonic()
            root.say(f"installing the Python environment from {LOCK}")
            install(made.folder, suite, checkout, cache / "opt")
            partial = cache / "opt" / pathlib.Path(PLACE).name
            link_checkout(partial, project["scripts"])
            (partial / root.STAMP).touch()
            environments.mkdir(exist_ok=True)
            root.replace(partial, folder, environments.glob(f"{suite}-*"))
            root.say(f"environment installed in {time.monotonic() - started:.0f} s")
    return folder


def install(base: pathlib.Path, suite: str, checkout: pathlib.Path, opt: pathlib.Path) -> None:
    """Install the lock file (pip's format, with hashes) into `opt`, which becomes the root's /opt.

    uv's cache is beside the environment, on the same mount, so that files are hard links: a second
    environment takes seconds and hardly any disk.
    """
    opt.mkdir(parents=True, exist_ok=True)
    root.remove(opt / pathlib.Path(PLACE).name)
    variables = machine.index_variables(os.environ, pathlib.Path.home())
    binds = {
        opt: "/opt",
        pathlib.Path("/etc/ssl"): "/etc/ssl",
        checkout / "requirements": "/srv/requirements",
    }
    for name in ("/etc/resolv.conf", "/etc/hosts"):
        if pathlib.Path(name).exists():
            binds[pathlib.Path(name).resolve()] = name
    for name in ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
        path = variables.get(name, "/etc/ssl/")
        if not path.startswith("/etc/ssl/"):
            binds[pathlib.Path(path)] = path
    env = {**variables, "UV_CACHE_DIR": "/opt/uv-cache", "UV_PYTHON_DOWNLOADS": "never"}
    tool = f"uv-{suite}-{machine.digest((checkout / UV_LOCK).read_bytes())}"
    pip = [f"/opt/{tool}/bin/python", "-m", "pip", "install", "-q", "--no-cache-dir"]
    uv = f"/opt/{tool}/bin/uv"
    steps = [
        [uv, "venv", "-q", "--python", "/usr/bin/python3", PLACE],
        [
            *(uv, "pip", "install", "-q", "--python", f"{PLACE}/bin/python"),
            *("--require-hashes", "--compile-bytecode", "-r", f"/srv/{LOCK}"),
        ],
    ]
    if not (opt / tool / "bin/uv").exists():
        root.remove(opt / tool)
        steps.insert(0, ["python3", "-m", "venv", f"/opt/{tool}"])
        steps.insert(1, [*pip, "--require-hashes", "-r", f"/srv/{UV_LOCK}"])
    for argv in steps:
        action = "installing the Python environment"
        root.enter(base, argv, action=action, binds=binds, env=env, downloads=True)


def link_checkout(folder: pathlib.Path, scripts: Mapping[str, str]) -> None:
    """Make the checkout importable in the environment, as an editable install does.

    `scripts` is the table of that name in pyproject.toml: command -> `module:function`.
    """
    packages = next(folder.glob("lib/python3.*/site-packages"))
    (packages / "orchestrator_checkout.pth").write_text(CHECKOUT_PLACE + "\n")
    for script, target in scripts.items():
        module, _, function = target.partition(":")
        path = folder / "bin" / script
        path.write_text(SCRIPT.format(module=module, name=function))
        path.chmod(0o755)
