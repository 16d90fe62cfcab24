"""Helpers of the fuzz tests: hostile values, reproducible cases, and a time limit for each.

A case is made from `Random(f"{kind}:{seed}:{number}")`, so the message of a failure names all that
is needed to run it again: `ORCHESTRATOR_TEST_FUZZ=SEED:NUMBER` runs that one.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import string
import time
import warnings
from collections.abc import Callable, Iterator, Sequence

#: Nothing may take longer.
LIMIT_SECONDS = 10

NUMBERS = (
    *("0", "-0", "-1", "1", "2", "00", "1_0", "1.5", "-0.0", "0x10", "1e3", "1e154", "1e308"),
    *("1e309", "-1e308", "5e-324", "1e-308", "inf", "-inf", "nan", "NaN", "Infinity"),
    *("2147483647", "2147483648", "4294967296", "9223372036854775807", "9223372036854775808"),
    *("-9223372036854775808", "99999999999999999999", "9" * 400, "9" * 5000, "1" + "0" * 30),
    *("\u00b2", "\u0663", "\uff11", "\U0001d7d9", "1\u00a0", "+1", "1,5", "1e", ".", "1:1", "50%"),
)
TIMES = (
    *("now", "2026-11-20", "2026-11-20T10:05", "0001-01-01", "0001-01-01T00:00:00+23:59"),
    *("9999-12-31T23:59:59-23:59", "9999-12-31", "99999999d", "99999999999999999999d", "1d"),
    *("10:05", "25:00", "yesterday", "2 hours ago", "-1h", "9" * 5000 + "s", "1h30m", "\u00b2h"),
    *("2026-02-30", "1970-01-01", "1e9", "2026-W01-1", "20261120T1005Z", "0", "00:00:60"),
)
ZONES = (
    *("UTC", "Europe/Oslo", "a/a/" * 200 + "a", "../../etc/passwd", "/etc/passwd", "/dev/zero"),
    *(
        "Europe",
        ".",
        "..",
        "",
        "a\0b",
        "\udc80",
        "right/UTC",
        "posix",
        "zone.tab",
        "/",
        "UTC/",
        "\n",
    ),
    *("x" * 300, "tzdata.zi", "leapseconds", "America/" + "../" * 50 + "etc/hostname"),
)
CRONS = (
    *("0 2 * * *", "@daily", "*/15 * * * *", "0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 29 2 1#5"),
    *("* * * * * *", "60 * * * *", "*/0 * * * *", "0-99999999999 * * * *", "\u00b2 * * * *"),
    *("0 0 L * *", "0 0 * * 7#9", "0 0 29 2 *", "1-5/99999999999 * * * *", "@reboot", "0 0 1 1 0"),
    *(
        "5,".rstrip() * 20000 + "5 * * * *",
        "0 0 L 2 5L",
        "* * * * MON-FRI",
        "9" * 5000 + " * * * *",
    ),
)
EXPRESSIONS = (
    *("loss", "(", "[", "(?P<x>", "(?P<a>.)(?P<a>.)", "\\", "*", "a{99999999999}", "(?:a|aa)+$"),
    *("(a+)+$", "(?i)x", "\\1", "(?<=a*)b", "[[:alpha:]]", "\\p{L}", "\udc80", "a\0", "(" * 500),
    *("x" * 5000, "(?P<loss>{number})", "{nope}", "{", "}", ".*" * 50, "(?(1)a|b)", "a{1,0}"),
)
TEXTS = (
    *("", " ", "a", "-", "--", "-x", "=", "==", "a=b", "a=", "=b", ",", ":", "/", "//", "@", "@@"),
    *("a b", "a\nb", "a\tb", "a\rb", "\x1b[31m", "\x1b]0;x\x07", "\x9b31m", "\u202e", "\ufeff"),
    *(
        "\udc80",
        "a\udcffb",
        "\x00".replace("\0", "\x01"),
        "\u2028",
        "\u00e9",
        "\U0001f600",
        "\u0301",
    ),
    *(
        "$HOME",
        "${x}",
        "$(id)",
        "`id`",
        "{{ 7*7 }}",
        "{% x %}",
        "%j",
        "%",
        "%%",
        "\\",
        "'",
        '"',
        "~",
    ),
    *("~root", "~nobody", "#", ";", "*", "?", "[", "]", "[0]", "{", "}", "null", "true", "None"),
    *(
        "x" * 256,
        "x" * 5000,
        "\u00e9" * 3000,
        "a." * 3000 + "a",
        "[" * 3000,
        "{" * 3000,
        "'" * 3000,
    ),
    *("a/" * 2500 + "a", "..", "../..", ".", "no/such/file", "/dev/null", "/proc/self/fd/0"),
)
REFERENCES = (
    *(
        "1",
        "@1",
        "@2",
        "demo",
        "two",
        "1_0",
        "1_[0-1]",
        "@1-2",
        "@1,@2",
        "local-1",
        "lr",
        "sweep/lr",
    ),
    *(
        "@99999999999999999999",
        "@0",
        "@-1",
        "@1-9999999999",
        "@9223372036854775807",
        "@9223372036854775808",
    ),
    *(
        "99999999999999999999",
        "9" * 5000,
        "\u00b2",
        "@\u00b2",
        "1_\u00b2",
        "1_[0-4000000]",
        "1_[0-9:0]",
    ),
    *(
        "1_[" + "0," * 3000 + "0]",
        "local-99999999999999999999",
        "local-",
        "@",
        "@@1",
        "1_",
        "1_[",
        "_[1]",
    ),
    *("local-\u00b2_[1]", "1_[0-1%5]", "1_[99999999999]", "@5-1", "@,", "1+0", "1.batch", "%", "_"),
)
ALL = (*NUMBERS, *TIMES, *ZONES, *CRONS, *EXPRESSIONS, *TEXTS, *REFERENCES)


def hostile(rng: random.Random) -> str:
    """Return a value that some program somewhere did not expect."""
    if rng.random() < 0.8:
        return rng.choice(ALL)
    if rng.random() < 0.5:
        return rng.choice(ALL)[:200] + rng.choice(ALL)[:200]
    alphabet = rng.choice(
        [string.printable, "0123456789.e-+_", "\udc80\x01\u202e\u00e9a. /", "[]{}=,"]
    )
    return "".join(rng.choice(alphabet) for _ in range(rng.randrange(40)))


def mutated(rng: random.Random, text: str, others: Sequence[str] = ()) -> str:
    """Return the text with some of it changed: a piece doubled, dropped, moved or replaced."""
    for _ in range(rng.choice([1, 1, 1, 2, 3, 8])):
        start = rng.randrange(len(text) + 1)
        end = min(len(text), start + rng.choice([0, 1, 1, 2, 5, 20, 100]))
        piece = text[start:end]
        match rng.randrange(7):
            case 0:
                text = text[:start] + text[end:]
            case 1:
                text = text[:start] + piece * rng.choice([2, 3, 50]) + text[end:]
            case 2 | 3:
                text = text[:start] + hostile(rng) + text[end:]
            case 4:
                other = rng.choice(others or [text])
                at = rng.randrange(len(other) + 1)
                text = text[:start] + other[at : at + rng.choice([1, 10, 60])] + text[end:]
            case 5:
                text = text[:start] + chr(rng.choice([0, 9, 10, 13, 27, 127, 128, 0x202E, 0x1F600]))
                text += piece
            case 6:
                words = text[:start].rsplit(None, 1)
                text = (words[0] if words else "") + rng.choice(NUMBERS) + text[end:]
        text = text[:40_000]
    return text


class TooSlow(BaseException):
    """A case takes longer than LIMIT_SECONDS."""


@contextlib.contextmanager
def watched(seconds: float = LIMIT_SECONDS) -> Iterator[None]:
    """Raise TooSlow where the block takes longer; not seen within one call of a C function."""

    def end(*_: object) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def numbers_of(count: int) -> tuple[int, Sequence[int]]:
    """Return the seed and the numbers of the cases to run: `count`, or the one asked for."""
    asked = os.environ.get("ORCHESTRATOR_TEST_FUZZ")
    if asked:
        seed, _, number = asked.partition(":")
        return int(seed), [int(number)] if number else range(count)
    return 1, range(count)


def run(
    kind: str,
    count: int,
    case: Callable[[random.Random], Callable[[], object]],
    accepted: tuple[type[Exception], ...] = (),
) -> int:
    """Run `count` cases of a kind; return how many. AssertionError names those that fail.

    `case` returns a call, built from a source of random numbers; `accepted` are the exceptions
    that its callers report as messages.
    """
    seed, numbers = numbers_of(count)
    failures: dict[str, str] = {}
    for number in numbers:
        call = case(random.Random(f"{kind}:{seed}:{number}"))
        begun = time.monotonic()
        try:
            # re warns of what may mean something else one day; a program's own filters hide it.
            with watched(), warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)
                call()
        except accepted:
            continue
        except (Exception, TooSlow) as error:
            frame = error.__traceback__
            while frame is not None and frame.tb_next is not None:
                frame = frame.tb_next
            where = (
                "" if frame is None else f"{frame.tb_frame.f_code.co_filename}:{frame.tb_lineno}"
            )
            message = f"{type(error).__name__}: {str(error)[:200]!r} at {where}"
            seconds = time.monotonic() - begun
            again = f"ORCHESTRATOR_TEST_FUZZ={seed}:{number}"
            failures.setdefault(where, f"{kind} {again} {seconds:.1f} s: {message}")
    assert not failures, "\n".join(failures.values())
    return len(numbers)
