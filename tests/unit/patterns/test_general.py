"""The general reader: which numbers of a line are metrics, and which are not."""

from __future__ import annotations

import functools
import math
import re
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator import patterns
from orchestrator.patterns import general, numbers
from tests.unit.patterns import last_line

#: Only the general reader.
KNOWN = patterns.select(last_line.SHIPPED, ["keyvalue"])
metrics = functools.partial(last_line.metrics, known=KNOWN)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("epoch 0 loss 1.000 lr 0.1", "epoch=0epoch, loss=1, learning_rate=0.1"),
        ("step 10 loss 2.31", "step=10step, loss=2.31"),
        (
            "iter 1631: loss 4.0863, time 561.94ms",
            "step=1631iter, loss=4.0863, step_time=561.94ms",
        ),
        ("[1,  2000] loss: 2.204", "epoch=1epoch, step=2000step, loss=2.204"),
        ("[3/25][10/1583] Loss_D: 0.51", "epoch=3epoch, step=10step, loss_d=0.51"),
        ("Epoch: [3][10/500] Loss 2.31 (2.40)", "step=10step, epoch=3epoch, loss=2.31"),
        ("Epoch 3/90, Step [10/500], Loss: 2.31", "epoch=3epoch, step=10step, loss=2.31"),
        ("epoch_3 step-10 loss=2.31", "epoch=3epoch, step=10step, loss=2.31"),
        ("5epoch:train:3376-3750batch: loss=1.7", "epoch=5epoch, step=3750step, loss=1.7"),
        ("| epoch | 3 | train loss | 0.51 |", "epoch=3epoch, loss=0.51"),
        ("93.44 s run, 11.8750 loss", "loss=11.875"),
        ("0.71428 iters/sec.", "throughput=0.71428iters/sec"),
        ("Speed: 135.5 images/sec at step 7", "throughput=135.5images/sec, step=7step"),
        (
            "step 7 tokens per second per gpu: 1,234.5",
            "step=7step, tokens_per_second=1234.5tokens/s, throughput=1234.5tokens/s",
        ),
        ("step: 7 TFLOPs: 23.64", "step=7step, throughput=23.64TFLOP/s"),
        ("iter 40 step 10 | loss train: 1.5", "iter=40iter, step=10step, loss=1.5"),
        ("epoch 2 train loss 0.5 acc 0.6 val loss 0.7 acc 0.55",
         "epoch=2epoch, loss=0.5, accuracy=0.6, val_loss=0.7, val_accuracy=0.55"),
        ("Validation epoch 2: loss 0.7, top-1 55.1%",
         "epoch=2epoch, val_loss=0.7, val_accuracy=55.1%"),
        ("Test: Accuracy: 9834/10000 (98%), loss: 0.05", "val_accuracy=98%, val_loss=0.05"),
        ("[0]\ttrain-rmse:0.51\teval-rmse:0.62", "step=0step, rmse=0.51, val_rmse=0.62"),
        ("train/loss=2.1 perf/throughput=12 step=3", "loss=2.1, throughput=12, step=3step"),
        ("{'step': 3, 'loss': tensor(0.5)", "step=3step, loss=0.5"),
        ("step 3 loss nan", "step=3step, loss=nan"),
        ("Iteration 360, lr = 7.8e-07", "step=360iteration, learning_rate=7.8e-07"),
        ("Epoch 3/90", "epoch=3epoch"),
        (
            "2024-01-02 10:00:00 INFO main.py:12 step=20 loss=1.5 eta: 1:02:03",
            "step=20step, loss=1.5",
        ),
        (
            "12%|#2  | 120/1000 [00:10<01:13, 12.0it/s, loss=0.5]",
            "step=120step, throughput=12it/s, loss=0.5",
        ),
        ("Cost after iteration 100: 0.51", "step=100iteration, loss=0.51"),
        ("Loss at step 100 is 0.51", "step=100step, loss=0.51"),
        ("At step 10, the loss is 0.51", "step=10step, loss=0.51"),
        ("loss of 0.51 at step 10", "loss=0.51, step=10step"),
        ("Throughput is 414.6 records/second. Loss is 0.53.",
         "throughput=414.6records/second, loss=0.53"),
        ("step 100 loss np.float32(0.5)", "step=100step, loss=0.5"),
        ("step 100 loss tensor(0.5, device='cuda:0')", "step=100step, loss=0.5"),
        ("Step 100: loss = Array(0.5, dtype=float32)", "step=100step, loss=0.5"),
        ("Step 100K | Loss: 0.5 | 1.2M tok/s",
         "step=100000step, loss=0.5, tokens_per_second=1200000tok/s, throughput=1200000tok/s"),
        ("step 5 loss 0.5 peak memory 21.5M", "step=5step, loss=0.5, memory=21.5M"),
        ("\u8bad\u7ec3 epoch\uff1a1\uff0closs\uff1a0.5", "epoch=1epoch, loss=0.5"),
        ("Epoch: 1/10... Step: 20... Loss: 2.3", "epoch=1epoch, step=20step, loss=2.3"),
        ("n_iter: 100, nll_loss: 0.5", "step=100n_iter, nll_loss=0.5"),
        ("Frame number: 07943478 Episode: 12 Reward: 3",
         "step=7943478frame_number, episode=12episode, reward=3"),
        ("Episode 100\tAverage Score: 0.86", "episode=100episode, score=0.86"),
        ("global_step=1024, episodic_return=21.0", "step=1024global_step, episodic_return=21"),
        ("| total_timesteps | 2.05e+03 |", "step=2050total_timesteps"),
        ("current_epoch: 0, epoch: 1", "epoch=1epoch"),
        ("End of Epoch 149 | Valid Loss 1.209", "epoch=149epoch, val_loss=1.209"),
        ("epoch 2 [====>....] Step: 10ms | Loss: 0.5 | Acc: 10.0% (10/100)",
         "epoch=2epoch, loss=0.5, accuracy=10%"),
        ("step 3 fg/bg=(64/192), time cost: 27.2", "step=3step, step_time=27.2"),
        ("Iteration: 11/12 loss=0.5: 92%|###| 11/12 [03:32<00:19, 19.50s/it]",
         "step=11iteration, loss=0.5, step_time=19.5s/it"),
        ("Epoch 3 loss: 0.51: 50%|###| 50/100 [00:10<00:10, 5.0it/s]",
         "step=50step, epoch=3epoch, loss=0.51, throughput=5it/s"),
        ("step 9 train loss 0.5 tokens/s 1234",
         "step=9step, loss=0.5, tokens_per_second=1234tokens/s, throughput=1234tokens/s"),
        ("GPU 0 step 100 loss 0.5", "step=100step, loss=0.5"),
        ("loss1: 0.5 LossD: 0.6 nllloss: 0.7 i: 8", "loss1=0.5, lossd=0.6, nllloss=0.7, step=8i"),
        ("epoch-1: loss 0.5", "epoch=1epoch, loss=0.5"),
        ("LOSS train 0.5 valid 0.6", "loss=0.5, val_loss=0.6"),
        ("Training loss (for one batch) at step 100: 0.5", "step=100step, loss=0.5"),
        ("[9] training's auc: 0.5 valid's auc: 0.6", "step=9step, auc=0.5, val_auc=0.6"),
        ("Epoch Step: 7 | Loss: 0.5 | Tokens / Sec: 1234.5",
         "step=7step, loss=0.5, tokens_per_second=1234.5tokens/s, throughput=1234.5tokens/s"),
        ("|    AverageEpRet |    12.3 |", "ep_ret=12.3"),
        ("Episode [1/1]: 92%|###| 11/12 [03:32<00:19, 19.50s/it]",
         "step=11step, episode=1episode, step_time=19.5s/it"),
        ("  1/20   4.28G   0.865   1.986   69   640: 69%|##| 175/253 [02:09<00:19, 3.99it/s]",
         "epoch=1epoch, step=175step, throughput=3.99it/s"),
        # Losses with other names, and names in other forms.
        ("Iteration: 100 objective: 0.53", "step=100iteration, loss=0.53"),
        ("obj=0.52 iter=3", "loss=0.52, step=3iter"),
        ("Step 100 energy = -12.5", "step=100step, energy=-12.5"),
        ("NLL 1.23", "nll=1.23"),
        ("Train-RPNAcc=0.97,\tRPNLogLoss=0.07 step 3",
         "rpnacc=0.97, rpnlog_loss=0.07, step=3step"),
        ("\"train/ppo_loss/action\": -0.01,", "ppo_loss_action=-0.01"),
        ("Loss of the current policy: -0.0461", "current_policy_loss=-0.0461"),
        ("loss on the test set: 0.5 at step 3", "val_set_loss=0.5, step=3step"),
        ("total loss is\uff1a 1.32", "total_loss=1.32"),
        ("Loss G 0.52 Loss D 0.61", "loss_g=0.52, loss_d=0.61"),
        ("epoch3 loss0.52", "epoch=3epoch, loss=0.52"),
        ("Mean test loss of 258 batches: 0.69", "val_mean_loss=0.69"),
        ("acc class : 87.50 loss.: 0.5", "acc_class=87.5, loss=0.5"),
        ("Train_loss: 0.5, Val_los: nan", "loss=0.5, val_loss=nan"),
        ("Epoch: 003, Loss: 0.52, Train: 0.91, Val: 0.85, Test: 0.84",
         "epoch=3epoch, loss=0.52, train=0.91, val=0.85, test=0.84"),
        ("Epoch: 3, Steps: 120 | Train Loss: 0.52 Vali Loss: 0.61 Test Loss: 0.7",
         "epoch=3epoch, step=120steps, loss=0.52, val_loss=0.61, test_loss=0.7"),
        ("Loss:     \t 0.1269", "loss=0.1269"),
        ("{'shape': (8, 480), 'cut': [False, False, False, False, False, False, False, False, "
         "True], 'ratio': tensor(0.9996, device='mps:0', grad_fn=<DivBackward0>), 'loss': -0.01}",
         "loss=-0.01"),
        # Other languages.
        ("Epoch 24 \u5b8c\u6210 | \u8bad\u7ec3\u635f\u5931: 4.45 | "
         "\u9a8c\u8bc1\u635f\u5931: 5.94 | \u65f6\u95f4: 388.3s",
         "epoch=24epoch, loss=4.45, val_loss=5.94, epoch_time=388.3s"),
        ("\u7b2c 3 \u8f6e \u7b2c100\u6b65 \u635f\u5931\uff1a0.52 \u5b66\u4e60\u7387 0.001",
         "epoch=3epoch, step=100step, loss=0.52, learning_rate=0.001"),
        ("\u30a8\u30dd\u30c3\u30af 3/10 \u640d\u5931 = 0.52, \u7cbe\u5ea6: 0.91",
         "epoch=3epoch, loss=0.52, accuracy=0.91"),
        ("\uc5d0\ud3ed: 3, \uc190\uc2e4: 0.52", "epoch=3epoch, loss=0.52"),
        # Rates.
        ("|Generate time=1.59s |CurSamplesPerSec=1.89 |AvgSamplesPerSec=1.95",
         "throughput=1.89samples/s, avg_samples_per_sec=1.95samples/s"),
        ("Steps/second: 0.014, Examples/second: 0.73",
         "throughput=0.014steps/s, throughput=0.73examples/s"),
        ("step:125/1393 val_loss:4.2 train_time:1234ms step_avg:95.1ms",
         "step=125step, val_loss=4.2, step_time=95.1ms"),
        ("\tspeed: 0.0312s/iter; left time: 123.4s", "step_time=0.0312s/iter"),
        ("\"train-misc/approx_fps\": 24.5,", "throughput=24.5"),
        ("step_time_ms: 123.4, step: 100", "step_time=123.4ms, step=100step"),
        ("train: epoch 08: 226/572: 84.8 (84.8) HZ objective: 44.632",
         "step=226step, epoch=8epoch, throughput=84.8HZ, loss=44.632"),
        ("Samples per second: 226", "throughput=226samples/s"),
        ("Words/thread/sec: 140.83k", "throughput=140830words/s"),
        ("samples / s = 123.4", "throughput=123.4samples/s"),
        ("1234.5 src words/sec", "throughput=1234.5src words/sec"),
        ("sps 1234", "throughput=1234"),
        ("12.3 TFLOPS", "throughput=12.3TFLOPS"),
        ("step 100 lr 0.5 tok/s 1234",
         "step=100step, learning_rate=0.5, tokens_per_second=1234tok/s, throughput=1234tok/s"),
        ("wpb 12 wps 1234", "throughput=1234"),
        ("speed 12.3 it/s 45", "throughput=12.3it/s"),
        # Steps.
        ("Iteration: \t 7", "step=7iteration"),
        ("step#: 22954  learning rate: 0.001", "step=22954step, learning_rate=0.001"),
        ("| epoch 019 | 0161656 updates | words/s   14482 |",
         "epoch=19epoch, step=161656step, throughput=14482words/s"),
        ("--- 778/778 batches finished ---", "step=778step"),
        ("30/42 of epoch 1/30 loss : 0.479", "step=30step, epoch=1epoch, loss=0.479"),
        ("--> STEP: 49/377 -- GLOBAL_STEP: 370050", "batch=49step, step=370050global_step"),
        ("Avg loss @ step 100: 0.52", "step=100step, avg_loss=0.52"),
        ("INFO:44k:====> Epoch: 158, cost 90.36 s", "epoch=158epoch, epoch_time=90.36s"),
        ("INFO:my-run.2:step 3 loss 0.5", "step=3step, loss=0.5"),
        ("[1] \"[3]:  train's auc:0.5\"", "step=3step, auc=0.5"),
        ("[valid] Ep. 1 : Up. 20000 : cross-entropy : 130.97 : new best",
         "epoch=1ep, step=20000up, val_cross_entropy=130.97"),
        ("Index 2, l1 34.9, iou 0.02", "step=2index, l1=34.9, iou=0.02"),
        ("100, loss 0.52", "step=100step, loss=0.52"),
        ("  7 8793.29 ms run, 2.91 ms METAL, 1185.91 loss, 0.000015 LR",
         "step=7step, loss=1185.91"),
        ("After 100 iterations: loss = 0.52", "step=100iterations, loss=0.52"),
        ("Loss (step 100): 0.52", "step=100step, loss=0.52"),
        ("mini-batch 100: loss 0.52", "step=100mini_batch, loss=0.52"),
        ("epoch/iter: 19/5159 loss: 2.08", "epoch=19epoch, step=5159iter, loss=2.08"),
        ("\"training_step\": 57104,", "step=57104training_step"),
        ("Epoch: [163][50]   Time 0.890 (0.919)   Loss 8.0 (8.1)",
         "step=50step, epoch=163epoch, step_time=0.89, loss=8"),
        ("Train loss 100 0.48 Grad Norm 13.5 5.71s/it",
         "step=100step, loss=0.48, grad_norm=13.5, step_time=5.71s/it"),
        ("Validation loss 100: 0.56", "step=100step, val_loss=0.56"),
        ("loss 1 0.53 loss 2 0.62", ""),
        ("The train loss of epoch7-batch-50:0.198", "epoch=7epoch, step=50batch, loss=0.198"),
        ("step_50:12.5 loss:0.5", "step=50step, loss=0.5"),
        ("coco:, 48200/50000, train/total_loss: 2.04 (2.05)", "step=48200step, total_loss=2.04"),
        ("Test: [100/155] Time 1.173 Loss 3.66",
         "batch=100batch, val_step_time=1.173, val_loss=3.66"),
        ("Average loss epoch 3: 0.5", "epoch=3epoch, average_loss=0.5"),
        ("Validating batch 10/50 loss: 0.5", "batch=10batch, val_loss=0.5"),
        ("loss[100] = 0.123", "step=100step, loss=0.123"),
        # Bars, and what is printed behind values.
        ("Epoch 1:   0%|          | 0/500 [00:00<?, ?it/s]", "step=0step, epoch=1epoch"),
        ("Epoch 1:   0%|          | 0/8 [00:00<?, ?it/s, loss=0.714, v_num=3]",
         "step=0step, epoch=1epoch"),
        ("Step:  20%|##        | 1/5 [00:22<01:31, 22.90s/it][08/30/23 07:07:54] INFO  glosses",
         "step=1step, step_time=22.9s/it"),
        ("D loss: 0.52, acc.: 91% G loss: 0.61", "d_loss=0.52, accuracy=91%, g_loss=0.61"),
        ("step 3 tput=1234.5", "step=3step, throughput=1234.5"),
        ("[train]:   0%|          | 1974/3000000 [08:35<218:49:50,  3.81it/s]",
         "step=1974step, throughput=3.81it/s"),
        ("Training progress: 50%|###  | 50/100 [00:10<00:10, 4.9it/s]/home/me/x 1.5",
         "step=50step, throughput=4.9it/s"),
        ("iter 10 || Loss: 27.01 || Saving state, iter: 10", "step=10iter, loss=27.01"),
        ("459/459 [=====] - loss: 0.6243WARNING: the parameters cannot be updated",
         "step=459step, loss=0.6243"),
        ("11:47:13: running: [1,1]<stdout>:Train Epoch: 10 [7680/30000 (26%)]\tLoss: 0.16",
         "step=7680step, epoch=10epoch, loss=0.16"),
        ("Saving dict for global step 5: eval_loss = 0.72, global_step = 5",
         "val_loss=0.72, step=5global_step"),
    ],
)  # fmt: skip
def test_lines_of_metrics(line: str, expected: str) -> None:
    assert metrics(line) == expected


