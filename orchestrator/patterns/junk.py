"""What is no metric: lines about other things, and dates, paths, addresses, versions in a line."""

from __future__ import annotations

import re

#: In the place of junk: neither a word nor a sign between a name and its number.
GAP = "\x01"
#: In the place of the bar of a progress bar.
BAR = "\x02"

#: In lines about other things than the progress of the training.
OTHER_LINE = re.compile(
    r"\b(?:load(?:ed|ing)?|resum(?:e|ed|ing)|restor(?:e|ed|ing)|"
    r"[a-z]*warn(?:ing)?|bitrate|"
    r"deprecat\w*|config(?:uration)?|namespace|arguments?|hyperparameters|usage|expected|"
    r"download\w*|tokenized?|translated|generated?|inference)\b(?! time\b)|^Traceback|^\s*File |"
    r"(?-i:[a-z]Error\b|WARNING)",
    re.IGNORECASE,
)
_PERCENT = r"(?<![0-9.])[0-9]+%(?:\||[ ]+(?=[0-9]+/[0-9]+[ ]*\[))"
#: Progress bars that count other things than the steps of the training or an evaluation.
OTHER_BAR = re.compile(
    r"(?:(?!%[| ]).)*?(?<![a-z])(?:(?:re|un|pre)?-?(?:load|process|calculat|comput)|map\b(?!@)|"
    r"filter|token|extract|generat|convert|resolv|sav|fetch|build|creat|cach|pars|read|scan|import|upload|"
    r"collect|prepar|index|(?:en|de)cod|render|predict|sanity|pack|group|merg|copy|split|check|"
    r"shard|files?\b|anchor|writ|clean|evolv|compil|warm|sampl|infer|inspect|detect|quanti|prun)"
    rf".*?(?:{_PERCENT}|%[ ][0-9]+/[0-9]|:[ ][0-9]+(?:it|[ ]examples)[ ])",
    re.IGNORECASE,
)
#: Bars of evaluations, also the one that ultralytics prints.
VALIDATION_BAR = re.compile(
    rf"(?:(?!%[| ]).)*?(?:\b(?:[Vv]al(?:id\w*)?|[Tt]est(?:ing)?|[Ee]val\w*)\b|Class +Images)"
    rf"[^%|]*(?:{_PERCENT})"
)
TRAINING_BAR = re.compile(
    r"\W*(?:(?:train\w*|epoch|steps?|iter\w*|batch\w*|episode|progress)[^A-Za-z%|]*)+%",
    re.IGNORECASE,
)
#: A bar before its first step.
BEGUN_BAR = re.compile(r"\?[ ]?(?:it|step|batch)/s")
#: The same of Lightning, with the values of the epoch before.
OLD_BAR = re.compile(r"\bEpoch [0-9]+: .*\[00:00<\?,.*(?:v_num|train|val)")
BEFORE_BAR = re.compile(rf":\s+{BAR}")
_BAR = re.compile(r"(?<![0-9.])[0-9]+%(?:\|[^|]*\||[ ]+(?=[0-9]+/[0-9]+[ ]*\[))")
_CLOCK = "[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?(?:[.,][0-9]+)?"
#: What a logger prints first.
_HEAD = re.compile(
    rf"""
      .{{0,80}}?\b(?:INFO|DEBUG)\b[\]:)]*
    | [IWEF]?[0-9]{{4}}[ ]{_CLOCK}[ ]+[0-9]+
    | \W*\[[^\[\]]*{_CLOCK}[^\[\]]*\]
    """,
    re.ASCII | re.VERBOSE,
)
#: Addresses, places in code and paths. Each of them contains a slash or a colon.
_PATH = re.compile(
    r"""
      (?<!\w)[A-Za-z][\w+.-]{1,20}://\S*
    | (?<![\w.-])[\w.-]+\.py:[0-9]+(?:\[[0-9]+\])?
    | (?<![\w.%)\]])(?:\.{0,2}|~)/[\w.=+-]+(?:/\S*)?
    | (?<![\w./-])[\w.-]++(?:/[\w.-]++)++(?:(?<=\.[a-z][a-z0-9])|(?<=\.[a-z]{3})|(?<=\.[a-z]{4}))
    """,
    re.ASCII | re.VERBOSE,
)
# Settings of a score, tags of mpirun inside a line, dates, durations, hexadecimal numbers,
# versions, times, options.
_JUNK = re.compile(
    rf"""
      @[ ]?\[[^\[\]]*\]
    | \[[0-9]+,[0-9]+\]<std(?:out|err)>:
    | [0-9]{{1,2}}/[0-9]{{1,2}}[ T-]{_CLOCK}
    | (?<![\w.])[0-9]+[ ](?:days?|hours?|hrs?|minutes?|mins?)\b(?:[ ,]*(?:and[ ])?[0-9.]+[ ]\w+)?
    | (?<!\w)0x[0-9A-Fa-f]+
    | (?<=[0-9])(?:st|nd|rd|th)\b
    | (?<![\w.])[0-9]{{1,4}}(?:[-_][0-9]{{1,4}}){{2,}}(?:[ T_]?[0-9]+:[0-9.:,+Z]*)?
    | (?<![\w.])[0-9]+/[0-9]+/[0-9]+(?![\w.])
    | (?<![\w.])v?(?:[0-9]+\.){{2,}}[0-9]\w*(?:[+-]\w+)*
    | (?:\b[0-9]+[ ]days?,?[ ]?)?(?<![\w.:])[0-9]{{1,3}}:[0-9]{{2}}(?::[0-9]{{2}})?(?:[.,][0-9]+)?
        (?![\w.])(?![ ]*[:=])
    | (?<![\w.])[0-9]+(?:d|h|hr|hrs|min|mins|m)(?:[ :,]*[0-9.]+(?:h|m|s|min|mins|sec|secs)\b)+
    | \b(?:device|grad_fn|dtype)=[\w.]*(?:'[^']*'|<\w+>)?
    | (?<=[:=(\[{{, ])(?:True|False|None)(?=[\]}}),;])
    | (?<!\S)--?[A-Za-z][\w-]*(?:[= ][-+]?[0-9][\w.]*)?
    """,
    re.ASCII | re.VERBOSE,
)
#: A text in a list, and not the name of a number.
_QUOTED = re.compile(r"'[A-Za-z][^']*'(?=[,)\]}])|\"[A-Za-z][^\"]*\"(?=[,)\]}])")
#: As Chinese and Japanese texts contain them.
_FULL_WIDTH = str.maketrans("\uff1a\uff0c\uff1d\uff08\uff09\u3010\u3011", ":,=()[]")
#: What Chinese, Japanese and Korean texts call the names and phases of metrics.
_TRANSLATIONS = {
    "train": "训练 訓練 学習 訓練集 训练集 훈련 학습",
    "val": "验证 驗證 検証 验证集 검증",
    "test": "测试 測試 テスト 测试集 테스트",
    "average": "平均 평균",
    "current": "当前 當前 現在 현재",
    "total": "总 總",
    "loss": "损失 損失 损失值 損失値 손실",
    "accuracy": "准确率 準確率 正确率 正解率 精度 정확도",
    "lr": "学习率 學習率 学習率 학습률",
    "epoch": "轮次 轮数 輪次 轮 エポック 에폭 에포크",
    "step": "步数 步 批次 迭代 迭代次数 ステップ 스텝",
    "reward": "奖励 獎勵 報酬 보상",
    "time": "时间 耗时 用时 時間 시간",
    "samples/s": "样本/秒",
    "images/s": "张/秒 枚/秒",
    "steps/s": "步/秒",
    "done": "完成",
}
_ENGLISH = {word: name for name, text in _TRANSLATIONS.items() for word in text.split()}
_ASIAN = "|".join(sorted(_ENGLISH, key=len, reverse=True))
_ASIAN_WORD = re.compile(_ASIAN)
_ASIAN_NAME = re.compile(rf"[ ]?(?:(?:{_ASIAN})[ ]?)+")
#: In "the 3rd epoch" the number comes first.
_ORDINAL = re.compile(rf"第[ ]?([0-9]+)(?:[ ]?/[ ]?[0-9]+)?[ ]?个?[ ]?({_ASIAN}|epoch|step)")
#: Tabs and blanks between a name and its number.
_AFTER_SIGN = re.compile(r"(?<=[:=])[ ]*\t[ \t]*")
#: epoch_3, loss0.51
_GLUED = re.compile(
    r"\b(?:(epoch|step|iter|iteration|batch|ep|it|itr|ite|round|episode)[-_]?"
    r"(?=[0-9]+\b(?![.]\w))|([a-z_]*loss)(?=[0-9]+[.][0-9]{2}))",
    re.IGNORECASE,
)
#: epoch7-batch-50:0.198
_JOINED = re.compile(
    r"\b((?:epoch|step|iter|iteration|batch)[-_ ]?[0-9]+)"
    r"(?:[-_](?=(?:step|iter|iteration|batch)[-_]?[0-9])|:(?=[0-9]+[.][0-9]))",
    re.IGNORECASE,
)
#: Between a name and its new value: improved from 5.0 to 3.2, decreased (0.7 --> 0.6), reached 0.6
_CHANGE = re.compile(
    r"['\"]?[ ](?:(?:improved|decreased|increased)[ ](?:from[ ]|\()\S+[ ]*(?:-+>|\u2192|to)[ ]*|"
    r"reached[ ])(?=[-+]?[0-9.])"
)
_SAVED = re.compile(r"\b[Ss]av(?:ed|ing)\b")
#: The name of a saved file, which contains its epoch and loss.
_FILE = re.compile(r"(?<![\w./=-])[\w=-][\w.=+-]*\.(?:pth?|ckpt|h5|hdf5|keras|tar|pkl|model)\b")
#: mAP@.5:.95
_THRESHOLDS = re.compile(r"@0?[.]50?:0?[.]95")
#: t(8): 0.22
_INDEXED = re.compile(r"(?<![\w.])([A-Za-z]\w*)\(([0-9]+)\)(?=[ ]*[:=])", re.ASCII)
#: 9.50kit/200kit
_OF_ITERATIONS = re.compile(r"(?<![\w.])([0-9.]+[kM]?)it/[0-9.]+[kM]?it\b")
#: accuracy: 2536/10042=0.2525
_FRACTION = re.compile(r"(?<![\w.])[0-9]+/[0-9]+[ ]?=[ ]?(?=[0-9]*\.[0-9])", re.ASCII)
#: Batch [0-20]
_RANGE = re.compile(r"(?<=[a-z][ ]\[)[0-9]+-(?=[0-9]+\])", re.ASCII)
#: [ 40:500]
_OF_TOTAL = re.compile(r"(?<=\[)([ ]*[0-9]+):(?=[0-9]{3,}\])", re.ASCII)
_SPREAD_RATE = re.compile(r"(?<=[a-z]) / (?=[Ss])")


