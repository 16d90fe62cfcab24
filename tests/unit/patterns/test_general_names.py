"""The general reader: names that do not stand beside their numbers, and lines within lines."""

from __future__ import annotations

import pytest

from tests.unit.patterns import last_line


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        # Names first, then their numbers.
        ("loss_x,loss_y,loss_z 0.51 0.62 0.73", "loss_x=0.51, loss_y=0.62, loss_z=0.73"),
        ("Train/Val Loss: 0.51/0.62", "loss=0.51, val_loss=0.62"),
        ("epoch/iter: 3/40 loss 0.51", "epoch=3epoch, step=40iter, loss=0.51"),
        ("Head Accuracy (Loss): 0.81 (0.62)", "head_accuracy=0.81, loss=0.62"),
        ("loss,lr 0.51 0.1 7", ""),
        ("Epoch 3  QX, FID: 0.51, 0.62", "epoch=3epoch, qx=0.51, fid=0.62"),
        # The same name in several groups.
        ("epoch 3 [train] loss: 0.51 - [valid] loss: 0.62 - [test] loss: 0.73",
         "epoch=3epoch, loss=0.51, val_loss=0.62, test_loss=0.73"),
        ("Epoch 3, batch 7, loss[loss=0.51, ctc=0.62], tot_loss[loss=0.73, ctc=0.84], lr: 0.1",
         "epoch=3epoch, step=7batch, loss=0.51, ctc=0.62, tot_loss=0.73, tot_loss_ctc=0.84, "
         "learning_rate=0.1"),
        ("gen: loss 0.51 disc: loss 0.62", "loss=0.51, disc_loss=0.62"),
        # Parts of a loss that is named once.
        ("Epoch: [3/9] [40/50] Loss: D[0.51] G[0.62]",
         "step=40step, epoch=3epoch, d_loss=0.51, g_loss=0.62"),
        # Names without a sign, one after another.
        ("Epoch 3 Update 40 Cost 0.51 PQ 0.62 RS 0.73",
         "epoch=3epoch, step=40update, loss=0.51, pq=0.62, rs=0.73"),
        ("7: 100%|####| 40/40 [01:00<00:00,  1.50s/it, head_loss - 0.51, head_score - 0.62]",
         "step=40step, step_time=1.5s/it, head_loss=0.51, head_score=0.62"),
        # A longer word with a dot ends a sentence, a shorter one is cut.
        ("40 batches processed. current loss: 0.51", "step=40batches, current_loss=0.51"),
        ("epoch 3 avg. loss: 0.51 acc. 0.62", "epoch=3epoch, avg_loss=0.51, accuracy=0.62"),
        # Changes: the new value counts.
        ("Epoch 00003: val_loss improved from 0.62000 to 0.51000, saving model to best-0.51.h5",
         "epoch=3epoch, val_loss=0.51"),
        ("Validation loss decreased (0.620000 --> 0.510000).  Saving model ...", "val_loss=0.51"),
        ("Epoch 3, global step 40: 'val_loss' reached 0.51000 (best 0.51000), saving model to "
         "'runs/a-v3.ckpt' as top 1",
         "epoch=3epoch, step=40global_step, val_loss=0.51, best=0.51"),
        ("New best model saved at epoch 3 with val loss 0.51", "epoch=3epoch, val_loss=0.51"),
        # Times without a name: of a step only in milliseconds, of an epoch only in seconds.
        ("[3,   40] loss: 0.51 (12.5 ms)",
         "epoch=3epoch, step=40step, loss=0.51, step_time=12.5ms"),
        ("step 40 | loss 0.51 | 12.5s", "step=40step, loss=0.51"),
        ("Epoch 3 loss: 0.51 (78.2s)", "epoch=3epoch, loss=0.51, epoch_time=78.2s"),
        ("Epoch 3 loss: 0.51 (78 ms)", "epoch=3epoch, loss=0.51"),
        # No rates.
        ("Overall training speed: 198 iterations in 0:02:47 (0.84 s / it)", "step_time=0.84s / it"),
        ("Time = distance / speed = 180 / 60", ""),
        # Counters by their place. One that is named otherwise is none.
        ("[3/9], [40/50], global_step: 190, loss: 0.51",
         "epoch=3epoch, batch=40batch, step=190global_step, loss=0.51"),
        ("Epoch 3: loss=0.51 (no improve 1/10)", "epoch=3epoch, loss=0.51"),
        # Named by their phases alone.
        ("[eval] iter 40: train 0.51 val 0.62 lr 0.1",
         "step=40iter, train=0.51, val=0.62, learning_rate=0.1"),
        ("Split: train 0.8, val 0.1, test 0.1", ""),
        ("iteration_time: 0.25", "step_time=0.25"),
        ("time step: 4000", "step=4000step"),
        ("epoch 3 [ 0/40] loss: 0.51 iter: 1.25s data: 0.1s",
         "step=0step, epoch=3epoch, loss=0.51, step_time=1.25s, data_time=0.1s"),
        ("runtime.step=40, runtime.steptime=1.25, loss.head=0.51",
         "step=40runtime_step, step_time=1.25, loss_head=0.51"),
        ("Generating train split: 1258 examples [00:01, 578.34 examples/s]", ""),
        ("[TIMER] step: 12.5 seconds", "step_time=12.5seconds"),
        ("Epoch 3: Forward Time: 0.25 Loss: 0.51", "epoch=3epoch, loss=0.51"),
        # Other words before a place and behind the numbers.
        ("Task [40/50], Train Loss: 0.51, Of: ['one of many', 'another of them', 'a third one']",
         "step=40step, loss=0.51"),
        ("step: 40, 'loss': '0.51', ips: 3.5 images/sec",
         "step=40step, loss=0.51, throughput=3.5images/sec"),
        ("Patch number: 40 / 50, Train loss: 0.51", "step=40step, loss=0.51"),
        ("Fold[2/5] epoch[3/50] loss: 0.51", "epoch=3epoch, loss=0.51"),
        ("loss_head_wei: 0.51", ""),
        ("[Epoch 3/9][  40:500]  Loss: 0.51", "step=40step, epoch=3epoch, loss=0.51"),
        ("Epoch 3, Step: 40, Loss: 0.5, Time (mins): 7.25", "epoch=3epoch, step=40step, loss=0.5"),
        ("Epoch (val): [3][40/50]\tLoss 0.51 (0.62)\tExpected 7.5",
         "batch=40batch, epoch=3epoch, val_loss=0.51"),
        # A time of the day, a total.
        ("time: 1591911562.56, epoch: 3, batch: 40, loss: 0.51",
         "epoch=3epoch, step=40batch, loss=0.51"),
        ("step 40 loss 0.51 total time 227.3 s", "step=40step, loss=0.51"),
        # Words of settings within a name.
        ("step 40 loss_threshold_maps: 0.51, loss_threshold: 0.62",
         "step=40step, loss_threshold_maps=0.51"),
        # Bytes of another encoding.
        ("\ufffd\ufffdBatch\ufffd\ufffd40/6035 | epoch:3/50", "step=40batch, epoch=3epoch"),
        # An evaluation's bar with thresholds in its name.
        ("   Class     Images     Labels    P     R   mAP@.5 mAP@.5:.95: 100% 2/2 [00:02<00:00,  "
         "1.37s/it]", "batch=2step, val_step_time=1.37s/it"),
        # JSON and dicts.
        ('{"iter": 40, "loss": 0.51, "time": 0.25}', "step=40iter, loss=0.51, step_time=0.25"),
        ("{'epoch': 3, 'val_acc': 0.51, 'lr': 0.1}",
         "epoch=3epoch, val_accuracy=0.51, learning_rate=0.1"),
        # A pattern that reads only a part of a line leaves it to the general reader.
        ("Step 40 | loss: 0.51 | lr: 0.1", "step=40step, loss=0.51, learning_rate=0.1"),
        ("Steps:  20%|##   | 20/99 [00:10<00:40,  2.01it/s, lr=0.1, step_loss=0.51]",
         "step=20step, throughput=2.01it/s, learning_rate=0.1, loss=0.51"),
    ],
)  # fmt: skip
def test_lines(line: str, expected: str) -> None:
    assert last_line.metrics(line) == expected


