"""Valid values: Slurm's own forms as allow-lists, and forbidden characters.

The allow-list is a second defence behind quoting: measured, an unquoted space in a directive adds
an option, and a newline ends the directives and runs as shell.
"""

from __future__ import annotations

import re
import unicodedata

#: Bidirectional controls reorder what a person reads; U+2028/9 end a line for some readers.
_FORBIDDEN = frozenset("\u061c\u200e\u200f\u2028\u2029\ufeff") | frozenset(
    chr(code) for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
)
_NAMES = {"\x00": "NUL", "\t": "tab", "\n": "newline", "\r": "carriage return", "\x7f": "DEL"}

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.@+-]*"
_WORD = r"[A-Za-z0-9_][A-Za-z0-9_.+-]*"
_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9._-]|\[[0-9,-]+\])*"
_GRES = rf"(?:gres[/:])?{_WORD}(?:[:=]{_WORD})?(?:[:=][0-9]+[kKmMgGtTpP]?)?"
_JOB = r"(?:local-)?[0-9]+(?:_(?:[0-9]+|\*))?(?:\+[0-9]+)?"
_AFTER = rf"(?:singleton|after(?:any|burstbuffer|corr|notok|ok)?(?::{_JOB})+)"
#: Of our own: `afterok:@7`, `afterok:prep`, `afterok:sweep/lr`, `afterok:sweep/@3`.
_OURS = r"(?:@[0-9]{1,18}|(?!local-[0-9])[A-Za-z][A-Za-z0-9._-]{0,99})"
_AFTER_OURS = rf"(?:after(?:any|notok|ok)(?::(?:sweep/)?{_OURS})+)"
_AFTER_EITHER = rf"(?:{_AFTER}|{_AFTER_OURS})"
_MAIL = (
    r"(?:NONE|BEGIN|END|FAIL|REQUEUE|ALL|INVALID_DEPEND|STAGE_OUT|ARRAY_TASKS"
    r"|TIME_LIMIT(?:_(?:50|80|90))?)"
)
_MAIL_USER = r"[A-Za-z0-9][A-Za-z0-9._%+@-]*"


def _list(pattern: str) -> str:
    return rf"{pattern}(?:,{pattern})*"


_MEMORY = (r"(?i:[0-9]+(?:[KMGT]B?)?)", 'a size such as "440G" or "16000M"')
_HOSTS = (_list(_HOST), 'host names such as "gpu[01-04],gpu07"')

#: Pattern and description by the last part of the dotted key. Source: man sbatch of Slurm 24.11.
FORMS = {
    "name": (
        r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}",
        "1 to 100 letters, digits, dots, underscores and dashes, the first a letter or digit",
    ),
    "account": (_NAME, "an account's name: letters, digits and _ . @ + -"),
    "partition": (_list(_WORD), "partition names separated by commas: letters, digits, _ . -"),
    "qos": (_list(_WORD), "a QOS name: letters, digits and _ . + -"),
    "reservation": (_list(_WORD), "reservation names separated by commas"),
    "gres": (_list(_GRES), 'generic resources such as "gpu:a100:4"'),
    "gpu_type": (_WORD, 'a type of GPU as Slurm names it, such as "a100"'),
    "constraint": (
        r"[A-Za-z0-9_(\[][A-Za-z0-9_.=:+,&|()\[\]*-]*",
        'features joined by & or |, with counts and brackets, such as "[rack1*2&rack2*4]"',
    ),
    "nodelist": _HOSTS,
    "exclude": _HOSTS,
    "dependency": (
        rf"{_AFTER_EITHER}(?:,{_AFTER_EITHER})*|{_AFTER}(?:\?{_AFTER})*",
        'such as "afterok:123:124", "afterok:NAME", "afterok:@7" or "singleton"',
    ),
    "mail_type": (f"(?i:{_list(_MAIL)})", 'events separated by commas, such as "END,FAIL"'),
    "mail_user": (_list(_MAIL_USER), "user names or mail addresses"),
    **dict.fromkeys(("mem", "mem_per_cpu", "mem_per_gpu", "tmp"), _MEMORY),
    "patterns": (r"[A-Za-z0-9][A-Za-z0-9_.-]*", "a pattern's name"),
}
_LARGEST = 2**31 - 1
#: Smallest and largest number by the last part of the key. All others are from 1 to _LARGEST.
_RANGES = {
    # sbatch keeps the time of --signal in 16 bits (man sbatch: 0 to 65535).
    "signal_seconds": (1, 65535),
    "stalled_minutes": (0, 10**6),
    "slow_percent": (0, 99),
    "straggler_percent": (0, 10_000),
    "max_excluded_percent": (1, 100),
    "half_life_days": (1, 3650),
    "timeout_seconds": (1, 300),
    "reconnect_seconds": (0, 7 * 86400),
    "port": (1, 65535),
    **dict.fromkeys(("gpus_per_node", "workers"), (0, _LARGEST)),
    **dict.fromkeys(("max_retries", "backoff_seconds", "exclude_after"), (0, _LARGEST)),
    **dict.fromkeys(("seed", "max_gpu_hours"), (-(2**63), 2**63)),
}

