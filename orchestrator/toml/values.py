"""What may stand in a value: Slurm's own forms as allow-lists, and characters that may not.

An allow-list is a second fence behind quoting: measured, an unquoted space in a directive adds an
option, a newline ends the directives and runs as shell.
"""

from __future__ import annotations

import dataclasses
import re
import unicodedata

#: Bidirectional controls reorder what a person reads; U+2028/9 end a line for some readers.
_REFUSED = frozenset("\u061c\u200e\u200f\u2028\u2029\ufeff") | frozenset(
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Form:
    """What a value must look like."""

    #: the whole value has to fit
    pattern: re.Pattern[str]
    #: the same for people: "must be ..."
    words: str


def _form(pattern: str, words: str, flags: int = 0) -> Form:
    return Form(pattern=re.compile(pattern, flags | re.ASCII), words=words)


_MEMORY = _form(r"[0-9]+(?:[KMGT]B?)?", 'a size such as "440G" or "16000M"', re.IGNORECASE)

#: By the last part of the dotted key. Source: man sbatch of Slurm 24.11.
FORMS = {
    "name": _form(
        r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}",
        "1 to 100 letters, digits, dots, underscores and dashes, the first a letter or digit",
    ),
    "account": _form(_NAME, "an account's name: letters, digits and _ . @ + -"),
    "partition": _form(_list(_WORD), "partition names with commas between: letters, digits, _ . -"),
    "qos": _form(_list(_WORD), "a QOS name: letters, digits and _ . + -"),
    "reservation": _form(_list(_WORD), "reservation names with commas between"),
    "gres": _form(_list(_GRES), 'generic resources such as "gpu:a100:4"'),
    "gpu_type": _form(_WORD, 'a type of GPU as Slurm names it, such as "a100"'),
    "constraint": _form(
        r"[A-Za-z0-9_(\[][A-Za-z0-9_.=:+,&|()\[\]*-]*",
        'features joined by & or |, with counts and brackets, such as "[rack1*2&rack2*4]"',
    ),
    "nodelist": _form(_list(_HOST), 'host names such as "gpu[01-04],gpu07"'),
    "exclude": _form(_list(_HOST), 'host names such as "gpu[01-04],gpu07"'),
    "dependency": _form(
        rf"{_AFTER_EITHER}(?:,{_AFTER_EITHER})*|{_AFTER}(?:\?{_AFTER})*",
        'such as "afterok:123:124", "afterok:NAME", "afterok:@7" or "singleton"',
    ),
    "mail_type": _form(
        _list(_MAIL), 'events with commas between, such as "END,FAIL"', re.IGNORECASE
    ),
    "mail_user": _form(_list(_MAIL_USER), "user names or mail addresses"),
    "mem": _MEMORY,
    "mem_per_cpu": _MEMORY,
    "mem_per_gpu": _MEMORY,
    "tmp": _MEMORY,
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
TIME_WORDS = 'minutes or a time such as "30", "1:30:00", "2-00" or "UNLIMITED"'


def seconds(time_limit: str) -> int | None:
    """Return the seconds of a Slurm time, none for no limit; ValueError where it is no time.

    MM, MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS, UNLIMITED, INFINITE; zero asks for no limit
    (man sbatch, --time).
    """
    if time_limit.upper() in _UNLIMITED:
        return None
    found = _TIME.fullmatch(time_limit)
    if found is None:
        raise ValueError(f"not a time: {time_limit!r}")
    parts = found.groupdict()
    total = sum(int(text) * _UNITS[name] for name, text in parts.items() if text is not None)
    # Slurm keeps minutes in 32 bits, and the topmost values mean "infinite".
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


def is_time(text: str) -> bool:
    """Tell whether Slurm takes this as a time."""
    try:
        seconds(text)
    except ValueError:
        return False
    return True


def balanced(text: str) -> bool:
    """Tell whether each bracket is closed by its like."""
    closing = {")": "(", "]": "["}
    stack: list[str] = []
    for character in text:
        if character in closing.values():
            stack.append(character)
        elif character in closing and (not stack or stack.pop() != closing[character]):
            return False
    return not stack


def form_error(name: str, text: str) -> str:
    """Return what the value of this key (last part of it) must be; empty where it fits."""
    if name in ("time_limit", "max_time"):
        return "" if is_time(text) else f"must be {TIME_WORDS}"
    form = FORMS.get(name)
    if form is None or (form.pattern.fullmatch(text) and balanced(text)):
        return ""
    return f"must be {form.words}"


def fitting_name(text: str) -> str:
    """Return the name of a job of Slurm's with what ours may not hold replaced; may be empty."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:100]


BIND_WORDS = '"/host/path", "/host/path:/path/inside" or that with ":ro" behind'


def is_bind(bind: str) -> bool:
    """Tell whether apptainer takes this as one bind; it splits at commas and colons."""
    source, *rest = bind.split(":")
    return (
        "," not in bind
        and source.startswith("/")
        and all(path.startswith("/") for path in rest[:1])
        and rest[1:] in ([], ["ro"], ["rw"])
    )


def variable_name_error(name: str) -> str:
    """Return why a job may not be given a variable of this name; empty where it may."""
    if not _VARIABLE.fullmatch(name):
        return "must be a variable's name: letters, digits and _, no digit first"
    if name.startswith(("SLURM_", "SBATCH_")):
        return "is Slurm's own: export it in environment.setup if it has to be"
    if name.startswith("ORCHESTRATOR_"):
        return "is orchestrator's own"
    return ""


def forbidden_character(text: str, *, lines: bool = False) -> str:
    """Name the first character that may stand in no value; empty where there is none.

    With `lines`, newline and tab may stand.
    """
    if text.isprintable():
        # All that is refused is not; strings of megabytes are looked through in milliseconds.
        return ""
    for character in text:
        if lines and character in "\n\t":
            continue
        category = unicodedata.category(character)
        if category == "Cs":
            return "a byte that is not UTF-8"
        if category == "Cc" or character in _REFUSED:
            name = _NAMES.get(character, unicodedata.name(character, "control character"))
            return f"{name} (U+{ord(character):04X})"
    return ""