@pytest.mark.parametrize(
    "line",
    [
        "UserWarning: with loss=0.5 at step=3 of the docs the guide begins",
        "As the iteration reaches 3400 epochs later, the loss becomes nan",
        "Loaded checkpoint at step 5000 (loss = 1.234)",
        "Resumed from epoch 12: loss=0.5, acc=71.2",
        "Namespace(lr=0.1, epochs=90, loss_weight=1.0)",
        "python train.py --loss 0.5 --steps 100",
        "epochs: 90",
        "max steps: 1000",
        "tokens per iteration: 4,194,304",
        "precision: 16",
        "Error: 2",
        "Batch size: 32, Learning rate: 0.1, Epochs: 10",
        "loss_coefs: 0.5 0.1",
        "torch 2.4.1+cu121, CUDA 12.1, 8 GPUs, 350.5M parameters",
        "https://example.org/step/100?loss=0.5",
        "Grad overflow on iteration 4",
        "Downloading: 100%|##########| 10/10 [00:01<00:00, 9.5MB/s]",
        "throughput: 12.3 GB/s",
        "Evaluating:   0%|          | 0/10 [00:00<?, ?it/s]",
        "  0%|          | 0/10 [00:00<?, ?it/s]",
        "Map: 50%|#####     | 5/10 [00:01<00:01, 4.9it/s]",
        "train: Scanning /data/labels... 126 images: 100%|##| 128/128 [00:00<00:00, 1389.59it/s]",
        "| 0   | conv | 7B | 3d | 0.5x |",
        "  File \"train.py\", line 12, in step",
        "10.0.0.1:29500 rank 3 pid=4123 at 10:00:00",
        "{'lr': 0.1, 'epochs': 100, 'steps': 1000}",
        "Average Recall (AR) @[ IoU=0.50 | area= small | maxDets=  1 ] = 0.155",
        "Sampling rate: 16000 Hz",
        "frame=  100 fps= 25 q=28.0 size= 256kB bitrate= 524.3kbits/s speed=1x",
        "Epoch 3: saving checkpoint",
        "best iteration 100",
        "1563 steps per epoch | 90 epochs",
        "Evaluating 10/50 batches",
        "accuracy threshold: 0.9",
        "loss_std=0.12, total cost: $4.56",
    ],
)  # fmt: skip
def test_other_lines(line: str) -> None:
    assert metrics(line) == ""


