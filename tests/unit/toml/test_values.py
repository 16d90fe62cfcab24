"""Slurm's formats of times and sizes (man sbatch 24.11), and invalid values."""

import hypothesis
import pytest
from hypothesis import strategies as st

from orchestrator.text import escaping
from orchestrator.toml import values


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800),
        ("90:30", 5430),
        ("01:30:00", 5400),
        ("2-12", 2 * 86400 + 12 * 3600),
        ("1-02:03", 86400 + 7380),
        ("1-02:03:04", 86400 + 7384),
        ("UNLIMITED", None),
        ("infinite", None),
        ("-1", None),
        ("0", None),
        ("0-0:0:0", None),
    ],
)
def test_seconds(text: str, seconds: int | None) -> None:
    assert values.seconds(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1h",
        "1:2:3:4",
        "1-",
        "-5",
        "1-1-1",
        " 30",
        "30\n",
        "1.5",
        "٣٠",
        "99999999999",
        "999999999-0",
    ],
)
def test_no_times(text: str) -> None:
    assert values.form_error("time_limit", text)


@hypothesis.settings(max_examples=30)
@hypothesis.given(st.integers(0, 365), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_seconds_of_any_time_that_slurm_prints(
    days: int, hours: int, minutes: int, rest: int
) -> None:
    total = ((days * 24 + hours) * 60 + minutes) * 60 + rest
    assert values.seconds(f"{days}-{hours:02}:{minutes:02}:{rest:02}") == (total or None)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("name", "wrn-cifar100"),
        ("name", "9" * 100),
        ("account", "nn9999k"),
        ("account", "proj_a@site"),
        ("partition", "accel,accel_long"),
        ("qos", "devel"),
        ("gres", "gpu"),
        ("gres", "gpu:4"),
        ("gres", "gpu:a100:4,craynetwork:1"),
        ("gres", "gres/gpu:tesla:2"),
        ("gres", "shard:16K"),
        ("gpu_type", "a100_1g.5gb"),
        ("constraint", "intel&gpu"),
        ("constraint", "[rack1*2&rack2*4]"),
        ("constraint", "(a|b)&c"),
        ("nodelist", "gpu[01-04,07],login1"),
        ("exclude", "c1-0[1-2]b[3]"),
        ("dependency", "afterok:123:124,afterany:7_*"),
        ("dependency", "after:123+5?afternotok:9_4"),
        ("dependency", "singleton"),
        ("mail_type", "END,FAIL,TIME_LIMIT_80"),
        ("mail_type", "all"),
        ("mail_user", "a.b+c@example.org"),
        ("mem", "0"),
        ("mem", "440G"),
        ("mem_per_cpu", "16000m"),
        ("tmp", "1TB"),
        ("time_limit", "2-00"),
    ],
)
def test_valid_values_of_slurm(name: str, text: str) -> None:
    assert values.form_error(name, text) == ""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("name", ""),
        ("name", ".x"),
        ("name", "-x"),
        ("name", "a" * 101),
        ("name", "x\n"),
        ("account", "a b"),
        ("partition", "a,,b"),
        ("partition", "a --comment=x"),
        ("gres", "gpu:a100:4;x"),
        ("gres", "gpu:a:b:c:4"),
        ("constraint", "[a|b"),
        ("constraint", "a]b["),
        ("constraint", "$(x)"),
        ("nodelist", "/etc/passwd"),
        ("nodelist", "gpu[01-04"),
        ("dependency", "afterok"),
        ("dependency", "afterok:-x"),
        ("dependency", "afterok:1,afterany:2?after:3"),
        ("mail_type", "END FAIL"),
        ("mail_user", "-x@y"),
        ("mem", "1.5G"),
        ("mem", "-1"),
        ("mem", "16Q"),
        ("time_limit", "1h"),
    ],
)
def test_invalid_values_of_slurm(name: str, text: str) -> None:
    assert values.form_error(name, text).startswith("must be ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\nb", "newline (U+000A)"),
        ("a\rb", "carriage return (U+000D)"),
        ("a\tb", "tab (U+0009)"),
        ("\x00", "NUL (U+0000)"),
        ("\x1b[31m", "control character (U+001B)"),
        ("\x7f", "DEL (U+007F)"),
        ("\x9b", "control character (U+009B)"),
        ("\u2028", "LINE SEPARATOR (U+2028)"),
        ("\u202e", "RIGHT-TO-LEFT OVERRIDE (U+202E)"),
        ("\u2066", "LEFT-TO-RIGHT ISOLATE (U+2066)"),
        ("\udcff", "a byte that is not UTF-8"),
        ("naïve 日本語 🚀 👩\u200d🔬 ; $(x) \\ \" ' #", ""),
    ],
)
def test_refused_characters(text: str, message: str) -> None:
    assert values.forbidden_character(text) == message


def test_shell_lines_may_hold_newline_and_tab_only() -> None:
    assert values.forbidden_character("a\n\tb", multi_line=True) == ""
    assert values.forbidden_character("a\r\n", multi_line=True) == "carriage return (U+000D)"


@hypothesis.given(st.text())
def test_visible_text_holds_nothing_that_a_terminal_acts_on(text: str) -> None:
    assert values.forbidden_character(escaping.visible(text)) == ""


@pytest.mark.parametrize("bind", ["/a", "/a:/b", "/a:/b:ro", "/a b:/c", "/a:/b:rw"])
def test_binds(bind: str) -> None:
    assert values.is_bind(bind)


@pytest.mark.parametrize("bind", ["", "a:/b", "/a:b", "/a,/b", "/a:/b:ro:x", "/a:/b:exec", "/a:"])
def test_no_binds(bind: str) -> None:
    assert not values.is_bind(bind)
