"""The names and units of metrics that any program may print, and which kind of metric each is."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from orchestrator.patterns import training_phases

#: counter: step, epoch. A loss, score or rate shows that a line reports metrics; a time does not.
Kind: TypeAlias = Literal["counter", "loss", "score", "rate", "time", "other"]


#: Kinds that show that a line reports metrics.
STRONG: frozenset[Kind] = frozenset(("loss", "score", "rate"))
#: Programs print few names, and each of them in many lines; garbage has any number of them.
_CACHED = 4096


class Meaning(NamedTuple):
    """What a printed name or unit stands for."""

    #: of the metric
    name: str
    kind: Kind
    #: of a rate, if its name says it
    unit: str = ""


_WORD_END = re.compile(r"(?<=[a-z])(?=[A-Z][a-z])")
_OTHER_CHARACTERS = re.compile(r"[^a-z0-9]+")
#: Words in names that do not change what is measured.
_QUALIFIERS = frozenset(
    "avg average averaged mean running current cur curr instant smoothed moving ema batch "
    "minibatch mini epoch step iter iteration total overall final interval window rolling last "
    "reduced value approx".split()
)
#: Before a loss these are prose, not its name.
_PROSE = frozenset(
    "a an and as at by for from got has have in is it no not of on or the this to with was best "
    "if when where your our lowest minimum min max new old previous prev start improving "
    "done finished complete completed".split()
)
#: Before "time" these name a part of a step, or several steps.
_PARTS_OF_STEP = frozenset("forward backward fwd bwd used total gpu cpu optimizer".split())
#: What follows "loss" in the names of settings.
_SETTINGS = frozenset(
    "scale scaler scaling weight weights coef coefs coeff coeffs coefficient fn func function type "
    "name lambda ratio factor balance balancing mode config reduction threshold steps freq "
    "frequency interval every gamma alpha beta window spike implementation impl fusion "
    "backend std range history target tolerance tol delta limit wei".split()
)
#: In the names of numbers that are no metrics.
_OTHER_WORDS = _SETTINGS - frozenset(("alpha", "beta", "gamma", "std")) | frozenset(
    "time timer elapsed elapse eta remaining left duration took takes date version size shape seed "
    "port id rank gpu gpus cuda python torch params parameters param thr device node speed "
    "finished average progress".split()
)
_COUNTERS = {
    "step": (
        "step steps iter iters iteration iterations it itr ite batch batches minibatch update "
        "updates upd up gstep timestep timesteps tick round frame frames game games generation "
        "nupdates niter env_interacts time_steps i mini_batch gen index idx numsteps total_t t_env"
    ),
    "epoch": "epoch epochs ep epo epoch_num",
    "episode": "episode episodes",
}
#: global_step, iter_num, env_steps, total_num_timesteps
_COUNTER_PARTS = re.compile(
    r"(?P<all>(?:(?:total|num|nb|n)_)*)"
    r"(?:(?:g|global|local|current|cur|curr|train|training|trainer|env|environment|agent|optimizer|opt|"
    r"optimization|gradient|grad|learner|boosting|communication|comm)_)*"
    r"(?P<of>.*?)(?:_(?:num|number|nb|idx|index|id|no|i|count|total|sampled|trained|done|so_far))?"
)
#: Counters that may be all that a line says.
ALONE = frozenset(
    "epoch step iter iteration timestep global_step training_step train_step total_timesteps "
    "episode n_updates nupdates frame_number timesteps_total num_env_steps_sampled "
    "optimization_step communication_round comm_round timesteps_so_far".split()
)
_ACCURACIES = (
    "acc accuracy acc1 acc_1 top1 top_1 top1_acc top1_accuracy prec1 prec_1 acc_top1 accuracy_top1"
)
_SCORES = (
    "acc5 acc_5 top5 top_5 top5_acc top5_accuracy prec5 prec_5 ppl perplexity f1 f1_score auc "
    "auroc map map50 miou iou dice bleu rouge wer cer psnr ssim fid recall precision mrr ndcg "
    "r2 rmse mae mse mape nll bpc bpb bpd bits_per_byte elbo kl cross_entropy xent logloss "
    "error err errd errg err_d err_g ce bce objf energy residual fitness "
    "log_likelihood loglik log_prob kld kl_divergence bit_dim bits_dim m_iou m_dice ade fde "
    "inertia approx_kl ll_token merror corrcoef pearson pearsonr spearman spearmanr correlation"
)
_RETURNS = (
    "reward rewards rew return returns ret score ep_rew ep_reward ep_ret ep_return eprew "
    "eprewmean ep_rew_mean episode_reward episode_rewards episode_return episode_score "
    "episodic_return episodic_reward mean_return avg_return average_return total_return"
)
_OTHERS = {
    "learning_rate": "lr l_r learning_rate lrate",
    "grad_norm": "grad_norm gnorm gradnorm gradient_norm norm grad g_norm global_grad_norm",
    "memory": (
        "mem memory max_mem max_memory gpu_mem gpu_memory peak_mem peak_memory vram "
        "memory_allocated max_memory_allocated peak_memory_usage"
    ),
    "mfu": "mfu model_flops_utilization",
    "weight_decay": "wd weight_decay",
    "loss_scale": "loss_scale",
}
_TIMES = {
    "step_time": (
        "step_time iter_time iteration_time batch_time time_per_step time_per_iter "
        "time_per_iteration time_per_batch time_step time_iter time_batch dt step_ms "
        "elapsed_time_per_iteration batch_cost step_seconds time_per_update iter_ms step_avg "
        "step_timing_in_s steptime itertime bt"
    ),
    "epoch_time": "epoch_time time_per_epoch time_epoch",
    "data_time": (
        "data_time data data_cost reader_cost load_time loading_time data_load_time "
        "data_loading_time time_data dataloader_time data_wait"
    ),
    "time": "time time_cost took duration t secs seconds sec",
}
_COUNTED = (
    "it its iter iters iteration iterations step steps batch batches sample samples image "
    "images img imgs im ims example examples ex exs seq seqs sequence sequences sent sents "
    "sentence sentences tok toks token tokens word words frame frames record records row rows utt "
    "utts utterance utterances update updates item items clip clips video videos graph graphs "
    "node nodes game games char chars ray rays point points pixel pixels global_step query queries "
    "pair pairs doc docs env_step env_steps atom atoms edge edges molecule molecules request "
    "requests patch patches voxel voxels transition transitions position positions epoch epochs"
)
COUNTED = frozenset(_COUNTED.split())
_COUNTED_PATTERN = "|".join(sorted(COUNTED, key=len, reverse=True))
_DEVICES = "gpu|device|node|chip|core|rank|thread|worker|actor|proc|process|cpu|card|npu|tpu"
#: images_sec, tokens_per_second_per_gpu, tokens_gpu_s
_RATE = re.compile(
    rf"(?:num_|n_)?({_COUNTED_PATTERN})(?:_per)?(?:_(?:{_DEVICES}))?(?:_per)?"
    rf"_(?:s|sec|secs|second|seconds)(?:_per)?(?:_?(?:{_DEVICES}))?(?:_avg)?"
)
#: ms_per_step, sec_batch, us_sample
_TIME_PER = re.compile(
    rf"(?:[mun]?s|secs?|seconds?)(?:_per)?_(?P<counted>tick|{_COUNTED_PATTERN})", re.ASCII
)
_STEPS = frozenset(
    "it its iter iters iteration iterations step steps batch batches update tick".split()
)
#: rpnacc, cls_accuracy
_ACCURACY = re.compile(r".*acc(?:uracy)?")
#: nllloss, lossD, loss1
_LOSS = re.compile(r".*loss(?:es|[a-z]|[0-9]{1,2})?")
_FLOPS = re.compile(
    r"(?:throughput_)?[tp]_?flops?(?:_s|_per_s|_per_second|s)?"
    r"(?:_(?:per_)?(?:gpu|device|chip))?(?:_s)?"
)
_RATES = frozenset("throughput ips sps wps tps fps tgs ups speed imps hz qps tput thrpt".split())
#: Units without a slash.
RATE_UNITS = frozenset("ips fps wps tps sps hz qps".split())
#: equations/s: whatever is counted, but no sizes
_OTHER_RATE = re.compile(r"(?!.*(?:bit|byte|file|error|packet)s_)[a-z]{2,}s_(?:s|sec|second)")
_LOSSES = frozenset(
    "loss losses los step_loss loss_step reduced_loss loss_function cost cost_function objective "
    "objective_function objective_value obj criterion function_value cost_fcn cost_fn".split()
)
#: loss of the policy, loss on the test set
_LOSS_OF = re.compile(r"((?:\w+ )?loss(?:es)?) (?:of|for|on) (?:the |an? )?(\w.*)", re.IGNORECASE)
_PATH = re.compile(r".*[\w)][/.](\w.*)")
#: losses/ppo/action
_LOSS_PATH = re.compile(r"(?:.*[\W_])?loss(?:es)?/.*", re.IGNORECASE)
#: Loss D 0.51
_LOSS_LETTER = re.compile(r"(?:.*_)?loss_[b-z]")
_TOKENS = re.compile(r"(?:tok|toks|token|tokens|tps|tgs)(?:_|$)")


def _by_alias() -> dict[str, Meaning]:
    scores = [*_SCORES.split(), *_RETURNS.split()]
    meanings = {name: Meaning(name, "score") for name in scores}
    meanings |= dict.fromkeys(_ACCURACIES.split(), Meaning("accuracy", "score"))
    tables: tuple[tuple[Kind, dict[str, str]], ...] = (
        ("counter", _COUNTERS),
        ("other", _OTHERS),
        ("time", _TIMES),
    )
    for kind, table in tables:
        for name, aliases in table.items():
            meanings |= dict.fromkeys(aliases.split(), Meaning(name, kind))
    return meanings


_MEANINGS = _by_alias()
#: Scores that are no settings in longer names either, as iou is in nms_iou.
_MEASURES = frozenset(
    "ppl perplexity f1 auc auroc miou bleu psnr ssim fid mrr ndcg rmse mae mse mape nll bpc wer "
    "cer ce bce elbo".split()
)
_INDEX = re.compile("[a-z]?[0-9]{1,3}")
#: A function, and not its setting.
_VALUE_FUNCTION = re.compile(r"value_func(?:tion)?$")
#: Scores that may be whole numbers.
RETURNS = frozenset(_RETURNS.split())


_PHRASES = frozenset(
    "loss_function loss_value loss_scale loss_train loss_val loss_valid loss_test loss_avg "
    "loss_mean loss_total".split()
)
#: "tokens per iteration", "max steps" are no counters.
_BEFORE_SETTING = re.compile(
    r"(?:.* )?(?:per|max|min|num|number|(?<!end )(?<!loss )of|total|every|each|warmup|save|eval|"
    r"log|episode|best|gpu|device|class|node|rank|worker|sample|image|layer|fold|trial|skipped|nan|remaining|left)",
    re.IGNORECASE,
)


@functools.lru_cache(_CACHED)
def snake(key: str) -> str:
    """Convert a program's name to a metric name; "" if nothing is left."""
    words = _OTHER_CHARACTERS.sub("_", _WORD_END.sub("_", key).lower()).strip("_")
    return f"n{words}"[:64] if words[:1].isdigit() else words[:64]


