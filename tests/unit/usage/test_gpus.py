"""Parsing of nvidia-smi's CSV files, and of invalid files."""

from __future__ import annotations

import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.usage import gpus

DATA = pathlib.Path(__file__).parents[2] / "data"


def read(text: str) -> list[gpus.GpuUsage]:
    reader = gpus.Reader()
    reader.read(text.splitlines())
    return reader.usage("n1")


def test_the_query_of_the_olivia_guide() -> None:
    first, second = read((DATA / "gpu_usage_olivia.log").read_text())
    assert (first.host, first.index, first.name) == ("n1", "0", "NVIDIA GH200 120GB")
    assert first.readings == 4
    assert first.utilization_percent == gpus.Spread(mean=73.0, p50=97.0, p95=98.0, max=98.0)
    assert first.memory_used_mib == gpus.Spread(mean=49153.0, p50=65536.0, p95=65536.0, max=65536.0)
    assert (first.memory_total_mib, first.idle_share, first.power_watts) == (97871.0, 0.25, None)
    assert second.utilization_percent == gpus.Spread(mean=0.5, p50=0.0, p95=2.0, max=2.0)
    assert second.idle_share == 1.0


def test_any_columns_in_any_order_and_what_is_not_available() -> None:
    text = """\
power.draw [W], uuid, utilization.gpu [%], memory.used [MiB], timestamp
210.34 W, GPU-aa, [N/A], 4 MiB, 2026/11/21 10:00:00.001
[Unknown Error], GPU-bb, [Not Supported], 1.5 GiB, 2026/11/21 10:00:00.001
189.66, GPU-aa, [N/A], 8, 2026/11/21 10:00:05.001
"""
    whole, other = read(text)
    assert (whole.index, other.index) == ("GPU-aa", "GPU-bb")
    assert whole.power_watts == gpus.Spread(mean=200.0, p50=190.0, p95=210.0, max=210.34)
    assert (whole.utilization_percent, whole.idle_share) == (None, None)
    assert whole.memory_used_mib is not None and whole.memory_used_mib.max == 8.0
    assert other.memory_used_mib is not None and other.memory_used_mib.max == 1536.0
    assert other.power_watts is None


def test_gpus_without_index_are_numbered_by_order() -> None:
    text = """\
timestamp, utilization.gpu [%]
2026/11/21 10:00:00.123, 10 %
2026/11/21 10:00:00.125, 20 %
2026/11/21 10:00:05.124, 30 %
2026/11/21 10:00:05.126, 40 %
"""
    result = [(item.index, item.utilization_percent) for item in read(text)]
    assert [(index, spread and spread.mean) for index, spread in result] == [("0", 20), ("1", 30)]


def test_dmon() -> None:
    # `nvidia-smi dmon -s pum`, its head printed again.
    text = """\
# gpu    pwr  gtemp  mtemp     sm    mem    enc    dec    jpg    ofa     fb   bar1   ccpm
# Idx      W      C      C      %      %      %      %      %      %     MB     MB     MB
    0    120     40      -     50     10      -      -      -      -   4096      2      0
    1     40     35      -      0      0      -      -      -      -      3      2      0
# gpu    pwr  gtemp  mtemp     sm    mem    enc    dec    jpg    ofa     fb   bar1   ccpm
# Idx      W      C      C      %      %      %      %      %      %     MB     MB     MB
    0    140     41      -     70     10      -      -      -      -   4096      2      0
"""
    first, second = read(text)
    assert first.utilization_percent is not None and first.utilization_percent.mean == 60.0
    assert first.power_watts is not None and first.power_watts.mean == 130.0
    assert first.memory_used_mib is not None and first.memory_used_mib.max == 4096.0
    assert second.idle_share == 1.0


def test_attempts_in_one_file_torn_lines_and_another_head() -> None:
    text = """\
timestamp,index,name,utilization.gpu [%]
2026/11/21 10:00:00.123,0,A,50
2026/11/21 10:00:05.123,0,A,5timestamp,index,utilization.gpu [%]
index, utilization.gpu [%], timestamp
0, 70 %, 2026/11/21 11:00:00.123
0, 4000 %, 2026/11/21 11:00:05.123
"""
    (one,) = read(text)
    assert (one.readings, one.utilization_percent and one.utilization_percent.mean) == (2, 60.0)


@given(st.text(st.sampled_from("#,. \n%0179[N/A]WMiBgpusmtindexutilization.fb") | st.characters()))
@pytest.mark.parametrize("head", ["", "index, utilization.gpu [%]\n", "# gpu sm fb\n"])
def test_no_file_content_raises(head: str, text: str) -> None:
    for usage in read(head + text):
        for spread in (usage.utilization_percent, usage.memory_used_mib, usage.power_watts):
            assert spread is None or spread.p50 <= spread.p95 <= spread.max


def test_busy_is_the_mean_of_all_readings() -> None:
    assert (
        gpus.mean_utilization(read("index, utilization.gpu [%]\n0, 90 %\n0, 60 %\n1, 0 %")) == 0.5
    )
    assert gpus.mean_utilization(read("index, memory.used [MiB]\n0, 1 MiB")) is None
