"""Which checkpoints stay: the newest, the best, and whatever is not recognized."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator import prune


def removable(*names: str) -> list[str]:
    return prune.removable([prune.Entry(name=name) for name in names])


@pytest.mark.parametrize(
    "names",
    [
        # the included trainer, files and folders
        ["checkpoint-0000000001.pt", "checkpoint-0000000002.pt", "checkpoint-0000000010.pt"],
        ["checkpoint-0000000001", "checkpoint-0000000002", "checkpoint-0000000010"],
        # transformers, Lightning, Megatron, DeepSpeed, plain numbers
        ["checkpoint-500", "checkpoint-1000"],
        ["epoch=1-step=100.ckpt", "epoch=2-step=200.ckpt"],
        ["iter_0000100", "iter_0000200"],
        ["global_step99", "global_step100"],
        ["99.pt", "100.pt"],
        ["Epoch-9.pth", "Epoch-10.pth"],
    ],
)
def test_all_but_the_highest_step_go(names: list[str]) -> None:
    assert removable(*names) == names[:-1]
    assert removable(*reversed(names)) == names[-2::-1]


def test_files_of_the_highest_step_stay_together() -> None:
    names = ["step_1_rank0.pt", "step_1_rank1.pt", "step_2_rank0.pt", "step_2_rank1.pt"]
    assert removable(*names) == names[:2]


def test_the_best_stays() -> None:
    names = ["best.pt", "checkpoint_1_best.pt", "checkpoint-1.pt", "checkpoint-2.pt"]
    assert removable(*names) == ["checkpoint-1.pt"]


def test_each_way_of_numbering_keeps_its_newest() -> None:
    names = ["epoch_1.pt", "epoch_2.pt", "step_10.pt", "step_20.pt"]
    assert removable(*names) == ["epoch_1.pt", "step_10.pt"]


def test_the_one_that_was_written_last_stays() -> None:
    entries = [
        prune.Entry(name="checkpoint-1.pt", modified_at=1.0),
        prune.Entry(name="checkpoint-2.pt", modified_at=9.0),
        prune.Entry(name="checkpoint-3.pt", modified_at=3.0),
    ]
    # Training went on from an earlier step.
    assert prune.removable(entries) == ["checkpoint-1.pt"]


def test_links_and_what_they_lead_to_stay() -> None:
    entries = [
        prune.Entry(name="checkpoint-1.pt", is_linked=True),
        prune.Entry(name="checkpoint-2.pt"),
        prune.Entry(name="checkpoint-3.pt"),
        prune.Entry(name="step-0", is_link=True),
    ]
    assert prune.removable(entries) == ["checkpoint-2.pt"]


@pytest.mark.parametrize(
    "names",
    [
        # parts of one checkpoint
        ["model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors"],
        ["mp_rank_00_model_states.pt", "mp_rank_01_model_states.pt"],
        ["rank_0.pt", "rank_1.pt"],
        ["layer_1.pt", "layer_2.pt"],
        ["__0_0.distcp", "__1_0.distcp"],
        # logs and records beside checkpoints
        ["events.out.tfevents.1700000000.host", "events.out.tfevents.1700000001.host"],
        ["latest", "latest_checkpointed_iteration.txt", "SHA256SUMS", "config.json"],
        ["version_1.2", "version_1.3"],
        ["footstep1x.pt", "footstep2x.pt"],
    ],
)
def test_other_files_stay(names: list[str]) -> None:
    assert removable(*names) == []


def test_unfinished_checkpoints_go() -> None:
    names = ["checkpoint-3.pt.draft.17", "checkpoint-9.tmp", "x.damaged", "checkpoint-2.pt"]
    assert removable(*names) == names[:3]


NAMES = st.lists(
    st.from_regex(
        r"(checkpoint|step|epoch|rank|best)?[-_=]?[0-9]{1,3}(\.pt|\.ckpt)?", fullmatch=True
    ),
    unique=True,
)


@given(NAMES)
def test_nothing_is_left_without_a_checkpoint(names: list[str]) -> None:
    gone = removable(*names)
    assert set(gone) <= set(names)
    if names:
        assert len(gone) < len(names)
