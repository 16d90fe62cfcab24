"""The sources' own figures, as their reports tell them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orchestrator import reports
from orchestrator.reports import documents, tables

ReportOf = Callable[..., reports.Report]


def said(report: reports.Report, **wishes: float) -> dict[str, list[str]]:
    return dict(documents.sentences(report, reports.Targets(**wishes)))


def test_the_14x_of_olivia_is_no_speedup(report_of: ReportOf) -> None:
    report = report_of("s2_published")
    assert said(report) == {
        "Curves": [
            "A: num_workers=0, optimizer=sgd, per_device_batch_size=256, precision=fp32",
            "B: num_workers=0, optimizer=sgd, per_device_batch_size=32, precision=fp32",
            "C: num_workers=8, optimizer=sgd momentum, per_device_batch_size=256, precision=fp16",
        ],
        "Warnings": [
            "num_workers differs, so these are not one curve: 0 at 1 GPU; 8 at 4, 8 GPUs",
            "optimizer differs, so these are not one curve: sgd at 1 GPU; "
            "sgd momentum at 4, 8 GPUs",
            "per_device_batch_size differs, so these are not one curve: 32 at 1 GPU; "
            "256 at 1, 4, 8 GPUs",
            "precision differs, so these are not one curve: fp32 at 1 GPU; fp16 at 4, 8 GPUs",
            "4 GPUs of C are 7.20 times as fast as 1 GPU of A, an efficiency of 180.1 %: that is "
            "no speedup, for they differ in more than their size: num_workers (8, not 0), "
            "optimizer (sgd momentum, not sgd), precision (fp16, not fp32)",
            "4 GPUs of C are 14.21 times as fast as 1 GPU of B, an efficiency of 355.3 %: that is "
            "no speedup, for they differ in more than their size: num_workers (8, not 0), "
            "optimizer (sgd momentum, not sgd), per_device_batch_size (256, not 32), "
            "precision (fp16, not fp32)",
            "no size was repeated: intervals, where there are any, are of one run's windows",
        ],
        "Fits of C": [
            "Amdahl's law: 1 GPU 10696 a second; serial share 0.05289; as many parameters as "
            "runs: no intervals",
            "Karp and Flatt's serial share: 0.05289 at 8",
            "Efficiency stays above 80.0 % up to 9 GPUs, by Amdahl's law: beyond the 8 measured",
        ],
        "Fastest": ["1 GPU: A is fastest; of that B has 50.7 %"],
        "How": [
            "4 runs, 4 points of 1 repeat each, 0 windows; intervals hold the truth in 95 of 100 "
            "studies",
            "speedup of A is against 1 GPU, 5126 samples a second",
            "speedup of B is against 1 GPU, 2598 samples a second",
            "speedup of C is against 4 GPUs, 36927 samples a second",
            "weak scaling: the batch of each device is the same at all sizes",
            "left out as warm-up: not known",
            "throughput as given in the file, not measured: 4 runs",
        ],
    }
    # 62,450 / 36,927 / 2
    assert report.curves[2].rows[1].point.efficiency.value == pytest.approx(0.8456, abs=1e-4)


def test_figures_without_attributes_are_flagged_all_the_same(report_of: ReportOf) -> None:
    figures = reports.read_csv("gpus,throughput\n1,2598\n4,36927\n8,62450\n", "f.csv")
    report = reports.build_report("bare", figures.measurements)
    assert report.warnings[:2] == (
        "efficiency 3.55 at 4 GPUs: the baseline of 1 does not compare "
        "(something else slowed it down)",
        "efficiency 3.00 at 8 GPUs: the baseline of 1 does not compare "
        "(something else slowed it down)",
    )


def test_the_rewritten_guide_scales_as_computed() -> None:
    figures = reports.read_csv("gpus,throughput\n1,7367\n4,24332.9\n8,37294\n", "f.csv")
    _, four, eight = (
        row.point for row in reports.build_report("", figures.measurements).curves[0].rows
    )
    assert four.efficiency.value == pytest.approx(0.826, abs=5e-4)
    assert eight.efficiency.value == pytest.approx(0.633, abs=5e-4)
    assert four.serial_share is not None and eight.serial_share is not None
    assert four.serial_share.value == pytest.approx(0.070, abs=5e-4)
    assert eight.serial_share.value == pytest.approx(0.083, abs=5e-4)


def filled(report: reports.Report, *names: str) -> list[list[str]]:
    return [[*row.values()] for row in tables.texts(report, tables.chosen(report, names))]


def test_the_table_of_the_har_guide(report_of: ReportOf) -> None:
    report = report_of("s1_published")
    assert filled(report, "configuration", "throughput", "total_time", "speedup", "memory") == [
        ["1 GPU", "150.0", "0:45:00", "1.000", "5.00 GiB"],
        ["2 GPUs, mode=ddp", "300.0", "0:22:00", "2.000", "5.00 GiB"],
        ["4 GPUs, mode=ddp", "600.0", "660.0 s", "4.000", "5.00 GiB"],
        ["8 GPUs, mode=ddp", "1100", "360.0 s", "7.333", "5.00 GiB"],
        ["2 GPUs, mode=dp", "250.0", "0:27:00", "1.667", "8.00, 5.00 GiB"],
        ["4 GPUs, mode=dp", "450.0", "900.0 s", "3.000", "11.00, 5.00, 5.00, 5.00 GiB"],
    ]
    assert said(report)["Warnings"] == [
        "mode differs, so these are not one curve: dp at 2, 4 GPUs; ddp at 2, 4, 8 GPUs",
        "no size was repeated: intervals, where there are any, are of one run's windows",
    ]


def test_the_table_of_the_sca_guide() -> None:
    text = "configuration,gpus,mode,throughput,total_time\nsingle,1,-,9000,93\ntwo,2,dp,14000,60\n"
    report = reports.build_report("sca", reports.read_csv(text, "f.csv").measurements)
    assert filled(report, "configuration", "throughput", "total_time") == [
        ["1 GPU", "9000", "93.00 s"],
        ["2 GPUs", "14000", "60.00 s"],
    ]


def test_the_table_of_lesson_05(report_of: ReportOf) -> None:
    report = report_of("strong_noisy_node")
    assert filled(report, "size", "epoch_time", "speedup", "efficiency", "utilisation")[3] == [
        "8",
        "7.700 s",
        "6.516",
        "81.5 % (79.7 to 83.3 %)",
        "85.0 %",
    ]
