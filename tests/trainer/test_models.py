"""Numbers of parameters of the models, computed independently."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs PyTorch")

from trainers import errors, models  # noqa: E402

pytestmark = pytest.mark.trainer

IMAGE = torch.Size((3, 32, 32))
MNIST = torch.Size((1, 28, 28))
HAR = torch.Size((9, 128))


def _num_parameters(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _count(name: str, shape: torch.Size, num_classes: int) -> int:
    return _num_parameters(models.build(name, shape, num_classes))


def _wrn_count(depth: int, k: int, num_classes: int) -> int:
    """Count a wide residual network's parameters from its published plan."""
    total = 3 * 16 * 9
    num_in = 16
    for width in (16 * k, 32 * k, 64 * k):
        for number in range((depth - 4) // 6):
            source = num_in if number == 0 else width
            total += 2 * source + 9 * source * width + 2 * width + 9 * width * width
            total += source * width if number == 0 else 0
        num_in = width
    return total + 2 * num_in + num_in * num_classes + num_classes


def test_olivia_has_exactly_the_published_parameters() -> None:
    assert _count("olivia-wrn", IMAGE, 100) == 17_175_444
    model = models.build("olivia-wrn", IMAGE, 100)
    state = model.state_dict()
    assert sum(name.endswith("shortcut.bias") for name in state) == 3


def test_olivia_ignores_the_last_rows_and_the_standard_family_does_not() -> None:
    torch.manual_seed(0)
    images = torch.randn(1, 3, 32, 32, requires_grad=True)
    seen = {}
    for name in ("olivia-wrn", "wrn-16-4"):
        model = models.build(name, IMAGE, 10).eval()
        last = [module for module in model if not isinstance(module, torch.nn.Linear)]
        features = torch.nn.Sequential(*last[:-2])(images)
        features.retain_grad()
        model[-1](torch.nn.Sequential(*last[-2:])(features)).sum().backward()
        seen[name] = (features.grad[0, :, -1, -1] != 0).any().item()
    assert seen == {"olivia-wrn": False, "wrn-16-4": True}


@pytest.mark.parametrize(
    ("depth", "widen_factor", "millions"), [(16, 8, 11.0), (40, 4, 8.9), (28, 10, 36.5)]
)
def test_wide_resnets_have_the_published_parameters(
    depth: int, widen_factor: int, millions: float
) -> None:
    # The sizes that the paper's table states for CIFAR-10.
    count = _count(f"wrn-{depth}-{widen_factor}", IMAGE, 10)
    assert count == _wrn_count(depth, widen_factor, 10)
    assert round(count / 1e6, 1) == millions


def test_sca_cnn_is_the_published_one() -> None:
    assert _count("sca-cnn", MNIST, 10) == (
        (9 + 1) * 32 + (32 * 9 + 1) * 64 + (9216 + 1) * 128 + (128 + 1) * 10
    )


def test_lesson_mlp_is_20_64_10() -> None:
    assert _count("lesson-mlp", torch.Size((20,)), 10) == 21 * 64 + 65 * 10


def test_har_modes_use_different_channels() -> None:
    encoder = (7 + 1) * 32 + (32 * 5 + 1) * 64
    one = encoder + (256 + 1) * 512 + 513 * 6
    assert _count("har-average", HAR, 6) == _count("har-first", HAR, 6) == one
    assert _count("har-flatten", HAR, 6) == encoder + (9 * 256 + 1) * 512 + 513 * 6
    signals = torch.randn(4, 9, 128)
    other = signals.clone()
    other[:, 1:] = other[:, 1:].flip(1)
    same = {}
    for mode in ("flatten", "average", "first"):
        model = models.build(f"har-{mode}", HAR, 6).eval()
        same[mode] = torch.allclose(model(signals), model(other), atol=1e-5)
    # The mean does not depend on the order of channels, and `first` ignores the others.
    assert same == {"flatten": False, "average": True, "first": True}


@pytest.mark.parametrize("name", sorted(models.MODELS))
def test_every_model_gives_logits_and_gradients_for_all_its_parameters(name: str) -> None:
    shape = HAR if name == "cnn1d" or name.startswith("har-") else IMAGE
    if name.startswith("wrn-"):
        shape = torch.Size((3, 8, 8))  # a sixteenth of the operations
    model = models.build(name, shape, 7)
    logits = model(torch.randn(2, *shape))
    assert logits.shape == (2, 7)
    assert _operations(logits).isdisjoint(NONDETERMINISTIC)
    logits.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


# Backward passes that raise on GPUs with torch.use_deterministic_algorithms(True); its
# documentation lists the modules.
NONDETERMINISTIC = {
    "AdaptiveAvgPool2DBackward0",
    "AdaptiveAvgPool3DBackward0",
    "AdaptiveMaxPool2DBackward0",
    "AvgPool3DBackward0",
    "FractionalMaxPool2DBackward0",
    "MaxUnpool2DBackward0",
    "ReflectionPad1DBackward0",
    "ReflectionPad2DBackward0",
    "UpsampleBilinear2DBackward0",
}


def _operations(output: torch.Tensor) -> set[str]:
    """Return the names of the backward functions of a result."""
    pending, seen = [output.grad_fn], set()
    while pending:
        function = pending.pop()
        if function is not None and function not in seen:
            seen.add(function)
            pending += [previous for previous, _ in function.next_functions]
    return {type(function).__name__ for function in seen}


def test_a_model_of_torchvision_is_built_by_name() -> None:
    pytest.importorskip("torchvision", reason="its models")
    shape = torch.Size((3, 64, 64))
    model = models.build("torchvision:resnet18", shape, 7)
    # The published count for 1,000 classes, with another last layer.
    assert _num_parameters(model) == 11_689_512 - 513 * 1000 + 513 * 7
    assert model.training
    assert model(torch.randn(2, *shape)).shape == (2, 7)
    # Nothing has run in training mode before.
    assert models.build("torchvision:resnet18", shape, 7).bn1.num_batches_tracked == 0


@pytest.mark.parametrize(
    ("name", "size"), [("googlenet", 64), ("vit_b_16", 32), ("squeezenet1_1", 32)]
)
def test_models_of_torchvision_give_logits_for_other_sizes(name: str, size: int) -> None:
    pytest.importorskip("torchvision", reason="its models")
    model = models.build(f"torchvision:{name}", torch.Size((3, size, size)), 7)
    assert model(torch.randn(2, 3, size, size)).shape == (2, 7)


@pytest.mark.parametrize(
    ("name", "shape", "why"),
    [
        ("wrn-28-10", HAR, "not enough values to unpack (expected 3, got 2)"),
        ("har-first", IMAGE, "too many values to unpack (expected 2)"),
        ("cnn1d", IMAGE, "too many values to unpack (expected 2)"),
        ("olivia-wrn", torch.Size((3, 64, 64)), ""),
        ("torchvision:resnet18", MNIST, ""),
        ("torchvision:vit_b_16", torch.Size((3, 30, 30)), ""),
        ("torchvision:resnet18", HAR, ""),
    ],
)
def test_samples_of_the_wrong_shape_are_an_error(name: str, shape: torch.Size, why: str) -> None:
    pytest.importorskip("torchvision", reason="its models")
    with pytest.raises(errors.UsageError) as caught:
        models.build(name, shape, 10)
    size = " x ".join(map(str, shape))
    message = f"--model {name} does not accept samples of the shape {size} ({why}"
    assert str(caught.value).startswith(message)
    assert str(caught.value).endswith("): use another model, another data set or --image-size.")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wrn-16-9", "unknown name in --model wrn-16-9: did you mean wrn-16-8?"),
        (
            "torchvision:resnet17",
            "unknown name in --model torchvision:resnet17: did you mean resnet18?",
        ),
        # A model for segmentation.
        (
            "torchvision:fcn_resnet50",
            "unknown name in --model torchvision:fcn_resnet50: did you mean resnet50?",
        ),
    ],
)
def test_unknown_models_are_explained(name: str, message: str) -> None:
    pytest.importorskip("torchvision", reason="its models")
    with pytest.raises(errors.UsageError) as caught:
        models.build(name, IMAGE, 10)
    assert str(caught.value) == message


def test_digits_and_our_models_work_without_torchvision(
    launch: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    pytest.importorskip("sklearn", reason="the digits are scikit-learn's")
    program = (
        "import sys; sys.modules['torchvision'] = None\n"
        "from trainers import arguments, data, models\n"
        "for name in ('digits', 'synthetic'):\n"
        "    args = arguments.parse_arguments(['--dataset', name])\n"
        "    splits = data.load(args)\n"
        "    models.build('cnn', splits.sample_shape, splits.num_classes)\n"
    )
    completed = launch(["-c", program])
    assert (completed.returncode, completed.stderr) == (0, "")
