"""Numbers of parameters of the models, computed independently."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs PyTorch")

from trainers import errors, models  # noqa: E402

pytestmark = pytest.mark.trainer

IMAGE = torch.Size((3, 32, 32))
MNIST = torch.Size((1, 28, 28))
HAR = torch.Size((9, 128))


def _count(name: str, shape: torch.Size, num_classes: int) -> int:
    return models.num_parameters(models.MODELS[name](shape, num_classes))


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
    model = models.MODELS["olivia-wrn"](IMAGE, 100)
    state = model.state_dict()
    assert sum(name.endswith("shortcut.bias") for name in state) == 3


def test_olivia_ignores_the_last_rows_and_the_standard_family_does_not() -> None:
    torch.manual_seed(0)
    images = torch.randn(1, 3, 32, 32, requires_grad=True)
    seen = {}
    for name in ("olivia-wrn", "wrn-16-4"):
        model = models.MODELS[name](IMAGE, 10).eval()
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
        model = models.MODELS[f"har-{mode}"](HAR, 6).eval()
        same[mode] = torch.allclose(model(signals), model(other), atol=1e-5)
    # The mean does not depend on the order of channels, and `first` ignores the others.
    assert same == {"flatten": False, "average": True, "first": True}


def test_vit_computes_what_torchvision_computes() -> None:
    torchvision = pytest.importorskip("torchvision", reason="compared with torchvision's ViT")
    torch.manual_seed(0)
    ours = models.MODELS["vit"](IMAGE, 100).eval()
    theirs = torchvision.models.VisionTransformer(
        image_size=32, patch_size=4, num_layers=6, num_heads=3, hidden_dim=192, mlp_dim=768,
        num_classes=100,
    ).eval()  # fmt: skip
    assert models.num_parameters(ours) == models.num_parameters(theirs)
    names = {
        "conv_proj": "patches",
        "class_token": "class_word",
        "encoder.pos_embedding": "places",
        "encoder.layers.encoder_layer_": "layers.layers.",
        "encoder.ln": "layers.norm",
        "heads.head": "head",
        "ln_1": "norm1",
        "ln_2": "norm2",
        "self_attention": "self_attn",
        "mlp.0": "linear1",
        "mlp.3": "linear2",
    }
    ours_state = ours.state_dict()
    state = {}
    for name in theirs.state_dict():
        mapped = name
        for old, new in names.items():
            mapped = mapped.replace(old, new)
        state[name] = ours_state[mapped]
    theirs.load_state_dict(state)
    images = torch.randn(2, 3, 32, 32)
    assert torch.allclose(ours(images), theirs(images), atol=1e-5)


@pytest.mark.parametrize("name", sorted(models.MODELS))
def test_every_model_gives_logits_and_gradients_for_all_its_parameters(name: str) -> None:
    shape = HAR if name == "cnn1d" or name.startswith("har-") else IMAGE
    model = models.MODELS[name](shape, 7)
    logits = model(torch.randn(2, *shape))
    assert logits.shape == (2, 7)
    logits.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_sample_of_the_wrong_shape_is_an_error() -> None:
    with pytest.raises(errors.UsageError) as caught:
        models.MODELS["wrn-28-10"](HAR, 6)
    assert str(caught.value) == (
        "--model wrn-28-10 requires images of at least 4 x 4 pixels, and a sample is 9 x 128:"
        " use another model or data set."
    )
    for name, shape in (("cnn1d", IMAGE), ("vit", torch.Size((1, 30, 30)))):
        with pytest.raises(errors.UsageError, match=f"--model {name} "):
            models.MODELS[name](shape, 10)
    with pytest.raises(errors.UsageError, match="28 to 55 pixels"):
        models.MODELS["olivia-wrn"](torch.Size((3, 64, 64)), 10)
