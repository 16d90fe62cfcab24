"""The shipped patterns on lines in the formats of programs, and on real logs."""

import json
import math
import os
import pathlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator import jobs, patterns
from orchestrator.logs import lines
from orchestrator.patterns import prefixes

#: Our name for what the list of expected values calls by another one.
NAMES = {
    "loss": {"loss", "val_loss"},
    "accuracy": {"accuracy", "val_accuracy"},
    "throughput": {"throughput"},
    "lr": {"learning_rate"},
}

SHIPPED = patterns.load_shipped()

OLIVIA = """\
Training started with 4 processes across 2 nodes.
Using 2 GPUs per node.
Epoch 1/2 completed in 3.142 seconds
Validation Loss: 1.2345, Validation Accuracy: 0.5432
Epoch Throughput: 457.352 images/second
Epoch 2/2 completed in 2.718 seconds
Validation Loss: nan, Validation Accuracy: 0.1000
Epoch Throughput: 528.697 images/second
Target accuracy reached. Early stopping after epoch 2.

Training Summary:
Total training time: 5.860 seconds
Throughput: 490.443 images/second
Number of nodes: 2
Number of GPUs per node: 2
Total GPUs used: 4
Total processes: 4
Training completed successfully.
"""
OLIVIA_ONE_GPU = """\
Epoch 7/9: Time=9.500s, Loss=1.2500, Accuracy=0.6125, Throughput=5263.2 img/s
Training complete. Final Accuracy: 0.6125
Total Time: 85.5s, Throughput: 5263.2 img/s
Epoch =  7: Epoch Time = 19.500, Validation Loss = 1.250, Validation Accuracy = 0.612, \
Images/sec = 2564.103, Cumulative Time = 136.500
Total Training Time: 175.500 seconds
Throughput: 2564.103 images/second
"""
LESSON05 = """\
Using 2 GPUs
Running on rank 1
Epoch 0 [0/157] Loss: 2.3456
Epoch 0 [10/157] Loss: inf
GPU 0: 1.25GB allocated, 2.50GB reserved
GPU 1:
  Utilization: 97%
  Memory: 11.5/40.0 GB
  Utilization: 98%
Epoch 0 completed, Average Loss: 2.1000

DataParallel: 12.34s
Avg transfer time: 0.56ms
Average loss across all GPUs: 2.0500
Rank 1: 3
"""


def metrics(text: str, *names: str) -> list[jobs.Metric]:
    matcher = patterns.Matcher(patterns.select(SHIPPED, names))
    return [
        metric
        for number, line in enumerate(text.split("\n"), start=1)
        for metric in matcher.metrics_of_line(line, line=number)
    ]


def rows(result: list[jobs.Metric]) -> list[tuple[object, ...]]:
    return [
        (metric.line, metric.name, metric.value, metric.unit, metric.epoch, metric.step)
        for metric in result
    ]


def test_olivia():
    parsed = metrics(OLIVIA)
    nan = parsed.pop(10)
    assert (nan.line, nan.name, nan.epoch, math.isnan(nan.value)) == (7, "val_loss", 2, True)
    assert rows(parsed) == [
        (1, "processes", 4, "", None, None),
        (1, "nodes", 2, "", None, None),
        (2, "gpus_per_node", 2, "", None, None),
        (3, "epoch", 1, "", 1, None),
        (3, "epoch_time", 3.142, "seconds", 1, None),
        (4, "val_loss", 1.2345, "", 1, None),
        (4, "val_accuracy", 0.5432, "", 1, None),
        (5, "throughput", 457.352, "images/second", 1, None),
        (6, "epoch", 2, "", 2, None),
        (6, "epoch_time", 2.718, "seconds", 2, None),
        (7, "val_accuracy", 0.1, "", 2, None),
        (8, "throughput", 528.697, "images/second", 2, None),
        (12, "total_time", 5.86, "seconds", None, None),
        (13, "throughput", 490.443, "images/second", None, None),
        (14, "nodes", 2, "", None, None),
        (15, "gpus_per_node", 2, "", None, None),
        (16, "gpus", 4, "", None, None),
        (17, "processes", 4, "", None, None),
    ]
    assert {metric.world_size for metric in parsed[3:13]} == {4}
    assert {metric.source for metric in parsed[:-1]} == {"log:olivia"}
    assert parsed[-1].source == "log:trainer"


