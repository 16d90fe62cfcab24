"""What a compute node reports about a fabric, and what doctor says about it."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from orchestrator import fabrics
from orchestrator.controller.setup import fabric_checks, node_checks

LOGS = Path(__file__).parents[3] / "data/nccl"
FABRIC = """
summary = "a test"
modules = ["NCCL/2"]
network = { value = "socket" }
[variables]
NCCL_PROTO = { value = "^LL128" }
NCCL_SOCKET_IFNAME = { value = "lo" }
[containers]
binds = [{ value = "$EBROOTNCCL/lib dir:/opt/nccl" }, { value = "/usr" }]
library_path = [{ value = "/opt/nccl/deep" }]
[libraries]
"libnccl-net.so" = {}
"""


@pytest.fixture
def fabric(tmp_path: Path) -> fabrics.Fabric:
    path = tmp_path / "test.toml"
    path.write_text(FABRIC)
    path.chmod(0o600)
    return fabrics.load(str(path), ())


def facts_of(
    fabric: fabrics.Fabric, tmp_path: Path, log: str, **environ: str
) -> Mapping[str, Sequence[str]]:
    """Run the script with a Python that prints this log of NCCL, as on a node with GPUs."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("nvidia-smi", ":"), ("python", f"cat {LOGS / log}.log")):
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o700)
    done = subprocess.run(
        ["bash", "-euc", f"python=python\n{fabric_checks.script(fabric)}"],
        env={"PATH": f"{programs}:/usr/bin:/bin", **environ},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return {"host": ["n1"], **node_checks.facts_in(done.stdout)}


def outcomes(
    fabric: fabrics.Fabric, facts: Mapping[str, Sequence[str]], **own: str
) -> dict[str, tuple[str, str]]:
    return {
        check.name: (check.outcome, check.found)
        for check in fabric_checks.checks(fabric, facts, own)
    }


def test_all_lines_take_effect(fabric: fabrics.Fabric, tmp_path: Path) -> None:
    folder = tmp_path / "lib dir" / "deep"
    folder.mkdir(parents=True)
    (folder / "libnccl-net.so").touch()
    values = {name: line.value for name, line in fabric.variables.items()}
    facts = facts_of(fabric, tmp_path, "one_rank", EBROOTNCCL=str(tmp_path), **values)
    assert outcomes(fabric, facts) == {
        "fabric": ("ok", f"test ({tmp_path}/test.toml): 2 variables set"),
        "NCCL_SOCKET_IFNAME": ("ok", "lo: up on n1"),
        "fabric binds": ("ok", "all 2 exist on n1"),
        "fabric libraries": ("ok", f"{folder}/libnccl-net.so"),
        "NCCL network": ("ok", "NCCL 2.19.3 uses Socket"),
    }


def test_what_does_not_take_effect(fabric: fabrics.Fabric, tmp_path: Path) -> None:
    environ = {
        "NCCL_PROTO": "LL",
        "NCCL_SOCKET_IFNAME": "lo,hsn1",
        "GLOO_SOCKET_IFNAME": "hsn0",
        "EBROOTNCCL": "/nowhere",
    }
    facts = facts_of(fabric, tmp_path, "slingshot", **environ)
    assert outcomes(fabric, facts, NCCL_SOCKET_IFNAME="lo,hsn1") == {
        "fabric": ("warning", "test: NCCL_PROTO is LL, not ^LL128"),
        "NCCL_SOCKET_IFNAME": ("warning", "lo,hsn1: n1: has no hsn1"),
        "GLOO_SOCKET_IFNAME": ("bad", "hsn0: n1: has no hsn0"),
        "fabric binds": ("bad", "not on n1: /nowhere/lib dir"),
        "fabric libraries": ("warning", "not found: libnccl-net.so"),
        "NCCL network": (
            "bad",
            "NCCL uses AWS Libfabric (cxi); the fabric test expects socket",
        ),
    }


def test_nothing_is_set(fabric: fabrics.Fabric, tmp_path: Path) -> None:
    facts = facts_of(fabric, tmp_path, "not_found")
    found = outcomes(fabric, facts)
    assert found["fabric"][1] == (
        "test: NCCL_PROTO is not set, not ^LL128; NCCL_SOCKET_IFNAME is not set, not lo"
    )
    assert found["fabric binds"] == ("warning", "not set: EBROOTNCCL")
    assert found["NCCL network"] == (
        "bad",
        'NCCL does not find "AWS Libfabric" (libnccl-net-ofi.so)',
    )
    assert outcomes(fabric, {**facts, "nccl": []})["NCCL network"][0] == "ok"
    # A warning of torch on a node whose GPUs the job did not ask for.
    assert outcomes(fabric, {**facts, "nccl": ["UserWarning"]})["NCCL network"][0] == "ok"
    failed = outcomes(fabric, {**facts, "nccl": ["RuntimeError: no GPU", "exit code 1"]})
    assert failed["NCCL network"] == ("bad", "NCCL failed: RuntimeError: no GPU, exit code 1")
    late = outcomes(fabric, {**facts, "nccl": ["exit code 124"]})
    assert late["NCCL network"] == ("bad", "NCCL failed: exit code 124")
