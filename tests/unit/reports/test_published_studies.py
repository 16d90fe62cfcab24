"""Reports of published studies."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orchestrator import reports
from orchestrator.reports import documents, tables

ReportOf = Callable[..., reports.Report]


def sections_of(report: reports.Report, **targets: float) -> dict[str, list[str]]:
    return dict(documents.sentences(report, reports.Targets(**targets)))


def test_14x_of_olivia_is_not_a_speedup(report_of: ReportOf) -> None:
    report = report_of("s2_published")
    assert sections_of(report) == {
        "Curves": [
            "A: num_workers=0, optimizer=sgd, per_device_batch_size=256, precision=fp32",
            "B: num_workers=0, optimizer=sgd, per_device_batch_size=32, precision=fp32",
            "C: num_workers=8, optimizer=sgd momentum, per_device_batch_size=256, precision=fp16",
        ],
        "Warnings": [
            "num_workers differs, so there are several curves: 0 at 1 GPU; 8 at 4, 8 GPUs",
            "optimizer differs, so there are several curves: sgd at 1 GPU; "
            "sgd momentum at 4, 8 GPUs",
            "per_device_batch_size differs, so there are several curves: 32 at 1 GPU; "
            "256 at 1, 4, 8 GPUs",
            "precision differs, so there are several curves: fp32 at 1 GPU; fp16 at 4, 8 GPUs",
            "4 GPUs of C have 7.20 times the throughput of 1 GPU of A (efficiency 180.1 %). This "
            "is not a speedup, because more than the size differs: num_workers (8, not 0), "
            "optimizer (sgd momentum, not sgd), precision (fp16, not fp32)",
            "4 GPUs of C have 14.21 times the throughput of 1 GPU of B (efficiency 355.3 %). This "
            "is not a speedup, because more than the size differs: num_workers (8, not 0), "
            "optimizer (sgd momentum, not sgd), per_device_batch_size (256, not 32), "
            "precision (fp16, not fp32)",
            "no size was repeated: confidence intervals, if any, cover only the windows of one run",
        ],
        "Fits of C": [
            "Amdahl's law: 10696 samples/s on 1 GPU; serial fraction 0.05289; no confidence "
            "intervals, because there are as many parameters as runs",
            "Experimentally determined serial fraction (Karp-Flatt metric): 0.05289 at 8 GPUs",
            "Efficiency stays above 80.0 % up to 9 GPUs (by Amdahl's law, extrapolated beyond the "
            "8 measured)",
        ],
        "Fastest": ["1 GPU: A is fastest; throughput relative to it: B 50.7 %"],
        "Method": [
            "4 runs, 4 points of 1 repeat each, 0 windows; 95 % confidence intervals",
            "speedup of A is relative to 1 GPU, 5126 samples/s",
            "speedup of B is relative to 1 GPU, 2598 samples/s",
            "speedup of C is relative to 4 GPUs, 36927 samples/s",
            "weak scaling: the batch of each device is the same at all sizes",
            "left out as warm-up: unknown",
            "throughput as given in the file, not measured: 4 runs",
        ],
    }
    # 62,450 / 36,927 / 2
    assert report.curves[2].rows[1].point.efficiency.value == pytest.approx(0.8456, abs=1e-4)


def test_warns_without_attributes(report_of: ReportOf) -> None:
    figures = reports.read_csv("gpus,throughput\n1,2598\n4,36927\n8,62450\n", "f.csv")
    report = reports.build_report("bare", figures.measurements)
    assert report.warnings[:2] == (
        "efficiency 3.55 at 4 GPUs: the runs at 1 are not a valid baseline "
        "(something else slowed them down)",
        "efficiency 3.00 at 8 GPUs: the runs at 1 are not a valid baseline "
        "(something else slowed them down)",
    )


def test_rewritten_guide() -> None:
    figures = reports.read_csv("gpus,throughput\n1,7367\n4,24332.9\n8,37294\n", "f.csv")
    _, four, eight = (
        row.point for row in reports.build_report("", figures.measurements).curves[0].rows
    )
    assert four.efficiency.value == pytest.approx(0.826, abs=5e-4)
    assert eight.efficiency.value == pytest.approx(0.633, abs=5e-4)
    assert four.serial_fraction is not None and eight.serial_fraction is not None
    assert four.serial_fraction.value == pytest.approx(0.070, abs=5e-4)
    assert eight.serial_fraction.value == pytest.approx(0.083, abs=5e-4)


def cells_of(report: reports.Report, *names: str) -> list[list[str]]:
    return [[*row.values()] for row in tables.texts(report, names)]


def test_table_of_the_har_guide(report_of: ReportOf) -> None:
    report = report_of("s1_published")
    assert cells_of(report, "configuration", "throughput", "total_time", "speedup", "memory") == [
        ["1 GPU", "150.0", "0:45:00", "1.000", "5.00 GiB"],
        ["2 GPUs, mode=ddp", "300.0", "0:22:00", "2.000", "5.00 GiB"],
        ["4 GPUs, mode=ddp", "600.0", "660.0 s", "4.000", "5.00 GiB"],
        ["8 GPUs, mode=ddp", "1100", "360.0 s", "7.333", "5.00 GiB"],
        ["2 GPUs, mode=dp", "250.0", "0:27:00", "1.667", "8.00, 5.00 GiB"],
        ["4 GPUs, mode=dp", "450.0", "900.0 s", "3.000", "11.00, 5.00, 5.00, 5.00 GiB"],
    ]
    assert sections_of(report)["Warnings"] == [
        "mode differs, so there are several curves: dp at 2, 4 GPUs; ddp at 2, 4, 8 GPUs",
        "no size was repeated: confidence intervals, if any, cover only the windows of one run",
    ]


def test_table_of_the_sca_guide() -> None:
    text = "configuration,gpus,mode,throughput,total_time\nsingle,1,-,9000,93\ntwo,2,dp,14000,60\n"
    report = reports.build_report("sca", reports.read_csv(text, "f.csv").measurements)
    assert cells_of(report, "configuration", "throughput", "total_time") == [
        ["1 GPU", "9000", "93.00 s"],
        ["2 GPUs", "14000", "60.00 s"],
    ]


def test_table_of_lesson_05(report_of: ReportOf) -> None:
    report = report_of("strong_noisy_node")
    assert cells_of(report, "size", "epoch_time", "speedup", "efficiency", "utilisation")[3] == [
        "8",
        "7.700 s",
        "6.516",
        "81.5 % (79.7 to 83.3 %)",
        "85.0 %",
    ]
