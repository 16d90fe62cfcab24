"""The regexes of patterns: shorthands such as {number}, and texts that each match contains."""

from __future__ import annotations

import re

#: A group with a format that float() does not accept.
WITH_FORMAT = re.compile(r"\(\?P<([A-Za-z_]\w*)>\{(thousands|clock)\}")

# Lightning prints nan.0.
_NOT_FINITE = r"[-+]?(?:[nN]a[nN]|[iI]nf(?:inity)?)(?:\.0\b)?"
# Possessive: otherwise Python's re could split a long run of digits at each of them.
NUMBER = rf"[-+]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][-+]?[0-9]++)?|{_NOT_FINITE}"
THOUSANDS = r"[-+]?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?"
_SHORTHANDS = {
    "integer": "[0-9]+",
    "number": f"(?:{NUMBER})",
    "thousands": rf"(?:{THOUSANDS}|[-+]?[0-9]+(?:\.[0-9]+)?)",
    "clock": r"(?:(?:[0-9]+ days?, )?[0-9]+:)?[0-9]{1,2}:[0-9]{2}(?:\.[0-9]+)?",
    "fixed": rf"(?:[-+]?[0-9]+\.[0-9]{{DECIMALS}}|{_NOT_FINITE})",
    "sci": rf"(?:[-+]?[0-9]+\.[0-9]{{DECIMALS}}[eE][-+][0-9]{{2,3}}|{_NOT_FINITE})",
}
_SHORTHAND = re.compile(r"\{(?:(integer|number|thousands|clock)|(fixed|sci)([1-9]))\}")
_TOKEN = re.compile(
    r"(?P<class>\[\^?\]?(?:\\.|[^\]\\])*\])|\\(?P<escaped>[^\w\s])|(?P<open>\()|(?P<close>\))"
    r"|(?P<repeat>[*+?]|\{[0-9,]*\})|(?P<other>\\.|[.^$])|(?P<plain>.)",
    re.DOTALL | re.ASCII,
)


def expanded(regex: str, *, shipped: bool) -> str:
    """Replace the shorthands.

    shipped: for Python's re. RE2, which matches the regexes of users, neither needs nor accepts
    possessive repeats.
    """

    def full(match: re.Match[str]) -> str:
        text = _SHORTHANDS[match[1] or match[2]].replace("DECIMALS", match[3] or "")
        return text if shipped else text.replace("++", "+").replace("*+", "*")

    return _SHORTHAND.sub(full, regex)


def required_text(regex: str) -> str:
    """Return the longest text that each match of a regex contains; "" if there is none.

    Only characters outside groups count.
    """
    runs, depth = [""], 0
    for token in _TOKEN.finditer(regex):
        kind = token.lastgroup
        depth += (kind == "open") - (kind == "close")
        if depth == 0 and token[0] == "|":
            return ""
        if kind == "repeat":
            # The character before may be absent, or is the first of several.
            runs[-1:] = [runs[-1][:-1], ""]
        elif depth or kind not in ("escaped", "plain"):
            runs.append("")
        else:
            runs[-1] += token["escaped"] or token[0]
    return "" if "(?i" in regex or "(?x" in regex else max(runs, key=len)