@functools.lru_cache(_CACHED)
def meaning(printed: str, *, explicit: bool = True) -> Meaning | None:
    """Return what a printed name stands for; None if it is not that of a metric.

    Args:
        explicit: a colon or the like follows, so that it is a name and not prose.
    """
    # A count in simulations, and not time/step.
    key = "timestep" if printed.lower() == "time step" else snake(printed.replace("'s", ""))
    # "the loss becomes nan" is prose.
    is_phrase = " " in printed and "loss" in key and not key.endswith(("loss", "losses"))
    if is_phrase and not (explicit or key in _PHRASES or _LOSS_LETTER.fullmatch(key)):
        return None
    if is_phrase and (loss_of := _LOSS_OF.fullmatch(printed)):
        return meaning(f"{loss_of[2]} {loss_of[1]}")
    if counter := _counter(key):
        return counter
    words = key.split("_")
    last = _MEANINGS.get(words[-1])
    if " " in printed and words[0] in ("loss", "losses") and last and last.kind != "time":
        # lm loss PPL
        return None
    is_validation = any(word in training_phases.VALIDATION for word in words)
    core = [word for word in words if word not in training_phases.WORDS]
    found = _unphased("_".join(core)) or _counter("_".join(core))
    if found is None and " " not in printed and (path := _PATH.match(printed)):
        # train/throughput, _timers/_fps, misc/approx_fps, trainer/global_step, runtime.step
        end = snake(path[1])
        found = _unphased(end) or _unphased(_without_qualifiers(end)) or _counter(end)
        if found is not None and found.kind == "counter" and words[0] in COUNTED:
            # words/batch
            return None
        if found is None and _LOSS_PATH.fullmatch(printed):
            found = Meaning("_".join(core)[:64], "loss")
    if found is None:
        found = _unphased(_without_qualifiers("_".join(core)))
        # Total time is not that of a step, and T_mean is a temperature.
        is_total = found is not None and found.name == "time" and bool({"total", "t"} & {*words})
        if is_total or (found is not None and found.kind == "counter"):
            return None
    if found is None and " " not in printed:
        found = _in_identifier(words)
    if found is None and len(core) < len(words):
        found = _of_phase(core)
    if found is None and explicit and words[0] in ("acc", "accuracy") and len(words) == 2:
        # acc class
        is_setting = words[1] in _SETTINGS | _PROSE
        found = None if is_setting else Meaning(key, "score")
    if found is None:
        return None
    name = training_phases.in_phase(found.name, "val" if is_validation else "")
    return found._replace(name=name)


