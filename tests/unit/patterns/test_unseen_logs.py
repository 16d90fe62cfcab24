"""Lines of logs that were not looked at before the general reader was measured on them.

Most of them are shortened. The comments name the public repositories they are from.
"""

from __future__ import annotations

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
        # Names that the reader does not know. atisioma/Crack-SEG, tensorflow/lingvo
        ("Epoch 4, Loss=0.1614, Dice=0.634, mGap=0.514",
         "epoch=4epoch, loss=0.1614, dice=0.634, m_gap=0.514"),
        ("step:   905 log_pplx:4.96068 loss:4.96068",
         "step=905step, log_pplx=4.96068, loss=4.96068"),
        # The phase alone. HhJjPp32/BP, bjorvack/lorcana-training
        ("Epoch   100 | Train=0.374781 | Val=0.134477",
         "epoch=100epoch, train=0.374781, val=0.134477"),
        ("[pretrain] epoch   1/40  train=35.0026  heldout=26.8717  (best)",
         "epoch=1epoch, train=35.0026, heldout=26.8717"),
        # Settings and times are no metrics. hanv14/HP-VADE, NeoMakesGames/parameter-golf
        ("Loss weight: 0.5, gamma: 0.1, eta: 3.5", ""),
        ("step:7/9 train_loss:1.98 train_time:7161125ms step_avg:43.72ms",
         "step=7step, loss=1.98, train_time=7161125ms, step_time=43.72ms"),
        # DigitalWNZ/SpiderSolitair_RL_Python, Jadeeeey/ColossalAI-Dreambooth
        ("|    value_loss           | 333       |", "value_loss=333"),
        ("INFO: max GPU_mem cost is 3806.513671875 MB", ""),
        # fibonacci-2/aladdin, North-Shore-AI/tinkerer
        ("HellaSwag accuracy: 2536/10042=0.2525", "hella_swag_accuracy=0.2525"),
        ("[train] step=1/320 loss=2330.8 invalid_rate=0.5 (0/8)",
         "step=1step, loss=2330.8, invalid_rate=0.5"),
        # thtrieu/darkflow
        ("step 1799 - loss 73.46 - moving ave loss 74.08",
         "step=1799step, loss=73.46, moving_ave_loss=74.08"),
        # Bars: of no name, of other work, of an evaluation, begun.
        # wenyuan-wu/chemprot-drugprot_testing_ground, B4rtekk1/CGPT,
        # Zechtro/EEG-to-Text_Conformer-Transducer, Kangkang-wky/gaussian-splatting
        (" 55%|#####4    | 35664/65137 [00:37<00:26, 1097.78it/s]",
         "step=35664step, throughput=1097.78it/s"),
        ("Loading checkpoint shards: 100%|##########| 4/4 [00:02<00:00,  1.90it/s]", ""),
        ("Tokenizing [=====] 100.0% 9843688/9843688 | 414.98 MiB/s | Total time: 22.62 s", ""),
        ("Evaluating:   8%|7         | 1/13 [00:00<00:02,  4.65it/s]",
         "batch=1batch, val_throughput=4.65it/s"),
        ("Training progress:   0%|          | 0/300 [00:00<?, ?it/s, Loss=0.2493, psnr=13.42]",
         "step=0step, loss=0.2493, psnr=13.42"),
        # ILoveU3D/DTV-net, hanv14/HP-VADE
        ("Epoch 0:   0%|          | 1/301 [00:09<48:51,  9.77s/it, loss:994.8,epoch mean:99.3]",
         "step=1step, epoch=0epoch, step_time=9.77s/it, loss=994.8, epoch_mean=99.3"),
        ("Epoch 0:  50%|#####     | 2142/4282 [00:41<00:41, 51.05it/s, v_num=0, train_loss=nan.0]",
         "step=2142step, epoch=0epoch, throughput=51.05it/s, loss=nan"),
        # Rates and times of other things. Amiel-Kurtis/spacenet6, MichaelHL-ai/tensorflow_PSENet
        ("60000/60000 [=====] - 87s 1ms/sample - loss: 0.5768",
         "step=60000step, sample_time=1ms, loss=0.5768"),
        ("Step 10, loss 0.9581, 92.09 seconds/step, 0.09 examples/second",
         "step=10step, loss=0.9581, step_time=92.09seconds/step, throughput=0.09examples/second"),
        # Steps. open-mmlab/OpenPCDet, ZhouKai90/SSH-keypoint, TuVon010/uavdrl0307
        ("Train:    1/3 ( 33%) [  49/323 ( 15%)]  Loss: 36.77 (81.7)  LR: 1.351e-04",
         "step=49step, epoch=1epoch, loss=36.77, learning_rate=0.0001351"),
        ("Epoch[5] Batch [0-20]\tSpeed: 25.77 samples/sec\tM0_RPNAcc=0.99",
         "epoch=5epoch, step=20batch, throughput=25.77samples/sec, m0_rpnacc=0.99"),
        ("Algo mappo Exp check updates 5/1000 episodes, total num timesteps 1800/300000, FPS 38.",
         "step=5updates, timesteps=1800timesteps, throughput=38"),
        ("Episode    1: Reward=-27.687 | Lives:14 | Waves:1/3", "episode=1episode, reward=-27.687"),
        # mahaoxiang822/Boundary-Guided-Context-Aggregation
        ("Epoch: [1/120][180/3368] Data 0.002 (0.574) Batch 0.818 (3.887) Loss 11.8774",
         "step=180step, epoch=1epoch, data_time=0.002, step_time=0.818, loss=11.8774"),
    ],
)  # fmt: skip
def test_lines(line: str, expected: str) -> None:
    assert found(line) == expected


def test_text_behind_a_bar_is_a_line_of_its_own() -> None:
    # From iiicellled/Clean-Code-Qwen.
    line = " 55%|#####5    | 100/181 [16:15<13:08,  9.73s/it]{'loss': 0.6156, 'epoch': 0.06}"
    assert found(line) == "step=100step, step_time=9.73s/it, loss=0.6156, epoch=0.06"


def test_a_begun_bar_of_lightning_repeats_old_values() -> None:
    # From Yatsuiii/Brain-Connectivity-GCN.
    line = "Epoch 1:   0%|          | 0/28 [00:00<?, ?it/s, v_num=50, val_loss=0.663]"
    assert found(line) == "step=0step, epoch=1epoch"


def test_a_header_with_notes() -> None:
    # From nerfstudio-project/nerfstudio.
    header = "Step (% Done)       Train Iter (time)    ETA (time)           Train Rays / Sec"
    row = "4090 (81.78%)       43.140 ms            39 s, 300.687 ms     14.86 M"
    metrics = found(header, row)
    assert "step=4090" in metrics
    assert "throughput=14860000" in metrics
