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
    r"sav(?:e|ed|ing)(?! dict for)|[a-z]*warn(?:ing)?|bitrate|"
    r"deprecat\w*|config(?:uration)?|namespace|arguments?|hyperparameters|usage|expected|"
    r"download\w*|translated|generated?|inference)\b|^Traceback|^\s*File |\?(?:it|s)/|"
    r"(?-i:[a-z]Error\b|WARNING)",
    re.IGNORECASE,
)
#: Progress bars count many things. Those without a loss count only behind such words or a row of
#: numbers; for bare ones there is the pattern of tqdm.
OTHER_BAR = re.compile(
    r"(?!\W*(?:(?:train\w*|epoch|steps?|iter\w*|batch\w*|episode|progress)[^A-Za-z%|]*)+%|"
    r"\s*[0-9][0-9.,/GMK\s]{12,}:?\s+[0-9]+%).*(?:[0-9]%\||\[[0-9:]+<)",
    re.IGNORECASE,
)
BEFORE_BAR = re.compile(rf":\s+{BAR}")
_BAR = re.compile(r"(?<![0-9.])[0-9]+%(?:\|[^|]*\||[ ]+(?=[0-9]+/[0-9]+[ ]*\[))")
#: What another part of the program printed behind a bar.
_BEHIND_BAR = re.compile(r"(\[[0-9:]+<[^\[\]]*\])(?!.*[Ll]oss)[^\s\]].*")
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
    | (?<![\w./-])[\w.-]++(?:/[\w.-]++)++(?:(?<=\.[a-z]{2})|(?<=\.[a-z]{3})|(?<=\.[a-z]{4}))
    """,
    re.ASCII | re.VERBOSE,
)
# Settings of a score, dates, durations, hexadecimal numbers, versions, times, options.
_JUNK = re.compile(
    rf"""
      @[ ]?\[[^\[\]]*\]
    | [0-9]{{1,2}}/[0-9]{{1,2}}[ T-]{_CLOCK}
    | (?<![\w.])[0-9]+[ ](?:days?|hours?|hrs?|minutes?|mins?)\b(?:[ ,]*(?:and[ ])?[0-9.]+[ ]\w+)?
    | (?<!\w)0x[0-9A-Fa-f]+
    | (?<![\w.])[0-9]{{1,4}}(?:[-_][0-9]{{1,4}}){{2,}}(?:[ T_]?[0-9]+:[0-9.:,+Z]*)?
    | (?<![\w.])[0-9]+/[0-9]+/[0-9]+(?![\w.])
    | (?<![\w.])v?(?:[0-9]+\.){{2,}}[0-9]\w*(?:[+-]\w+)*
    | (?:\b[0-9]+[ ]days?,?[ ]?)?(?<![\w.:])[0-9]{{1,3}}:[0-9]{{2}}(?::[0-9]{{2}})?(?:[.,][0-9]+)?
        (?![\w.])(?![ ]*[:=])
    | (?<![\w.])[0-9]+(?:d|h|hr|hrs|min|mins|m)(?:[ :,]*[0-9.]+(?:h|m|s|min|mins|sec|secs)\b)+
    | (?<!\S)--?[A-Za-z][\w-]*(?:[= ][-+]?[0-9][\w.]*)?
    """,
    re.ASCII | re.VERBOSE,
)
#: As Chinese and Japanese texts contain them.
_FULL_WIDTH = str.maketrans("\uff1a\uff0c\uff1d\uff08\uff09\u3010\u3011", ":,=()[]")
#: epoch_3, loss0.51
_GLUED = re.compile(
    r"\b(?:(epoch|step|iter|iteration|batch|ep|it|itr|ite|round|episode)[-_]?"
    r"(?=[0-9]+\b(?![.]\w))|([a-z_]*loss)(?=[0-9]+[.][0-9]{2}))",
    re.IGNORECASE,
)
#: epoch/iter: 19/5159
_COUNTERS = re.compile(
    r"\b(epoch|ep)/(iter|step|batch|it)\w*[^\w/]{1,4}([0-9]+)/([0-9]+)\b", re.ASCII | re.IGNORECASE
)
_SPREAD_RATE = re.compile(r"(?<=[a-z]) / (?=[Ss])")


def ascii_signs(text: str) -> str:
    """Return the text with the ASCII forms of the signs that Chinese and Japanese texts use."""
    return text if text.isascii() else text.translate(_FULL_WIDTH)


def without_text_behind_bar(text: str) -> str:
    """Return the text without what another part of the program printed right behind a bar."""
    return _BEHIND_BAR.sub(r"\1", text) if "<" in text else text


def removed(text: str) -> str:
    """Return the text with a gap for each piece of junk, and `epoch_3` as `epoch 3`."""
    head = _HEAD.match(text)
    if head is not None:
        text = GAP + text[head.end() :]
    if "/" in text or ".py:" in text:
        text = _COUNTERS.sub(r"\1 \3 \2 \4", text)
        text = _SPREAD_RATE.sub("/", _PATH.sub(GAP, text))
    if "%" in text:
        text = _BAR.sub(BAR, text)
    return _GLUED.sub(r"\1\2 ", _JUNK.sub(GAP, text))
