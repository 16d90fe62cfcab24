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
    r"download\w*|tokenized?|translated|generated?|inference)\b(?! (?:time|loss)\b)|"
    r"^Traceback|^\s*File |(?-i:[a-z]Error\b|WARNING)|[0-9]{6}(?:[.][0-9]+)?it/s|\b0us/step$",
    re.IGNORECASE,
)
#: Also with the bar behind it: 40% \u2501\u2501\u2501 4/10
_PERCENT = r"(?<![0-9.])[0-9]+%(?:\||[ ]+(?:[\u2500-\u257f]+[ ]+)?(?=[0-9]+/[0-9]))"
#: Progress bars that count other things than the steps of the training or an evaluation.
OTHER_BAR = re.compile(
    r"(?:(?!%[| ]).)*?(?<![a-z])(?:(?:re|un|pre)?-?(?:load|process|calculat|comput)|map\b(?!@)|"
    r"filter|token|extract|generat|convert|resolv|sav|fetch|build|creat|cach|pars|read|scan|import|upload|"
    r"collect|prepar|index|(?:en|de)cod|render|predict|sanity|pack|group|merg|copy|split|check|"
    r"shard|files?\b|anchor|writ|clean|evolv|compil|warm|sampl|infer|inspect|detect|quanti|prun)"
    rf".*?(?:{_PERCENT}|:[ ][0-9]+(?:it|[ ]examples)[ ])",
    re.IGNORECASE,
)
#: Bars of evaluations, also the one that ultralytics prints.
VALIDATION_BAR = re.compile(
    rf"(?:(?!%[| ]).)*?(?:\b(?:[Vv]al(?:id\w*)?|[Tt]est(?:ing)?|[Ee]val\w*)\b|Class +Images)"
    rf"[^%|]*(?:{_PERCENT})"
)
TRAINING_BAR = re.compile(
    r"\W*(?:(?:train\w*|ep(?:och)?s?|steps?|iter\w*|batch\w*|episode|progress)\b[^A-Za-z%|]*)+(?:%|0it)",
    re.IGNORECASE,
)
#: A bar before its first step.
BEGUN_BAR = re.compile(r"\?[ ]?(?:it|step|batch)/s")
#: The same of Lightning, with the values of the epoch before.
OLD_BAR = re.compile(r"\bEpoch [0-9]+: .*\[00:00<\?,.*(?:v_num|train|val)")
BEFORE_BAR = re.compile(rf":\s+{BAR}")
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
RULES = ("-", "=", "*", "#", "_", "~")
_RULE = re.compile(r"[ ]*([-=*#_~])\1\1")
#: | updates | 40 |, and also a name that is indented far
_CELL = re.compile(r"[ ]*\|[^|]*\|[ 0-9]*\|[ ]*|[ ]{12,}[A-Z][^|]*")
#: Addresses, places in code and paths. Each of them contains a slash or a colon.
_PATH = r"""(?x)
      (?<!\w)[A-Za-z][\w+.-]{1,20}://\S*
    | (?<![\w.-])[\w.-]+\.py:[0-9]+(?:\[[0-9]+\])?
    | (?<![\w.%)\]])(?:\.{0,2}|~)/[\w.=+-]+(?:/\S*)?
    | (?<![\w./-])[\w.-]++(?>(?:/[\w.-]++)+)(?:(?<=\.[a-z][a-z0-9])|(?<=\.[a-z]{3})|(?<=\.[a-z]{4}))
"""
# Settings of a score, tags of mpirun inside a line, dates, durations, hexadecimal numbers,
# versions, times, options.
_JUNK = rf"""(?x)
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
        (?!\w|[.]\w)(?![ ]*[:=])
    | (?<![\w.])[0-9]+(?:d|h|hr|hrs|min|mins|m)(?:[ :,]*[0-9.]+(?:h|m|s|min|mins|sec|secs)\b)+
    | \b(?:device|grad_fn|dtype)=[\w.]*(?:'[^']*'|<\w+>)?
    | (?<=[:=(\[{{, ])(?:True|False|None)(?=[\]}}),;])
    | (?<!\S)--?[A-Za-z][\w-]*(?:[= ][-+]?[0-9][\w.]*)?
    """
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
_TO = r"(?:-+>|\u2192|to)[ ]*(?=[-+]?[0-9.])"
_COUNTED = "(?:epoch|step|iter|iteration|batch)"
#: A sign that a text must contain, what is replaced in it, and what stands in its place.
_REPLACED = (
    # Tabs and blanks between a name and its number.
    ("\t", r"(?<=[:=])[ ]*\t[ \t]*", " "),
    # 9.50kit/200kit
    ("it/", r"(?<![\w.])([0-9.]+[kM]?)it/[0-9.]+[kM]?it\b", r"step \1"),
    ("/", _PATH, GAP),
    (".py:", _PATH, GAP),
    ("/", r"(?<=[a-z]) / (?=[Ss])", "/"),
    # Of the source and the target: 21889/22994 tok/s
    ("/", r"(?<![\w./])([0-9]+)/[ ]*([0-9]+)(?=[ ]tok/s)", r"\1 src tok/s; \2 tgt"),
    # accuracy: 2536/10042=0.2525
    ("/", r"(?<![\w.])[0-9]+/[0-9]+[ ]?=[ ]?(?=[0-9]*\.[0-9])", ""),
    # Between a name and its new value: improved from 5.0 to 3.2, decreased (0.7 --> 0.6)
    (" from ", rf"['\"]?[ ](?:improve|(?:de|in)crease)[ds]?[ ]from[ ]\S+[ ]*{_TO}", ": "),
    ("ed (", rf"['\"]?[ ](?:improved|(?:de|in)creased)[ ]\(\S+[ ]*{_TO}", ": "),
    (" reached ", r"['\"]?[ ]reached[ ](?=[-+]?[0-9.])", ": "),
    # An old value before its new one: acc: 0.5 --> 0.6
    ("->", rf"(?<=[:=])[ ]*(?:[-+]?[0-9.]+(?:e[-+]?[0-9]+)?|inf)[ ]*{_TO}", " "),
    # The name of a saved file, which contains its epoch and loss.
    (
        "av",
        r"(?<![\w./=-])[\w=-][\w.=+-]*\.(?:pth?|ckpt|h5|hdf5|keras|tar|pkl|model|npz|safetensors|onnx)\b",
        GAP,
    ),
    # In what Python prints of a tuple: ('loss: ', 0.5, ' acc: ', 0.9)
    ("',", r"u?'[ ]?([A-Za-z][^'\":=]{0,30}?)[ :=]{0,5}',[ ]*(?=[-+0-9.{\[])", r"\1: "),
    # A text in a list, and not the name of a number.
    ("'", r"'[A-Za-z][^']*'(?=[,)\]}])", GAP),
    ('"', r"\"[A-Za-z][^\":]*\"(?=[,)\]}]|$)", GAP),
    # Weights of losses: Normalizer: (iou: 0.07, obj: 1.00)
    (
        ": ",
        r"(?i)\b(?:normalizers?|(?:loss[ _])?weights?|coeff?s?|coefficients?)[ ]?[:=][ ]?"
        r"(?:\([^()]*\)|\{[^{}]*\}|\[[^\[\]]*\])",
        GAP,
    ),
    # losses/q1_loss 132.25 102000
    (
        "/",
        r"^([A-Za-z]\w*(?:/\w+)+)[ ]+\[?([-+]?[0-9]+\.[0-9e+-]+)\]?[ ]+([0-9]+)$",
        r"\1: \2 step \3",
    ),
    # 250 val 5.51
    ("", r"^([0-9]+) (train|val|valid|test) (?=[0-9]+\.[0-9]+$)", r"step \1 \2 loss: "),
    # loss(x, y) = 0.51
    ("oss(", r"(?i)\b(loss|cost)\([a-z]\w*(?:,[ ]*[a-z]\w*)*\)(?=[ ]*=)", r"\1"),
    # At iterate    5    f=  9.7D+00, as L-BFGS-B of Fortran prints it
    ("At iterate", r"^At iterate([ ]+[0-9]+)[ ]+f=", r"iteration\1 objective ="),
    ("D", r"(?<=[0-9])D(?=[+-][0-9]{2}(?![0-9]))", "e"),
    # mAP@.5:.95
    ("@", r"@0?[.]50?:0?[.]95", "50-95"),
    # Batch [0-20], [ 40:500]
    ("[", r"(?<=[a-z][ ]\[)[0-9]+-(?=[0-9]+\])", ""),
    ("[", r"(?<=\[)([ ]*[0-9]+):(?=[0-9]{3,}\])", r"\1/"),
    # t(8): 0.22
    (")", r"(?<![\w.])([A-Za-z]\w*)\(([0-9]+)\)(?=[ ]*[:=])", r"\1_\2"),
    # The rank in the logs of icefall: (0/8) Epoch 1, batch 50
    ("/", r"^\W*\([0-9]+/[0-9]+\)(?=[ ]+Epoch)", ""),
    # [=====>    ] 40/90
    ("=", r"\[=[=>. -]{7,}\](?=[ ]*[0-9]+/)", BAR),
    # (3, 100) loss 0.51
    ("(", r"^\(([0-9]+,[ ]?[0-9]+)\)", r"[\1]"),
    # Bars, and their units of several words: 7.80kit/s, 2.07s/train batch, 2.12mini-batch/s
    ("%", r"(?<![0-9.])[0-9]+%(?:\|[^|]*\||[ ]+(?=[0-9]+/[0-9]+[ ]*\[))", BAR),
    (BAR, r"(?<=[0-9])[ ]?(m?s/)(?:[A-Za-z]+[ -])+(?=[A-Za-z]+[\],])", r" \1"),
    (BAR, r"(?<=[0-9])[ ]?(?:[A-Za-z]+[ -])+(?=[A-Za-z]+/s[\],])", " "),
    (BAR, r"(?<=[0-9])([kM])(?=it/s)", r"\1 "),
    # Train loss 100 0.48, loss[100] = 0.48, but not: loss 1 0.53 loss 2 0.62
    (
        "oss",
        r"(?i)^((?:(?!loss).)*loss)[ \[]([0-9]++)\]?[ ]*[:= ][ ]*(?=[0-9]*\.[0-9])(?!.*loss)",
        r"\1 at step \2: ",
    ),
    # epoch7-batch-50:0.198
    ("-", rf"(?i)\b({_COUNTED}[-_ ]?[0-9]+)[-_](?={_COUNTED}[-_]?[0-9])", r"\1: "),
    (":", rf"(?i)\b({_COUNTED}[-_ ]?[0-9]+):(?=[0-9]+[.][0-9])", r"\1: "),
    ("", _JUNK, GAP),
    # epoch_3, loss0.51
    ("", rf"(?i)\b({_COUNTED}|ep|itr?|ite|round|episode)[-_]?(?=[0-9]+\b(?![.]\w))", r"\1 "),
    ("oss", r"(?i)\b([a-z_]*loss)(?=[0-9]+[.][0-9]{2})", r"\1 "),
)
_REWRITES = tuple((sign, re.compile(regex, re.ASCII), new) for sign, regex, new in _REPLACED)


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


def frame(text: str) -> str:
    """Return the sign that is at both ends of a line: - for `--- step 40 ---`, | for a cell."""
    head = _HEAD.match(text)
    rule = _RULE.match(text, head.end() if head is not None else 0)
    return rule[1] if rule is not None else "|" if _CELL.fullmatch(text) else ""


def removed(text: str) -> str:
    """Return the text with a gap for each piece of junk, and `epoch_3` as `epoch 3`."""
    head = _HEAD.match(text)
    text = text if head is None else text[head.end() :]
    if frame(text):
        # ----- step 40 -----
        text = text.strip("-=*#_~ ")
    text = text if head is None else GAP + text
    for sign, regex, new in _REWRITES:
        if sign in text:
            text = regex.sub(new, text)
    return text
