"""Grouping of measurements into curves."""

from __future__ import annotations

from orchestrator import reports
from orchestrator.reports import curves


def measurement(size: int, **attributes: str) -> reports.Measurement:
    return reports.Measurement(size=size, throughput=100.0 * size, attributes=attributes)


def sizes(grouping: curves.Grouping) -> dict[str, list[int]]:
    return {
        " ".join(attributes.values()): [run.size for run in runs]
        for attributes, runs in grouping.groups
    }


def test_attributes_of_the_size_make_no_curve() -> None:
    groups = curves.group(
        [measurement(1, nodes="1", seed="1"), measurement(8, nodes="2", seed="2", base_lr="0.1")]
    )
    assert sizes(groups) == {"": [1, 8]}


def test_baseline_without_a_mode_belongs_to_all_modes() -> None:
    groups = curves.group(
        [measurement(1, mode="single"), measurement(2, mode="dp"), measurement(2, mode="ddp")]
    )
    assert sizes(groups) == {"dp": [1, 2], "ddp": [1, 2]}
    assert groups.unstated == {}


def test_unstated_attributes_match_and_are_reported() -> None:
    groups = curves.group([measurement(1), measurement(2, torch="2.13")])
    assert sizes(groups) == {"": [1, 2]}
    assert (groups.common, groups.unstated) == ({"torch": "2.13"}, {"torch": (1,)})
    # It fits neither of two values better: it joins both.
    groups = curves.group(
        [measurement(1), measurement(2, torch="2.13"), measurement(4, torch="2.15")]
    )
    assert sizes(groups) == {"2.13": [1, 2], "2.15": [1, 4]}


def test_kind_of_scaling_follows_from_the_batch() -> None:
    strong = [measurement(gpus, batch_size="1024") for gpus in (1, 2, 4)]
    assert curves.group(strong).scaling == "strong"
    # The same, given per device.
    strong = [measurement(gpus, per_device_batch_size=str(1024 // gpus)) for gpus in (1, 2, 4)]
    groups = curves.group(strong)
    assert (groups.scaling, groups.common) == ("strong", {"batch_size": "1024"})
    weak = [measurement(gpus, batch_size=str(256 * gpus)) for gpus in (1, 2, 4)]
    groups = curves.group(weak)
    assert (groups.scaling, groups.common) == ("weak", {"per_device_batch_size": "256"})
    # Accumulation makes up for fewer GPUs.
    passes = [
        measurement(1, per_device_batch_size="64", gradient_accumulation_steps="4"),
        measurement(4, per_device_batch_size="64", gradient_accumulation_steps="1"),
    ]
    groups = curves.group(passes, scaling="strong")
    assert groups.common == {"batch_size": "256"}
    assert list(groups.differences) == ["gradient_accumulation_steps"]


def test_two_studies_in_one_file() -> None:
    both = [measurement(gpus, batch_size=str(batch)) for batch in (512, 1024) for gpus in (1, 2)]
    groups = curves.group(both)
    assert sizes(groups) == {"512": [1, 2], "1024": [1, 2]}
    assert groups.differences == {"batch_size": {"512": (1, 2), "1024": (1, 2)}}


def test_attributes_without_effect_on_speed() -> None:
    both = [
        measurement(gpus, base_lr=rate, seed=str(gpus))
        for rate in ("0.1", "0.2")
        for gpus in (1, 2)
    ]
    groups = curves.group(both)
    assert (sizes(groups), groups.mixed) == (
        {"": [1, 2, 1, 2]},
        {"base_lr": ["0.1", "0.2"], "seed": ["1", "2"]},
    )
    assert reports.build_report("", both).warnings == (
        "base_lr differs (0.1, 0.2) but makes no separate curves, because it does not change the "
        "speed; accuracy and total time combine all values",
    )
    assert sizes(curves.group(both, apart=["base_lr"])) == {"0.1": [1, 2], "0.2": [1, 2]}