@pytest.mark.parametrize("unit", ["samples/second", "tokens/second"])
def test_olivia_without_images(unit: str):
    images, others = metrics(OLIVIA), metrics(OLIVIA.replace("images/second", unit))
    assert [metric.line for metric in others] == [metric.line for metric in images]
    assert {metric.unit for metric in others if metric.name == "throughput"} == {unit}
    assert {metric.epoch for metric in others if metric.name == "throughput"} == {1, 2, None}


def test_olivia_without_accuracy():
    text = "Epoch 1/2 completed in 3.142 seconds\nValidation Loss: 1.2345\n"
    assert rows(metrics(text, "olivia"))[2:] == [(2, "val_loss", 1.2345, "", 1, None)]
    assert len(metrics(text.replace("45\n", "4\n"), "olivia")) == 2  # cut


TRAINER = """\
Using 2 GPUs.
  model:          cnn (38,282 parameters)
  data:           digits: 1,438 images for training, 359 images for evaluation
  data path:      loader, 4 worker(s) per rank
  batch:          64 images in 23 steps an epoch, 32 on each device in 1 pass(es) a step
  optimizer:      sgd, learning rate 0.05 cosine, 23 warm-up steps
  precision:      bf16, compile default
  devices:        2 x NVIDIA H100 80GB HBM3 (CUDA_VISIBLE_DEVICES=0,1)
Resumed after step 7, in epoch 1.
Epoch 1/3, step 12/23, train loss: 0.5000, 1234.5 images/second
Epoch 1/3 completed in 3.142 seconds
Validation Loss: 0.2500
Epoch Throughput: 457.352 tokens/second
Stopped after step 23, because the stop file exists: checkpoint saved.
"""


def test_own_trainer():
    assert rows(metrics(TRAINER)) == [
        (10, "loss", 0.5, "", 1, 12),
        (10, "window_throughput", 1234.5, "images/second", 1, 12),
        (11, "epoch", 1, "", 1, None),
        (11, "epoch_time", 3.142, "seconds", 1, None),
        (12, "val_loss", 0.25, "", 1, None),
        (13, "throughput", 457.352, "tokens/second", 1, None),
    ]


def test_olivia_on_one_gpu():
    assert rows(metrics(OLIVIA_ONE_GPU, "olivia")) == [
        (1, "epoch", 7, "", 7, None),
        (1, "epoch_time", 9.5, "s", 7, None),
        (1, "loss", 1.25, "", 7, None),
        (1, "accuracy", 0.6125, "", 7, None),
        (1, "throughput", 5263.2, "img/s", 7, None),
        (3, "total_time", 85.5, "s", None, None),
        (3, "throughput", 5263.2, "img/s", None, None),
        (4, "epoch", 7, "", 7, None),
        (4, "epoch_time", 19.5, "seconds", 7, None),
        (4, "val_loss", 1.25, "", 7, None),
        (4, "val_accuracy", 0.612, "", 7, None),
        (4, "throughput", 2564.103, "images/second", 7, None),
        (5, "total_time", 175.5, "seconds", None, None),
        (6, "throughput", 2564.103, "images/second", None, None),
    ]