def test_numbers_at_the_beginning_that_are_no_steps() -> None:
    assert metrics("2 Percent improvement, error=8.07") == "error=8.07"
    assert metrics("100 samples, accuracy 0.91") == "accuracy=0.91"
    assert metrics("2) accuracy 0.91") == "accuracy=0.91"
    assert metrics("GPU index 3, score 0.5") == "score=0.5"
    assert metrics("1      300.0           loss  0.2118") == "loss=0.2118"
    assert metrics("step 3 loss 0.5 mem 14764MB") == "step=3step, loss=0.5, memory=14764MB"


def test_rows_of_a_table() -> None:
    header = "epoch     train_loss  valid_loss  accuracy  time"
    expected = "epoch=0, loss=2.5, val_loss=2.4, accuracy=0.91"
    assert metrics(header, "0         2.500000    2.400000    0.91      00:05") == expected
    # A row of another table, and a line that only has as many words.
    assert metrics(header, "0         2.500000    2.400000") == ""
    assert metrics(header, "Done in 5 s 0.5") == ""


def test_a_progress_bar_behind_a_row() -> None:
    header = "      Epoch    GPU_mem   box_loss   cls_loss  Instances       Size"
    row = "        3/9      10.4G     0.4635     0.2344       1578        640: "
    bar = "100%|##########| 99/99 [01:52<00:00,  1.14s/it]"
    expected = (
        "epoch=3, memory=10.4G, box_loss=0.4635, cls_loss=0.2344, step=99step, step_time=1.14s/it"
    )
    assert metrics(header, row + bar) == expected


