"""Which number of a run is compared: names, statistics, attempts, the best of another metric."""

from __future__ import annotations

import pytest

from orchestrator import metrics
from orchestrator.metrics import choices, summaries
from orchestrator.patterns import aliases

NAMES = ("learning_rate", "loss", "throughput", "val_accuracy", "val_loss")


@pytest.mark.parametrize(
    ("direction", "names"),
    [
        (
            -1,
            "loss val_loss valLoss train/loss perplexity val_ppl top1_err error_rate wer "
            "epoch_time step_time seconds_per_image time_per_step ms_per_step accuracy_loss "
            "fid_score nll",
        ),
        (
            1,
            "accuracy val_accuracy acc1 top-1 top_5 top1 throughput images_per_second "
            "samples_per_sec tokens_per_seconds bleu mAP mAP50-95 val/map_50 f1 auroc mfu reward",
        ),
        (0, "learning_rate lr epoch step grad_norm memory loops timeout"),
    ],
)
def test_direction_follows_from_the_name(direction: int, names: str) -> None:
    assert {name: summaries.direction(name) for name in names.split()} == dict.fromkeys(
        names.split(), direction
    )


def test_order_of_curves() -> None:
    names = ("checkpoint_time", "epoch_loss", "loss", "throughput", "top1_acc", "val_accuracy")
    assert sorted(names, key=choices.sort_key) == [
        *("val_accuracy", "loss", "throughput", "epoch_loss", "top1_acc", "checkpoint_time")
    ]


def resolve(*texts: str, direction: int = 0) -> list[choices.Choice]:
    return choices.resolve(texts, NAMES, direction, alias=aliases.normalized)


def test_choices() -> None:
    last, at, pattern, *rest = resolve("val_acc", "train_loss@val_acc", "*loss:best", "throughput")
    assert last == choices.Choice(
        label="val_accuracy", name="val_accuracy", statistic="last", direction=1
    )
    assert at == choices.Choice(
        label="loss@val_accuracy",
        name="loss",
        statistic="",
        direction=-1,
        at="val_accuracy",
        at_direction=1,
    )
    assert (pattern.label, pattern.name, pattern.statistic) == ("loss:best", "loss", "min")
    assert [(each.label, each.statistic) for each in rest] == [
        ("val_loss:best", "min"),
        ("throughput", "median"),
    ]
    assert [each.label for each in resolve("loss", "loss")] == ["loss"]
    # What is stated about the first metric also holds where it is another one's reference.
    rate, at = resolve("learning_rate:best", "loss@learning_rate", direction=-1)
    assert (rate.direction, rate.statistic, at.at_direction) == (-1, "min", -1)
    (at,) = resolve("loss@learning_rate:max")
    assert at.at_direction == 1
    # Nothing is known about runs that have not reported anything.
    assert choices.resolve(["x@loss"], [])[0].names == ("x", "loss")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "name a metric, such as val_accuracy"),
        (
            "val_acuracy",
            "no run has a metric 'val_acuracy': did you mean val_accuracy? Names: learning_rate, "
            "loss, throughput, val_accuracy, val_loss",
        ),
        (
            "x",
            "no run has a metric 'x': Names: learning_rate, loss, throughput, val_accuracy, "
            "val_loss",
        ),
        (
            "learning_rate:best",
            "learning_rate:best: it is not known which learning_rate is best: write "
            "learning_rate:min or learning_rate:max",
        ),
        (
            "loss@learning_rate",
            "'loss@learning_rate': it is not known which learning_rate is best: write "
            "@learning_rate:min or @learning_rate:max",
        ),
        ("loss:last@val_loss", "'loss:last@val_loss': loss@val_loss is one value: remove :last"),
        (
            "loss@val_loss:best",
            "'loss@val_loss:best': after @val_loss write :min or :max, or nothing",
        ),
        ("loss@val_*", "'loss@val_*': val_* stands for val_accuracy, val_loss; name one of them"),
        (
            "loss:medain",
            "loss:medain: unknown statistic 'medain': use count, nan, first, last, mean, std, min, "
            "median, max, best, all, or percentiles such as p5 and p95",
        ),
        ("loss:min,max", "loss:min,max: name one statistic"),
    ],
)
def test_invalid_choices(text: str, message: str) -> None:
    with pytest.raises(choices.ChoiceError) as caught:
        resolve(text)
    assert str(caught.value) == message


def rows(
    name: str,
    values: list[float | None],
    *,
    epochs: list[int] | None = None,
    steps: list[int] | None = None,
    attempt: int = 0,
    job_row: int = 1,
    first_line: int = 1,
    unit: str = "",
) -> list[metrics.MetricRow]:
    """Return one row a value; the line numbers grow by ten."""
    return [
        metrics.MetricRow(
            id=1000 * job_row + 100 * attempt + first_line + 10 * index,
            job_row=job_row,
            name=name,
            value=value,
            unit=unit,
            step=None if steps is None else steps[index],
            epoch=None if epochs is None else epochs[index],
            rank=None,
            world_size=None,
            time=None,
            attempt=attempt,
            source="log:x",
            log_id=job_row,
            line=first_line + 10 * index,
        )
        for index, value in enumerate(values)
    ]