_UNLIMITED = frozenset({"UNLIMITED", "INFINITE", "-1"})
_NUMBER = r"[0-9]{1,9}"
_TIME = re.compile(
    rf"(?:(?P<days>{_NUMBER})-(?P<day_hours>{_NUMBER})(?::(?P<day_minutes>{_NUMBER}))?"
    rf"(?::(?P<day_seconds>{_NUMBER}))?"
    rf"|(?P<hours>{_NUMBER}):(?P<minutes>{_NUMBER}):(?P<seconds>{_NUMBER})"
    rf"|(?P<only_minutes>{_NUMBER})(?::(?P<only_seconds>{_NUMBER}))?)"
)
_UNITS = {
    "days": 86400,
    **dict.fromkeys(("day_hours", "hours"), 3600),
    **dict.fromkeys(("day_minutes", "minutes", "only_minutes"), 60),
    **dict.fromkeys(("day_seconds", "seconds", "only_seconds"), 1),
}


def seconds(time_limit: str) -> int | None:
    """Return the seconds of a Slurm time; None for no limit. Raises ValueError.

    MM, MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS, UNLIMITED, INFINITE; zero means no limit
    (man sbatch, --time).
    """
    if time_limit.upper() in _UNLIMITED:
        return None
    match = _TIME.fullmatch(time_limit)
    if match is None:
        raise ValueError(f"not a time: {time_limit!r}")
    parts = match.groupdict()
    total = sum(int(text) * _UNITS[name] for name, text in parts.items() if text is not None)
    # Slurm keeps minutes in 32 bits, and the highest values mean "infinite".
    if total // 60 >= 2**31:
        raise ValueError(f"too long: {time_limit!r}")
    return total or None


def elapsed(seconds: float) -> str:
    """Return `[D-]HH:MM:SS`, as Slurm prints it."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    clock = f"{hour:02}:{minute:02}:{second:02}"
    return f"{days}-{clock}" if days else clock


def form_error(key: str, text: str) -> str:
    """Return "must be ..." if `text` is no valid value of the key (its last part); else ""."""
    if key in ("time_limit", "max_time"):
        try:
            seconds(text)
        except ValueError:
            return 'must be minutes or a time such as "30", "1:30:00", "2-00" or "UNLIMITED"'
    elif key == "binds" and not is_bind(text):
        return 'must be "/host/path" or "/host/path:/path/inside", optionally followed by ":ro"'
    elif key == "modules" and (not text or text.startswith("-")):
        return "must be a module's name"
    elif key in FORMS:
        pattern, words = FORMS[key]
        if not (re.fullmatch(pattern, text, re.ASCII) and _is_balanced(text)):
            return f"must be {words}"
    return ""


def range_error(key: str, number: int) -> str:
    """Return "must be ..." if the number is out of the range of the key (its last part)."""
    least, most = _RANGES.get(key, (1, _LARGEST))
    if number < least:
        return f"must be >= {least}"
    return f"must be <= {most}" if number > most else ""


def _is_balanced(text: str) -> bool:
    opening = {")": "(", "]": "["}
    stack: list[str] = []
    for character in text:
        if character in "([":
            stack.append(character)
        elif character in opening and (not stack or stack.pop() != opening[character]):
            return False
    return not stack


def fitting_name(text: str) -> str:
    """Return the name of a Slurm job as a valid name of ours; may be empty."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:100]


def is_bind(bind: str) -> bool:
    """Return whether apptainer accepts this as one bind; it splits at commas and colons."""
    source, *rest = bind.split(":")
    return (
        "," not in bind
        and source.startswith("/")
        and all(path.startswith("/") for path in rest[:1])
        and rest[1:] in ([], ["ro"], ["rw"])
    )


def variable_name_error(name: str) -> str:
    """Return why a job must not get a variable with this name; "" if it may."""
    if not _VARIABLE.fullmatch(name):
        return "must be a variable name: letters, digits and _, not starting with a digit"
    if name.startswith(("SLURM_", "SBATCH_")):
        return "is reserved for Slurm: export it in environment.setup if necessary"
    if name.startswith("ORCHESTRATOR_"):
        return "is reserved for orchestrator"
    return ""


def forbidden_character(text: str, *, multi_line: bool = False) -> str:
    """Return the name of the first forbidden character; "" if there is none.

    multi_line: newline and tab are allowed.
    """
    # Everything forbidden is unprintable.
    for character in text if not text.isprintable() else "":
        if multi_line and character in "\n\t":
            continue
        category = unicodedata.category(character)
        if category == "Cs":
            return "a byte that is not UTF-8"
        if category == "Cc" or character in _FORBIDDEN:
            name = _NAMES.get(character, unicodedata.name(character, "control character"))
            return f"{name} (U+{ord(character):04X})"
    return ""
