"""Each preset is valid, and the examples match the presets of their sources."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the trainer needs PyTorch")

from trainers import arguments

pytestmark = pytest.mark.trainer


def _parse(words: list[str]) -> dict[str, Any]:
    parsed = vars(arguments.parse_arguments(words))
    return {name: value for name, value in parsed.items() if name != "preset"}


@pytest.mark.parametrize("name", sorted(arguments.PRESETS))
def test_a_preset_is_understood_and_can_be_overruled(name: str) -> None:
    parsed = arguments.parse_arguments(["--preset", name])
    assert parsed.preset == name
    assert arguments.parse_arguments([f"--preset={name}", "--epochs=3"]).epochs == 3
    assert arguments.parse_arguments(["--epochs=3", f"--preset={name}"]).epochs == 3


def test_an_unknown_preset_is_refused_by_the_parser(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arguments.parse_arguments(["--preset", "oliwia"])
    assert "argument --preset: invalid choice: 'oliwia'" in capsys.readouterr().err


def _words(args: dict[str, Any]) -> list[str]:
    """Return the options that orchestrator renders from a spec's [args]."""
    words = []
    for key, value in args.items():
        if value is not False:
            option = f"--{key.replace('_', '-')}"
            words += [option] if value is True else [option, str(value)]
    return words


@pytest.mark.parametrize(
    ("example", "preset", "besides"),
    [
        ("sca_dataparallel", "sca-dataparallel", []),
        ("har", "har-4gpu", ["--mode=ddp"]),
        ("olivia", "olivia", []),
        ("olivia_two_nodes", "olivia-two-nodes", []),
        ("lesson05", "lesson05", []),
    ],
)
def test_an_example_is_its_preset_written_out(
    checkout: Path, example: str, preset: str, besides: list[str]
) -> None:
    spec = tomllib.loads((checkout / "examples" / f"{example}.toml").read_text())
    assert _parse(_words(spec["args"])) == _parse([f"--preset={preset}", *besides])


def test_the_arguments_of_each_example_are_understood(checkout: Path) -> None:
    specs = [tomllib.loads(path.read_text()) for path in checkout.glob("examples/*.toml")]
    trainings = [spec for spec in specs if spec.get("launch", {}).get("module") == "trainers.train"]
    assert len(trainings) >= 10
    for spec in trainings:
        _parse(_words(spec.get("args", {})))


@pytest.mark.parametrize(
    ("line", "preset", "besides"),
    [
        # The guide gives no warm-up for one GPU; the example keeps that of four GPUs.
        ("1 GPU:", "har-single", ["--mode=ddp", "--warmup-epochs=3"]),
        ("2 GPUs:", "har-2gpu", ["--mode=ddp"]),
        ("8 GPUs:", "har-8gpu", ["--mode=ddp"]),
        ("quick:", "har-quick", ["--mode=ddp"]),
        ("production:", "har-production", ["--mode=ddp"]),
    ],
)
def test_each_line_in_the_head_of_the_har_example_is_its_preset(
    checkout: Path, line: str, preset: str, besides: list[str]
) -> None:
    text = (checkout / "examples" / "har.toml").read_text()
    arguments_of = dict(tomllib.loads(text)["args"])
    (options,) = re.findall(rf"^# +{line} +(--set .*)$", text, re.MULTILINE)
    for key, value in re.findall(r"args\.(\w+)=(\S+)", options):
        arguments_of[key] = value
    assert _parse(_words(arguments_of)) == _parse([f"--preset={preset}", *besides])
