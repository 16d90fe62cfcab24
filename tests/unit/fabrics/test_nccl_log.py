"""NCCL's log (tests/data/nccl has real ones), and the interfaces that its variables mean."""

from __future__ import annotations

import time
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

from orchestrator.fabrics import interfaces, nccl_log
from orchestrator.fabrics.nccl_log import NcclLog

DATA = Path(__file__).parents[2] / "data/nccl"
PLUGIN = "libnccl-net.so"
LOGS = {
    "slingshot": ("ofi", NcclLog(networks=("AWS Libfabric",), providers=("cxi",))),
    "efa": (
        "ofi",
        NcclLog(version="NCCL 2.10.3", networks=("AWS Libfabric",), providers=("efa",)),
    ),
    "infiniband": (
        "ib",
        NcclLog(networks=("IB",), interfaces=("ib0",), missing_plugin="librccl-net.so"),
    ),
    "roce": (
        "ib",
        NcclLog(
            version="NCCL 2.19.3",
            networks=("IB",),
            interfaces=("enp220s0np0",),
            missing_plugin=PLUGIN,
        ),
    ),
    "sharp": ("ib", NcclLog(networks=("IBext",), interfaces=("ibp25s0",))),
    "one_rank": (
        "socket",
        NcclLog(version="NCCL 2.19.3", networks=("Socket",), interfaces=("ens7",)),
    ),
    "loopback": (
        "socket",
        NcclLog(
            version="NCCL 2.10.3",
            networks=("Socket",),
            interfaces=("lo",),
            missing_plugin=PLUGIN,
        ),
    ),
    "old": (
        "socket",
        NcclLog(
            version="NCCL 2.4.7",
            networks=("Socket",),
            interfaces=("ens3",),
            missing_plugin=PLUGIN,
        ),
    ),
    "not_found": (
        None,
        NcclLog(missing="AWS Libfabric", missing_plugin="libnccl-net-ofi.so"),
    ),
}


def test_recorded_logs() -> None:
    assert {path.stem for path in DATA.glob("*.log")} == set(LOGS)
    for name, (kind, expected) in LOGS.items():
        read = nccl_log.read(DATA.joinpath(f"{name}.log").read_text().splitlines())
        assert read == expected, name
        assert read.kinds == ({kind} if kind else set()), name


@hypothesis.given(
    st.lists(
        st.one_of(
            st.text(),
            st.sampled_from(
                [
                    line
                    for path in sorted(DATA.glob("*.log"))
                    for line in path.read_text().splitlines()
                ]
            ).flatmap(lambda line: st.sampled_from([line, line[: len(line) // 2], line[20:]])),
        )
    )
)
def test_any_lines_can_be_read(lines: list[str]) -> None:
    read = nccl_log.read(lines)
    assert read == nccl_log.read([*lines, *lines])
    assert len(set(read.networks)) == len(read.networks)
    for name in (*read.networks, *read.interfaces, *read.providers):
        assert any(name in line for line in lines)


def test_a_long_line_takes_no_time() -> None:
    # Its time grew with the square of the length: 85 s.
    began = time.process_time()
    nccl_log.read(["NET/IB : Using " * 20_000, "NET/Plugin : " * 20_000 + "Could not find"])
    assert time.process_time() - began < 20


@pytest.mark.parametrize(
    ("value", "nccl", "gloo"),
    [
        ("hsn", [], ["hsn"]),
        ("hsn0,hsn1", [], []),
        ("hsn1,hsn2", ["hsn2"], ["hsn2"]),
        ("=hsn", ["hsn"], ["=hsn"]),
        ("=hsn0,eth", ["eth"], ["=hsn0", "eth"]),
        ("^docker", [], ["^docker"]),
        ("^lo,hsn,eth", ["^lo,hsn,eth"], ["^lo", "hsn", "eth"]),
        ("^=lo", [], ["^=lo"]),
    ],
)
def test_interfaces(value: str, nccl: list[str], gloo: list[str]) -> None:
    names = ["lo", "hsn0", "hsn1", "eth0"]
    assert interfaces.unmatched_by_nccl(value, names) == nccl
    assert interfaces.unmatched_by_gloo(value, names) == gloo