def _in_identifier(words: Sequence[str]) -> Meaning | None:
    """Return the score that a name of several words is about: mse_q0, recon_mse."""
    is_first = len(words) == 2 and words[0] in _MEASURES and _INDEX.fullmatch(words[1])
    is_score = is_first or (len(words) > 1 and words[-1] in _MEASURES)
    is_other = (_OTHER_WORDS | _PROSE | training_phases.WORDS).intersection(words)
    return Meaning("_".join(words), "score") if is_score and not is_other else None


def _of_phase(core: Sequence[str]) -> Meaning | None:
    """Return what a name is that only a phase makes one: valid_1's auc, training's l2."""
    number, words = (core[0], core[1:]) if core and core[0].isdigit() else ("", core)
    key = "_".join(words)
    found = Meaning(key, "score") if key in ("l1", "l2") else _unphased(key) if number else None
    return found and found._replace(
        name=f"{found.name}_{number}" if number.strip("0") else found.name
    )


def _without_qualifiers(key: str) -> str:
    return "_".join(word for word in key.split("_") if word not in _QUALIFIERS)


def _counter(key: str) -> Meaning | None:
    parts = _COUNTER_PARTS.fullmatch(key)
    found = _MEANINGS.get(key) or (_MEANINGS.get(parts["of"]) if parts else None)
    if found is None or found.kind != "counter":
        return None
    # The first epoch of "current_epoch: 0, epoch: 1" is not the one.
    return found if found.name != "epoch" or key in _MEANINGS else None