def test_a_line_of_a_logger_behind_a_bar() -> None:
    bar = " 50%|#####     | 5/10 [00:05<00:05,  1.10s/it]"
    for line in (
        "2026-03-01 10:00:00,000 - DEBUG - steps - {'loss': 0.51, 'epoch': 0.5}",
        "[INFO|trainer.py:12] 2026-03-01 10:00:00,000 >> {'loss': 0.51, 'epoch': 0.5}",
    ):
        expected = "step=5step, step_time=1.1s/it, loss=0.51, epoch=0.5"
        assert last_line.metrics(f"{bar} {line}") == last_line.metrics(f"{bar}{line}") == expected


def test_the_bar_of_lightning_repeats_the_validation_of_the_epoch_before() -> None:
    fields = "v_num=0, train_loss=0.51, val_loss=0.62]"
    begun = f"Epoch 4:  50%|#####     | 5/10 [00:05<00:05,  9.10it/s, {fields}"
    assert last_line.metrics(begun) == "step=5step, epoch=4epoch, throughput=9.1it/s, loss=0.51"
    full = f"Epoch 4: 100%|##########| 10/10 [00:10<00:00,  9.10it/s, {fields}"
    assert (
        last_line.metrics(full)
        == "step=10step, epoch=4epoch, throughput=9.1it/s, loss=0.51, val_loss=0.62"
    )


def test_a_program_prints_lines_that_its_pattern_does_not_know() -> None:
    known = "{'loss': 0.51, 'learning_rate': 0.1, 'epoch': 0.5}"
    assert last_line.metrics(known) == "loss=0.51, learning_rate=0.1, epoch=0.5"
    assert last_line.metrics(known, "step 40: loss = 0.62") == "step=40step, loss=0.62"