def ascii_signs(text: str) -> str:
    """Return a Chinese, Japanese or Korean text with ASCII signs and English names of metrics."""
    if text.isascii():
        return text
    # Replaced bytes of another encoding.
    text = _ORDINAL.sub(r"\2 \1 ", text.replace("\ufffd", " ").translate(_FULL_WIDTH))
    return _ASIAN_NAME.sub(_in_english, text)


def _in_english(match: re.Match[str]) -> str:
    names = " ".join(_ENGLISH[word] for word in _ASIAN_WORD.findall(match[0]))
    # "loss" and not "loss " before a colon.
    before = match.string[: match.start()][-1:]
    return f"{' ' if before.isalnum() or match[0].startswith(' ') else ''}{names}" + (
        "" if match.string[match.end() : match.end() + 1] in (":", "=", "") else " "
    )


def removed(text: str) -> str:
    """Return the text with a gap for each piece of junk, and `epoch_3` as `epoch 3`."""
    head = _HEAD.match(text)
    if head is not None:
        text = GAP + text[head.end() :]
    if "\t" in text:
        text = _AFTER_SIGN.sub(" ", text)
    if "/" in text or ".py:" in text:
        if "it/" in text:
            text = _OF_ITERATIONS.sub(r"step \1", text)
        text = _FRACTION.sub("", _SPREAD_RATE.sub("/", _PATH.sub(GAP, text)))
    if " improved " in text or "creased " in text or " reached " in text:
        text = _CHANGE.sub(": ", text)
    if _SAVED.search(text):
        text = _FILE.sub(GAP, text)
    if "'," in text or '",' in text:
        text = _QUOTED.sub(GAP, text)
    if "@" in text:
        text = _THRESHOLDS.sub("50-95", text)
    if "[" in text:
        text = _OF_TOTAL.sub(r"\1/", _RANGE.sub("", text))
    if "):" in text or ")=" in text:
        text = _INDEXED.sub(r"\1_\2", text)
    if "%" in text:
        text = _BAR.sub(BAR, text)
    return _GLUED.sub(r"\1\2 ", _JUNK.sub(GAP, _JOINED.sub(r"\1: ", text)))