def test_a_column_beside_other_parts_of_a_loss_is_one_too() -> None:
    header = "Epoch   gpu_mem       box       obj       cls     total    labels  img_size"
    row = "32/4999     55.1G   0.05461   0.01017   0.03715    0.1019        26      1856"
    assert metrics(header, row) == (
        "epoch=32, memory=55.1G, box_loss=0.05461, obj_loss=0.01017, cls_loss=0.03715, "
        "total_loss=0.1019"
    )
    assert metrics("epoch  total  loss", "3  100  0.5") == "epoch=3, loss=0.5"


def test_a_printed_carriage_return_ends_a_part_of_a_line() -> None:
    bar = "steps:  4%|#  | 12/300 [00:11<05:08, 1.89it/s]"
    assert metrics(f"^M{bar}^M   ^M{{'loss': 1.06}}") == (
        "step=12step, throughput=1.89it/s, loss=1.06"
    )


def test_a_heading_holds_for_the_lines_below() -> None:
    matcher = patterns.Matcher(KNOWN)
    matcher.metrics_of_line("Epoch 3/25")
    (metric,) = matcher.metrics_of_line("train loss: 0.51")
    assert (metric.name, metric.value, metric.epoch) == ("loss", 0.51, 3)


NAMES = st.sampled_from(["loss", "train loss", "val_acc", "lr", "step", "epoch", "it/s", "foo"])
PARTS = st.one_of(
    NAMES,
    st.sampled_from(list(" :=|,;()[]{}/%\t-")),
    st.integers(0, 10**7).map(str),
    st.floats(0, 1e4, allow_nan=False).map(str),
    st.text(max_size=4),
)


@given(st.lists(PARTS, max_size=30).map("".join))
@example("1.1260762019562404e-113B")
def test_each_value_is_a_number_of_the_line(line: str) -> None:
    reading = general.read(line) or general.Reading()
    for value in reading.values:
        number = numbers.number(value.number)
        printed = re.sub("e[369]$", "", value.number)
        assert number is None or math.isnan(number) or printed in line.replace(",", "")


@pytest.mark.parametrize(
    "unit", ["a@", "np.", "_", "1", "a-", "1 ", "[12:34 ", "=1", "a/b.", "1d2h", " ", "| ", "1, "]
)
def test_time_of_a_hostile_line(unit: str) -> None:
    columns = ("epoch", "loss")
    general.read("epoch loss: 0.5 INFO 1% np.x", columns)
    begun = time.process_time()
    for line in (f"loss {unit * 20}! 1", f"loss 0.5 {unit * 1990}"[:3990] + "! 1"):
        general.read(line)
        general.read(line, columns)
    assert time.process_time() - begun < 3