def test_lesson05():
    parsed = metrics(LESSON05)
    infinite = parsed.pop(5)
    assert (infinite.line, infinite.name, infinite.step) == (4, "loss", 10)
    assert math.isnan(infinite.value)
    assert rows(parsed) == [
        (3, "epoch", 0, "", 0, 0),
        (3, "step", 0, "", 0, 0),
        (3, "loss", 2.3456, "", 0, 0),
        (4, "epoch", 0, "", 0, 10),
        (4, "step", 10, "", 0, 10),
        (5, "memory", 1.25, "GB", None, None),
        (5, "memory_reserved", 2.5, "GB", None, None),
        (7, "gpu_utilization", 97, "%", None, None),
        (8, "memory", 11.5, "GB", None, None),
        (8, "memory_total", 40, "GB", None, None),
        (9, "gpu_utilization", 98, "%", None, None),
        (10, "epoch", 0, "", 0, None),
        (10, "loss", 2.1, "", 0, None),
        (12, "total_time", 12.34, "s", None, None),
        (13, "transfer_time", 0.56, "ms", None, None),
        (14, "loss", 2.05, "", None, None),
    ]
    # The second value after "GPU 1:" has lost its heading, so its GPU is unknown.
    ranks = {(metric.line, metric.rank) for metric in parsed if 5 <= (metric.line or 0) <= 9}
    assert ranks == {(5, 0), (7, 1), (8, 1), (9, None)}


@pytest.mark.parametrize(
    "line",
    [
        "Epoch 1 [0/157] Loss: 2.34",  # the rest went into another line
        "Validation Loss: 1.2345, Validation Accuracy: 0.54",
        "Validation Loss: 1.2345, Validation Accuracy: 0.54321",
        "36577.311 images/second",
        "Throughput: 36577.311 images/second",  # "Epoch " went into another line
        "Epoch Throughput: 365Epoch Throughput: 36577.311 images/second",
        "Epoch Throughput: 36577.311 images/secondEpoch 2/2 completed in 1.0 seconds",
        "Epoch Throughput: 36,577.311 images/second",
        "Epoch Throughput: 1e999 images/second",
        "Epoch Throughput: ٣٦ images/second",
        "Epoch Throughput:  images/second",
        "[rank3]: print('Epoch Throughput: 1.0 images/second')",
    ],
)
def test_a_torn_line_gives_nothing(line: str):
    # Generic patterns apply only to unknown programs, and cannot know how their lines end.
    assert metrics(line, *[pattern.name for pattern in SHIPPED if not pattern.generic]) == []


EPOCHS = "".join(
    f"Epoch {epoch}/12 completed in {1 + epoch / 8:.3f} seconds\n"
    f"Validation Loss: {3 / epoch:.4f}, Validation Accuracy: {epoch / 13:.4f}\n"
    f"Epoch Throughput: {36000 + 7 * epoch:.3f} images/second\n"
    f"Epoch {epoch} [{epoch * 10}/157] Loss: {2 / epoch:.4f}\n"
    for epoch in range(1, 13)
)


CUTS = st.tuples(
    st.integers(0, len(EPOCHS)),
    st.sampled_from(["\n", "NCCL INFO Channel\n", "UserWarning: lr_scheduler", "\n\n"]),
)


#: From here on generic patterns, which would read parts of lines, do not count.
START = "Training started with 4 processes across 2 nodes.\n"


def torn(cuts: list[tuple[int, str]]) -> str:
    text = EPOCHS
    for position, noise in sorted(cuts, reverse=True):
        text = text[:position] + noise + text[position:]
    return START + text


@settings(max_examples=40)
@given(st.lists(CUTS, max_size=12))
def test_other_ranks_writing_into_lines_give_no_wrong_number(cuts: list[tuple[int, str]]):
    true = {(metric.name, metric.value) for metric in metrics(START + EPOCHS)}
    assert {(metric.name, metric.value) for metric in metrics(torn(cuts))} <= true


@settings(max_examples=40)
@given(st.lists(CUTS, max_size=2))
def test_a_value_without_its_epoch_line_gets_no_other_epoch(cuts: list[tuple[int, str]]):
    true = {(metric.name, metric.value, metric.epoch) for metric in metrics(START + EPOCHS)}
    true |= {(name, value, None) for name, value, _ in true}
    parsed = metrics(torn(cuts))
    assert {(metric.name, metric.value, metric.epoch) for metric in parsed} <= true


RECORDED = pathlib.Path(__file__).parents[2] / "data/logs"


