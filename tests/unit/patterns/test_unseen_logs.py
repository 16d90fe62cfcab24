"""Lines of logs that were not looked at before the general reader was measured on them.

Most of them are shortened. The comments name the public repositories they are from.
"""

from __future__ import annotations

import pytest

from tests.unit.patterns import last_line


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
    assert last_line.metrics(line) == expected


def test_text_behind_a_bar_is_a_line_of_its_own() -> None:
    # From iiicellled/Clean-Code-Qwen.
    line = " 55%|#####5    | 100/181 [16:15<13:08,  9.73s/it]{'loss': 0.6156, 'epoch': 0.06}"
    assert last_line.metrics(line) == "step=100step, step_time=9.73s/it, loss=0.6156, epoch=0.06"


def test_a_begun_bar_of_lightning_repeats_old_values() -> None:
    # From Yatsuiii/Brain-Connectivity-GCN.
    line = "Epoch 1:   0%|          | 0/28 [00:00<?, ?it/s, v_num=50, val_loss=0.663]"
    assert last_line.metrics(line) == "step=0step, epoch=1epoch"


def test_a_header_with_notes() -> None:
    # From nerfstudio-project/nerfstudio.
    header = "Step (% Done)       Train Iter (time)    ETA (time)           Train Rays / Sec"
    row = "4090 (81.78%)       43.140 ms            39 s, 300.687 ms     14.86 M"
    metrics = last_line.metrics(header, row)
    assert "step=4090" in metrics
    assert "throughput=14860000" in metrics


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        # The larger counter goes on from epoch to epoch. acm5656/ssd_pytorch
        ("epoch : 231  iter : 119990  step : 332  loss : 2.75",
         "epoch=231epoch, step=119990iter, batch=332step, loss=2.75"),
        ("epoch 2 iter 40/500 step 1040 loss 0.51",
         "epoch=2epoch, iter=40iter, step=1040step, loss=0.51"),
        # sebtheiler/tutorials, openai/baselines
        ("Game number: 010  Frame number: 07943478  Average reward: 115.7",
         "number=10number, step=7943478frame_number, reward=115.7"),
        ("| misc/total_timesteps    | 1408          |", "step=1408total_timesteps"),
        ("| mse_q0    | 0.156    |", "mse_q0=0.156"),
        ("| anchor_iou | 0.5 |", ""),
        ("target_mse: 0.1", ""),
        # A list without commas, and one with something else in it. jiwoon-ahn/irn
        ("step: 40/ 90 loss:0.36 0.32 2.84 imps:26.6",
         "step=40step, loss=0.36, loss_2=0.32, loss_3=2.84, throughput=26.6"),
        ("step: 40 loss: 0.36 0.32 2.84 12.3 s", "step=40step, loss=0.36"),
        ("250 val 5.51", "step=250step, val_loss=5.51"),
        ("information criterion of loss: 0.5", "loss=0.5"),
        # Counters. ikostrikov, sfujimoto, TensorFlow's and PyTorch's tutorials
        ("Episode: 12, total numsteps: 1234, episode steps: 500, reward: 12.3",
         "episode=12episode, step=1234numsteps, reward=12.3"),
        ("Total T: 12345 Episode Num: 12 Episode T: 500 Reward: 12.5",
         "step=12345t, episode=12num, reward=12.5"),
        ("Timesteps So Far: 100", "step=100timesteps_so_far"),
        ("After 100 training step(s), loss on training batch is 0.51.",
         "step=100step, batch_loss=0.51"),
        ("100 steps: loss 0.51", "step=100steps, loss=0.51"),
        ("3 steps: install, configure, run", ""),
        ("(3, 100) loss 0.51", "epoch=3epoch, step=100step, loss=0.51"),
        ("(10 classes, 5000 images) accuracy 0.9", "accuracy=0.9"),
        ("12.3s step 100 loss 0.51", "step=100step, loss=0.51"),
        ("  [========>      ] 40/90 - Class: 2.12, Acc: 0.24",
         "step=40step, class=2.12, accuracy=0.24"),
        ("[INFO 10:00:00] my_main Recent Stats | t_env:      10000 | Episode:       12",
         "step=10000t_env, episode=12episode"),
        ("a.py run [line:60] INFO --------------Round 4--------------", "step=4round"),
        # A letter that is not a unit, a rank, a share. golbin/TensorFlow-Tutorials, HRLTY/TP-GAN
        ("Epoch: 0564 D loss: nan G loss: nan", "epoch=564epoch, d_loss=nan, g_loss=nan"),
        ("Epo[ 0][   2/ 771][t24.60] d_l:0.5000", "step=2step, epoch=0epo, d_l=0.5"),
        ("(0/8) Epoch 1, batch 50, loss[loss=0.51, over 7000.00 frames. ], batch size: 20",
         "epoch=1epoch, step=50batch, loss=0.51"),
        ("Progress:  45.2% words/sec/thread:   12345 lr:  0.1 loss: 0.51",
         "throughput=12345words/s, learning_rate=0.1, loss=0.51"),
        # awslabs/dgl-ke, lightgbm-org/LightGBM, Lightning-AI/litgpt
        ("[proc 0][Train](10/40) average pos_loss: 0.97", "step=10step, average_pos_loss=0.97"),
        ('#> [1] "[3]:  train\'s binary_logloss:0.19"', "step=3step, binary_logloss=0.19"),
        ("iter 77 step 39: loss 10.8, iter time: 214.40ms",
         "iter=77iter, step=39step, loss=10.8, step_time=214.4ms"),
        # A path, its value and the step. mlaux1/rl-blox
        ("losses/q1_loss 132.25 102000", "losses_q1_loss=132.25, step=102000step"),
        # Phases of unknown names. speechbrain/speechbrain
        ("epoch: 76, lr: 1.50e-04 - train si-snr: -2.11e+01 - valid si-snr: -2.06e+01",
         "epoch=76epoch, learning_rate=0.00015, si_snr=-21.1, val_si_snr=-20.6"),
        # licongguan/ILM-ASSL, sirius-ai/MobileFaceNet_TF, FluxML/model-zoo
        ("iter [40/500] LR 0.002 Sup 1.46 Unsup 0.26 mIoU 80.7",
         "step=40iter, learning_rate=0.002, sup=1.46, unsup=0.26, m_iou=80.7"),
        ("total loss is 47.09 , inference loss is 47.01, time 229.38 samples/sec",
         "total_loss=47.09, inference_loss=47.01, throughput=229.38samples/sec"),
        ("loss(x, y) = param(0.09)", "loss=0.09"),
        # Weights of the losses. pjreddie/darknet
        ("(iou loss, Normalizer: (iou: 0.07, obj: 1.00)) iou_loss = 9.5, total_loss = 9.6",
         "iou_loss=9.5, total_loss=9.6"),
        # Unknown names with their means. CHENGY12/CausalHTP, ML4HPC/JAX-CFD
        ("Test: [0/2]\tSpread 1.20 (1.21)", "batch=0batch, spread=1.2"),
        ("[3/9] Linking size 1.20 MB", ""),
        ("Evaluated 160/287 with L2 loss 0.0003", "batch=160batch, val_l2_loss=0.0003"),
        # Boosting: XGBoost, LightGBM, CatBoost.
        ("[0]\tvalidation_0-rmse:0.51\tvalidation_1-rmse:0.61",
         "step=0step, val_rmse=0.51, val_rmse_1=0.61"),
        ("[40]\ttraining's l2: 0.21\tvalid_1's l2: 0.31", "step=40step, l2=0.21, val_l2_1=0.31"),
        ("    50:\tlearn: 2.41\ttotal: 375ms\tremaining: 3.3s", "step=50iteration, learn=2.41"),
        # Stan, MALLET, scikit-learn, MLX
        ("Chain 1: Iteration:   1 / 250 [  0%]  (Adaptation)", "step=1iteration"),
        ("<10> LL/token: -9.11", "step=10step, ll_token=-9.11"),
        ("[t-SNE] Iteration 25: gradient norm 0.00048. Finished.",
         "step=25iteration, grad_norm=0.00048"),
        ("[t-SNE] Error after 100 iterations with early exaggeration: 0.65",
         "step=100iterations, error=0.65"),
        ("Iter 100: Saved adapter weights to adapters.npz.", "step=100iter"),
        ("Step 2: Generating the data", ""),
        # A batch behind the metrics is a size. Anson-Saju-George/DA-AT-VFI
        ("[000500/50000] X4K    | loss 0.048 | GPU 92% | 0.12 it/s | batch 16",
         "step=500step, loss=0.048, throughput=0.12it/s"),
        ("[500/50000] loss 0.048, batch 16/40", "loss=0.048, step=16batch"),
        # JohnnyKoshev/rl-carracing
        ("Timesteps: 1000/200000, Remaining Timesteps: 199000, Estimated Time Remaining: 13:15:44",
         "step=1000timesteps"),
        ("Remaining steps: 10/100", ""),
        # An unknown metric of a phase. DeepGraphLearning/KnowledgeGraphEmbedding, marian-nmt/marian
        ("Valid HITS@1 at step 40: 0.002820", "step=40step, val_hits_1=0.00282"),
        ("Number of models at step 40: 3.5", ""),
        ("[valid] Ep. 1 : Up. 200 : chrf : 2.35 : new best", "epoch=1ep, step=200up, chrf=2.35"),
        # YiandLi/SimCSE-Pytorch, MehakArora/GNTPP_Unsupervised
        ("higher corrcoef: 0.5504 in batch: 10, save model", "corrcoef=0.5504, step=10batch"),
        ("Negative Log-Loss decrease from inf to 0.19, saving to out", "negative_log_loss=0.19"),
        # AlexBryl27/drum-generator
        ("3 epoch. discriminator losses: real - 0.718, fake = 0.69,       Generator loss - 0.692",
         "epoch=3epoch, real_loss=0.718, fake_loss=0.69, generator_loss=0.692"),
        ("1 step. Install the package", ""),
        # Of the source and the target. OpenNMT/OpenNMT-py
        ("step 40; acc: 4.41; 21889/22994 tok/s",
         "step=40step, accuracy=4.41, tokens_per_second=21889src tok/s, "
         "throughput=21889src tok/s, throughput=22994tgt tok/s"),
        ("[TRAIN] 40/90 [====>.....] - ETA: 7s - loss: 0.51", "step=40step, loss=0.51"),
        # DLR-RM/stable-baselines3
        ("|    ep_rew_mean     | -1.41e+03 |", "ep_rew_mean=-1410"),
        ("-------------Round number: 3-------------", "step=3number"),
        ("Batch 100/600 done. loss 0.51", "step=100batch, loss=0.51"),
        ("epochs=100 batch=16 imgsz=640 momentum=0.937", ""),
        # Counts beside a score, of the device, and a ratio. CloneNOX/Bi-LSTM-CN-Language-model,
        # Pratic2001/Qwen3-Non-MOE
        ("test accuracy: 20.78%, (512570/2466133)", "val_accuracy=20.78%"),
        ("GPU peak bf16: 165.2 TFLOP/s", ""),
        ("Tokens / optimizer step : 32,768", ""),
        # Optimizers of Fortran and SciPy, and Kaldi
        ("At iterate   50    f=  9.73D+06    |proj g|=  4.7D-01", "step=50iteration, loss=9730000"),
        ("         Current function value: 0.19", "loss=0.19"),
        ("LOG (nnet3-train:Print():a.cc:3) Overall average objective function for 'x' is -0.12",
         "loss=-0.12"),
    ],
)  # fmt: skip
def test_lines_of_other_kinds_of_programs(line: str, expected: str) -> None:
    assert last_line.metrics(line) == expected