@functools.lru_cache(_CACHED)
def may_stand_alone(key: str) -> bool:
    """Tell whether a counter of this name needs no others beside it: epochs = 90 is a setting."""
    parts = _COUNTER_PARTS.fullmatch(key)
    return key in ALONE or (parts is not None and not parts["all"] and parts["of"] in ALONE)


def _unphased(key: str) -> Meaning | None:
    if found := _MEANINGS.get(key):
        return found
    if _FLOPS.fullmatch(key):
        return Meaning("throughput", "rate", f"{'P' if key.startswith('p') else 'T'}FLOP/s")
    rate = _RATE.fullmatch(key)
    if rate is not None or key in _RATES:
        name = "tokens_per_second" if _TOKENS.match(key) else "throughput"
        return Meaning(name, "rate", f"{rate[1]}/s" if rate is not None else "")
    if time_per := _TIME_PER.fullmatch(key):
        counted = time_per["counted"]
        return Meaning(f"{'step' if counted in _STEPS else counted}_time", "time")
    timed, _, time_unit = key.rpartition("_")
    time = _MEANINGS.get(timed)
    if time is not None and time.kind == "time" and time_unit in ("ms", "s", "sec", "seconds"):
        return time._replace(unit=time_unit)
    words = _VALUE_FUNCTION.sub("value", key).split("_")
    if key in _LOSSES:
        return Meaning("loss", "loss")
    if _ACCURACY.fullmatch(key) and not _PROSE.intersection(words):
        return Meaning(key, "score")
    if _LOSS.fullmatch(words[-1]) and not _PROSE.intersection(words):
        return Meaning(key, "loss")
    is_setting = words[-1] in _SETTINGS or _PROSE.intersection(words)
    if "loss" in words and not is_setting and len(words) < 5:
        return Meaning(key, "loss")
    return None


@functools.lru_cache(_CACHED)
def unit_meaning(printed: str) -> Meaning | None:
    """Return what a number with this unit measures: images/sec, s/it, ms per step."""
    if not printed:
        return None
    key = snake(printed)
    if _TIME_PER.fullmatch(key):
        return _unphased(key)
    if printed in ("/s", "/sec"):
        return Meaning("throughput", "rate", "/s")
    if " " in printed and "per" not in key and not _RATE.fullmatch(key):
        # source words/s
        return unit_meaning(printed.partition(" ")[2])
    is_rate = _FLOPS.fullmatch(key) or _RATE.fullmatch(key) or key in RATE_UNITS
    if not is_rate and _OTHER_RATE.fullmatch(key):
        return Meaning("throughput", "rate", printed)
    return _unphased(key) if is_rate else None


@functools.lru_cache(_CACHED)
def last_meaning(words: str, *, explicit: bool = False) -> Meaning | None:
    """Return what the longest part of the words at their end stands for."""
    parts = words.strip().split(" ")
    for first in range(len(parts)):
        found = meaning(" ".join(parts[first:]), explicit=explicit)
        if found is not None:
            # "10/42 of epoch 1"
            is_setting = parts[:first] != ["of"] and _BEFORE_SETTING.fullmatch(
                " ".join(parts[:first])
            )
            is_part = found.name == "time" and parts[first - 1].lower() in _PARTS_OF_STEP
            return None if is_part or (is_setting and found.kind == "counter") else found
    return None


def is_other(key: str, *, is_identifier: bool) -> bool:
    """Tell whether an unknown name is that of a setting, a time or a part of a sentence.

    Args:
        is_identifier: it is printed as one word with underscores.
    """
    words = frozenset(key.split("_"))
    return bool(words & _OTHER_WORDS or (words & _PROSE and not is_identifier))
