"""Forms of lines that the general reader reads: lists, pairs, phrases, headings and tables."""

from __future__ import annotations

import time

import pytest

from orchestrator import patterns

SHIPPED = patterns.load_shipped()


def found(*lines: str) -> str:
    """Return the metrics of the last line as text."""
    matcher = patterns.Matcher(SHIPPED)
    metrics = [matcher.metrics_of_line(line) for line in lines][-1]
    return ", ".join(f"{each.name}={each.value:.10g}{each.unit}" for each in metrics)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        # A name and a value as two items.
        ('{"name": "loss", "data": {"epoch": 2, "step": 40, "value": 0.51}}',
         "epoch=2epoch, step=40step, loss=0.51"),
        ("metric=accuracy, step=40, value=0.51", "step=40step, accuracy=0.51"),
        ('{"name": "width", "value": 0.51}', ""),
        # Numbered names. A single number may be a step.
        ("Epoch 2/9, Loss 1: 0.51, Test Loss 1: 0.62, Loss 2: 1.31",
         "epoch=2epoch, loss_1=0.51, val_loss_1=0.62, loss_2=1.31"),
        ("Train loss 1: 0.51", "step=1step, loss=0.51"),
        # Lists. The list of a finished training is its history.
        ("step 40 losses: [0.51, 0.62, 0.73] lr 0.1",
         "step=40step, loss=0.51, losses_2=0.62, losses_3=0.73, learning_rate=0.1"),
        ("2 | Loss: 0.51, 0.62 | IoU: 0.31, 0.42 | 9.5s",
         "step=2step, loss=0.51, loss_2=0.62, iou=0.31, iou_2=0.42"),
        ("History: {'loss': [0.51, 0.42, 0.33]}", "loss=0.51"),
        # Names that are phrases.
        ("Average loss of the training batches in this epoch: 0.51", "average_loss=0.51"),
        ("Mean loss of all validation batches so far: 0.51", "val_mean_loss=0.51"),
        ("Train loss (last 40 steps): 0.51", "loss=0.51"),
        ("loss per epoch = 0.51", "loss=0.51"),
        ("Number of losses in this epoch: 0.51", ""),
        ("Accuracy on the test set: 51.5%", "val_accuracy=51.5%"),
        ("Accuracy of class cat: 51.5 %", ""),
        # Parts of a loss below a heading.
        ("Raw losses | mask: 0.51, edge: 0.62", "mask_loss=0.51, edge_loss=0.62"),
        ("Losses - total: 0.51, lr: 0.1", "total_loss=0.51, learning_rate=0.1"),
        ("Loss - gamma: 2.1", ""),
        ("loss=0.91 (p=0.51 q=0.41) val=0.99 (p=0.55 q=0.44)",
         "loss=0.91, p=0.51, q=0.41, val=0.99, val_p=0.55, val_q=0.44"),
        ("D: 0.51 | G: nan | P: 0.02", "d=0.51, g=nan, p=0.02"),
        ("Actor loss 0.51, critic loss 0.62, scale 0.1", "actor_loss=0.51, critic_loss=0.62"),
        # Phases.
        ("loss (train/val): 0.51 / 0.62", "loss=0.51, val_loss=0.62"),
        ("train 2: 100%|####| 40/40 [00:10<00:00,  4.01it/s, loss=0.51]",
         "step=40step, epoch=2epoch, throughput=4.01it/s, loss=0.51"),
        # A counter that is all that a line says; settings and parts of other work are no counters.
        ("------ Iteration: 4000 ------", "step=4000iteration"),
        ("Timestep 4000", "step=4000timestep"),
        ('    "step_number": 40,', "step=40step_number"),
        ("Batch 1,750 of 1,832. Elapsed: 0:11:36.", "step=1750batch"),
        ("Batch size: 40", ""),
        ("batch: 40", ""),
        ("Saving the model, iter: 4000", "step=4000iter"),
        ("Recording summary at step 40.", "step=40step"),
        ("Saving every 40 steps", ""),
        ("Saved the best model of step 40", ""),
        ("Step 3: Validation of the inputs", ""),
        ("Evaluation will begin at step 40", ""),
        ("Frame 3/40", ""),
        # Times, sizes and rates.
        ("Step time: 80 ms", "step_time=80ms"),
        ("Train: [2][40/600] BT 0.25 (0.31) DT 0.01 (0.02) loss 0.51 (0.62)",
         "step=40step, step_time=0.25, dt=0.01, loss=0.51"),
        ("tokens=1.2B step=40 loss=0.51", "tokens=1200000000, step=40step, loss=0.51"),
        ("Total images/sec: 135.5", "throughput=135.5images/s"),
        ("step 40 speed 0.7h/epoch loss_a: 0.51", "step=40step, loss_a=0.51"),
        ("[TRAIN(0,3,50)]: i: 40, train_loss: 0.51", "step=40i, loss=0.51"),
        ("Improving acc: 41.5 --> 51.5", "accuracy=51.5"),
        # A number of images is no accuracy.
        ("Accuracy: 12 of 20 correct", ""),
        # Bars: units of several words, thousands, bars of epochs, downloads.
        ("Ep 3: 100%|####| 40/40 [00:51<00:00,  2.17s/Train batch]",
         "step=40step, epoch=3ep, step_time=2.17s/batch"),
        ("40%|####  | 40/100 [00:51<00:00,  2.17mini-batch/s]",
         "step=40step, throughput=2.17batch/s"),
        ("Train: 40%|####  | 4.10k/10.0k [00:51<01:00, 7.80kit/s]",
         "step=4100step, throughput=7800it/s"),
        ("40%|####  | 4/10 [00:51<00:00,  1.25s/epoch, loss=0.51]",
         "epoch=4epoch, epoch_time=1.25s/epoch, loss=0.51"),
        ("9%|9    | 9184/99184 [00:00<00:00, 5850000.5it/s]", ""),
        ("84765736/84765736 [==============================] - 1s 0us/step", ""),
        ("val: Scanning labels... 0 corrupt: 100% \u2501\u2501\u2501 40/40 285.4it/s 0.6s", ""),
        # A counter between rules, in a cell, at the right margin, and of several words.
        ("---- batch: 040 ----", "step=40batch"),
        ("=== Update 40 ===", "step=40update"),
        ("|    iterations       | 40      |", "step=40iterations"),
        ("|    epochs           | 40      |", ""),
        ("|    batch_size       | 40      |", ""),
        ("                         Total steps: 4000 ", "step=4000steps"),
        ("Total steps: 4000", ""),
        ("Num steps: 4000   Return: -51.5   Time: 0:02:48", "step=4000steps, return=-51.5"),
        ("Num steps: 4000, Save interval: 40", ""),
        ("gradient_steps: 40, loss: 0.51", "step=40gradient_steps, loss=0.51"),
        ("wandb:   trainer/global_step 40", "step=40trainer_global_step"),
        # What happens at a step.
        ("[ITER 40] Saving the points", "step=40iter"),
        ("starting iteration 40 on process 0", "step=40iteration"),
        ("Starting from iteration 40", ""),
        ("0-epoch (40/178): total loss 11.5, patch-sup.: 11.4,token-sup.: 10.9,, lr 1e-4",
         "step=40step, epoch=0epoch, total_loss=11.5, patch_sup=11.4, token_sup=10.9, "
         "learning_rate=0.0001"),
        # What print shows of a tuple, and a text in quotes.
        ("('Epoch : ', 3, ' batch : ', 40)", "epoch=3epoch, step=40batch"),
        ("('Losses', {u'tagger': 0.51})", "tagger_loss=0.51"),
        ('Loss: 0.51 - Accuracy: 51% - Note: "this is not what the model should say now"',
         "loss=0.51, accuracy=51%"),
        ("best loss: 1.797e+308", ""),
        ("T: 4000, loss: 0.51", "loss=0.51"),
        ("step 40 loss: 0.51 T_mean: 0.31", "step=40step, loss=0.51, t_mean=0.31"),
        ("[3/40] D=0.512 G=0.612", "step=3step, d=0.512, g=0.612"),
        ("[3/40] Train G: 0.51 | Train D: 0.62", "step=3step, train_g=0.51, train_d=0.62"),
        ("step 40: loss: 8,4", "step=40step"),
        ("Time for 40 iterations: 12.1 s", ""),
    ],
)  # fmt: skip
def test_lines(line: str, expected: str) -> None:
    assert found(line) == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        # Several values in a cell.
        (("Step    Train loss      Test loss     Test metric",
          "40      [5.1e-01, 6.2e-01]    [7.3e-01, 8.4e-01]    []"),
         "step=40, loss=0.51, loss_2=0.62, val_loss=0.73, val_loss_2=0.84"),
        # Names that begin with a digit, and a tab at the end.
        (("2d_loss\t3d_loss\tadv_loss\t", "6.51\t7.62\t1.73\t"),
         "n2d_loss=6.51, n3d_loss=7.62, adv_loss=1.73"),
        # A metric in each row.
        (("|      | Train | Test |", "| loss | 0.51 | 0.62 |"), "loss=0.51, val_loss=0.62"),
        (("epoch;train_loss;val_loss", "2;0.51;0.62"), "epoch=2, loss=0.51, val_loss=0.62"),
    ],
)  # fmt: skip
def test_tables(lines: tuple[str, ...], expected: str) -> None:
    assert found(*lines) == expected


def test_a_long_list_takes_no_exponential_time() -> None:
    before = time.process_time()
    assert found("loss [0:4096] seqnums: " + ",".join(["73709"] * 10) + "...") == ""
    assert time.process_time() - before < 3