def test_tables_with_special_columns() -> None:
    spacy = "E    #       LOSS TOK2VEC  LOSS NER  ENTS_F  SCORE"
    assert last_line.metrics(
        spacy, "---  ------", "  1     600        247.21   1742.35   77.93   0.78"
    ) == ("epoch=1, step=600, loss_tok2vec=247.21, loss_ner=1742.35, score=0.78")
    # Of two lines: Vowpal Wabbit, MATLAB.
    vw = "loss     last          counter         weight    label  predict features     pass"
    assert (
        last_line.metrics(
            "average  since         example        example  current  current  current  current",
            vw,
            "9.717879 9.751401            2            2.0  unknown   0.0000     1393        4",
        )
        == "loss=9.717879, last_loss=9.751401, step=2"
    )
    assert (
        last_line.metrics(
            "|  Epoch  |  Iteration  |  Time Elapsed  |  Mini-batch  |  Mini-batch  |",
            "|         |             |   (hh:mm:ss)   |   Accuracy   |     Loss     |",
            "|=====================================================================|",
            "|       1 |          50 |       00:00:08 |       62.50% |       1.1026 |",
        )
        == "epoch=1, step=50, mini_batch_accuracy=62.5%, mini_batch_loss=1.1026"
    )
    # chainer/chainerrl
    assert (
        last_line.metrics(
            "steps\tepisodes\taverage_loss_policy\taverage_loss_value_func",
            "50099\t52\t-0.01\t0.05",
        )
        == "step=50099, episode=52, average_loss_policy=-0.01, average_loss_value_func=0.05"
    )
    # A column with the phase
    assert (
        last_line.metrics("|  epoch  |  stage  |  loss  |", "|   24    |  valid  | 0.0677 |")
        == "epoch=24, val_loss=0.0677"
    )
    # DeePMD's header is a comment, Stan leaves the last column empty, YOLOv5's bar has no rate.
    assert last_line.metrics(
        "#  step      rmse_val    rmse_trn", "    100      3.33e+00    2.47e+01"
    ) == ("step=100, val_rmse=3.33, rmse=24.7")
    elbo = "## Chain 1:   iter             ELBO   delta_ELBO_mean   notes "
    assert last_line.metrics(elbo, "## Chain 1:    100        -4003.375             1.000") == (
        "step=100, elbo=-4003.375"
    )
    yolo = "      Epoch    GPU_mem   box_loss   obj_loss"
    row = "        0/1      22.4G    0.07281    0.08384: 100%|##########| 1849/1849 13:15"
    assert last_line.metrics(yolo, row).endswith("obj_loss=0.08384, step=1849step")
    assert last_line.metrics(yolo, "---- |") == ""
    # Of metrics that the reader does not know. DEAP/deap, catboost/catboost
    assert (
        last_line.metrics("gen\tnevals\tavg    \tmax", "3  \t300   \t35.51\t48.5")
        == "step=3, avg=35.51, max=48.5"
    )
    assert last_line.metrics("iter\tPassed\tRemaining", "0\t158\t317632") == ""
    assert last_line.metrics("step, then, done", "3, 4, 5.5") == ""
    # As rich draws them.
    assert (
        last_line.metrics(
            "\u2503 Epoch \u2503 Loss \u2503 Acc \u2503",
            "\u2502 3     \u2502 0.51 \u2502 0.81 \u2502",
        )
        == "epoch=3, loss=0.51, accuracy=0.81"
    )
    # One value in brackets. lululxvi/deepxde
    assert (
        last_line.metrics(
            "Step      Train loss    Test loss     Test metric",
            "0         [1.45e+02]    [1.42e+02]    []",
        )
        == "step=0, loss=145, val_loss=142"
    )