def written(path: pathlib.Path) -> list[str]:
    """Return the metrics of a recorded log, one row of text each.

    formats.log has lines of many programs: each line has a new matcher, unless it is indented.
    """
    rows = []
    matcher = patterns.Matcher(SHIPPED)
    for number, segment in lines.split(path.read_bytes(), flush=True).segments:
        text = lines.clean(segment)
        if path.name == "formats.log" and not text.startswith(("\t", "    ")):
            matcher = patterns.Matcher(SHIPPED)
        for metric in matcher.metrics_of_line(text, line=number):
            where = f"{metric.step if metric.step is not None else ''}\t" + (
                f"{metric.epoch if metric.epoch is not None else ''}"
            )
            message = f"{metric.name}\t{metric.value}\t{metric.unit}\t{where}\t{metric.source}"
            rows.append(f"{path.name}\t{metric.line}\t{message}")
    return rows


def test_recorded_logs():
    head = "file\tline\tname\tvalue\tunit\tstep\tepoch\tpattern"
    result = [head] + [row for path in sorted(RECORDED.glob("*.log")) for row in written(path)]
    expected = RECORDED / "expected.tsv"
    if os.environ.get("ORCHESTRATOR_TEST_GOLDEN_UPDATE"):
        expected.write_text("\n".join(result) + "\n")
    assert result == expected.read_text().splitlines()


def test_each_included_line_kind_matches_a_recorded_line():
    shown = (OLIVIA + OLIVIA_ONE_GPU + LESSON05).split("\n")
    for path in RECORDED.glob("*.log"):
        parts = lines.split(path.read_bytes(), flush=True).segments
        shown += [lines.clean(segment).rstrip(" \b") for _, segment in parts]
    for pattern in SHIPPED:
        assert pattern.description
        for kind in pattern.lines:
            parts = [text.split("{integer}")[0] for text in kind.texts]
            texts = [text for text in shown if any(part in text for part in parts)]
            fitting = [
                text
                for text in texts
                if kind.compiled.fullmatch(text)
                or kind.compiled.fullmatch(prefixes.split(text).rest)
            ]
            assert fitting, (pattern.name, kind.name)


@pytest.fixture
def real_logs() -> pathlib.Path:
    """Return the folder of real logs and of EXPECTED.jsonl, which lists their metrics."""
    data_folder = os.environ.get("ORCHESTRATOR_TEST_DATA")
    beside = pathlib.Path(__file__).parents[4].glob("*/data")
    for folder in [pathlib.Path(data_folder)] if data_folder else beside:
        if (folder / "logs/EXPECTED.jsonl").is_file():
            return folder / "logs"
    pytest.skip(
        "no real logs here: ORCHESTRATOR_TEST_DATA names no folder with logs/EXPECTED.jsonl"
    )


def found_in(path: pathlib.Path) -> list[jobs.Metric]:
    matcher = patterns.Matcher(SHIPPED)
    return [
        metric
        for number, segment in lines.split(path.read_bytes(), flush=True).segments
        for metric in matcher.metrics_of_line(lines.clean(segment), line=number)
    ]


def test_real_logs(real_logs: pathlib.Path):
    """Each expected value is parsed from its line, and no other value of the three main metrics."""
    entries = [json.loads(line) for line in (real_logs / "EXPECTED.jsonl").read_text().splitlines()]
    assert {entry["file"] for entry in entries} == {path.name for path in real_logs.glob("*.log")}
    for entry in entries:
        result = found_in(real_logs / entry["file"])
        triples = {(metric.line, metric.name, metric.value) for metric in result}
        expected = entry.get("expect", [])
        for value in expected:
            names = NAMES.get(value["name"], {value["name"]})
            where = {(value["line"], name, value["value"]) for name in names}
            assert where & triples, (entry["file"], value)
        known = {value["line"] for value in expected}
        # The list ends with the thirtieth line that has metrics.
        last = max(known, default=0) if entry.get("metric_lines") == 30 else math.inf
        for metric in result:
            if metric.name in ("throughput", "loss", "step") and (metric.line or 0) <= last:
                assert metric.line in known, (entry["file"], metric)
        # Each line belongs to one program; a progress bar appears beside the output of others.
        sources = {(metric.line, metric.source) for metric in result} - {
            (metric.line, "log:tqdm") for metric in result
        }
        assert len({line for line, _ in sources}) == len(sources), entry["file"]