def measured(series: list[metrics.MetricRow], text: str) -> float | None:
    (choice,) = resolve(text)
    value = choices.measure(series, choice)
    return None if value is None else value.value


def test_statistics_of_a_run() -> None:
    series = rows("loss", [3.0, 1.0, None, 2.0], epochs=[1, 2, 3, 4])
    assert measured(series, "loss") == 2.0
    assert measured(series, "loss:best") == 1.0
    assert measured(series, "loss:mean") == 2.0
    assert measured(series, "loss:nan") == 1
    assert measured(series, "val_loss") is None
    (choice,) = resolve("loss:best")
    assert choices.measure(series, choice) == choices.Measured(value=1.0, unit="", epoch=2)
    diverged = measured(rows("loss", [1.0, None]), "loss")
    assert diverged is not None and diverged != diverged
    never_finite = measured(rows("loss", [None]), "loss:best")
    assert never_finite is not None and never_finite != never_finite


def test_value_at_the_best_of_another_metric() -> None:
    validated = rows("val_accuracy", [0.5, 0.9, 0.9, 0.8], epochs=[1, 2, 3, 4], first_line=9)
    # The training loss of each epoch is logged before and after the validation.
    trained = rows("loss", [5.0, 4.0, 3.0, 2.0], epochs=[1, 2, 3, 4])
    assert measured(trained + validated, "loss@val_accuracy") == 4.0
    late = rows("loss", [5.0, 4.0, 3.0, 2.0], epochs=[1, 2, 3, 4], first_line=10)
    assert measured(late + validated, "loss@val_accuracy") == 4.0
    # Steps: the last one that was reported by then.
    by_step = rows("loss", [5.0, 4.0, 3.0, 2.0], steps=[10, 20, 30, 40])
    of_step = rows("val_accuracy", [0.5, 0.9, 0.8], steps=[15, 35, 45], first_line=9)
    assert measured(by_step + of_step, "loss@val_accuracy") == 3.0
    # Steps that start over in each epoch.
    inner = rows("loss", [5.0, 4.0, 3.0, 2.0], epochs=[1, 1, 2, 2], steps=[0, 50, 0, 50])
    of_inner = rows("val_accuracy", [0.9, 0.5], epochs=[1, 2], steps=[60, 60], first_line=15)
    assert measured(inner + of_inner, "loss@val_accuracy") == 4.0
    # Neither: the order in the log, or the same line.
    plain = rows("loss", [5.0, 4.0, 3.0])
    assert measured(plain + rows("val_accuracy", [0.9, 0.5], first_line=9), "loss@val_acc") == 5.0
    assert measured(plain + rows("val_accuracy", [0.5, 0.9, 0.8]), "loss@val_acc") == 4.0
    # Nothing was reported by then.
    assert measured(rows("loss", [1.0], epochs=[7]) + validated, "loss@val_accuracy") is None
    assert measured(trained, "loss@val_accuracy") is None


def test_later_attempt_replaces_what_it_repeats() -> None:
    first = rows("val_accuracy", [0.5, 0.7, 0.95], epochs=[1, 2, 3])
    # It continued from the checkpoint after epoch 1 ...
    resumed = rows("val_accuracy", [0.6, 0.8], epochs=[2, 3], attempt=1)
    assert measured(first + resumed, "val_accuracy:best") == 0.8
    assert measured(first + resumed, "val_accuracy:count") == 3
    # ... and a new job from epoch 3 on, which has not come as far as its predecessor.
    continued = rows("val_accuracy", [0.75], epochs=[3], job_row=2)
    assert measured(first + resumed + continued, "val_accuracy:best") == 0.75
    # One that started over.
    over = rows("val_accuracy", [0.4], epochs=[1], attempt=1)
    assert measured(first + over, "val_accuracy:best") == 0.4
    # Without epochs and steps, nothing tells what was repeated.
    unknown = rows("val_accuracy", [0.9]) + rows("val_accuracy", [0.5], attempt=1)
    assert measured(unknown, "val_accuracy:best") == 0.9
    # Batches within the epoch: what came before in the same numbering stays.
    inner = rows("loss", [5.0, 4.0, 3.0], epochs=[1, 2, 3], steps=[90, 90, 40])
    again = rows("loss", [3.5], epochs=[3], steps=[10], attempt=1)
    assert measured(inner + again, "loss:count") == 3


def test_metric_with_two_units_has_the_usual_one() -> None:
    images = rows("throughput", [100.0, 110.0, 120.0], unit="images/s")
    flops = rows("throughput", [50.0], unit="TFLOP/s", first_line=99)
    (choice,) = resolve("throughput")
    assert choices.measure(images + flops, choice) == choices.Measured(value=110.0, unit="images/s")
