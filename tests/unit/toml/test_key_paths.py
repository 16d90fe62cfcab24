"""Line numbers of keys, in a handwritten text and in generated texts."""

import json
import tomllib

import hypothesis
import pytest
from hypothesis import strategies as st

from orchestrator.toml import key_paths

TEXT = '''# a comment = 1
[job] # [not.a.table]
name = "x" # name = "y"
a.b = 1
"quoted.key" . c = 2
long = """
fake = 1
\\"""still""""
literal = \'\'\'
[fake]
\'\'\'
list = [
  "one", # ]
  [2, 3],

  { in = 1, "line" = [ 4 ] },
]
[[points]]
x = 1
[points.deep]
y = 1
[[points]]
x = 2
  [[points.inner]]
  z = 1979-05-27 07:32:00
[a . "b.c"]\r
d = { e.f = 1 }
'''


def test_each_key_has_its_line() -> None:
    tomllib.loads(TEXT)
    assert key_paths.loads(TEXT)[1] == {
        ("job",): 2,
        ("job", "name"): 3,
        ("job", "a"): 4,
        ("job", "a", "b"): 4,
        ("job", "quoted.key"): 5,
        ("job", "quoted.key", "c"): 5,
        ("job", "long"): 6,
        ("job", "literal"): 9,
        ("job", "list"): 12,
        ("job", "list", 0): 13,
        ("job", "list", 1): 14,
        ("job", "list", 1, 0): 14,
        ("job", "list", 1, 1): 14,
        ("job", "list", 2): 16,
        ("job", "list", 2, "in"): 16,
        ("job", "list", 2, "line"): 16,
        ("job", "list", 2, "line", 0): 16,
        ("points",): 18,
        ("points", 0): 18,
        ("points", 0, "x"): 19,
        ("points", 0, "deep"): 20,
        ("points", 0, "deep", "y"): 21,
        ("points", 1): 22,
        ("points", 1, "x"): 23,
        ("points", 1, "inner"): 24,
        ("points", 1, "inner", 0): 24,
        ("points", 1, "inner", 0, "z"): 25,
        ("a", "b.c"): 26,
        ("a", "b.c", "d"): 27,
        ("a", "b.c", "d", "e"): 27,
        ("a", "b.c", "d", "e", "f"): 27,
    }


KEYS = st.one_of(
    st.from_regex(r"[A-Za-z0-9_-]{1,8}", fullmatch=True),
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=6),
)
SCALARS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.booleans(),
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12),
    st.sampled_from(["#", "]", "'", '"', "[x]", "a = 1", "\\", "}", ","]),
)


def _key(key: str) -> str:
    bare = key.isascii() and key.replace("-", "").replace("_", "").isalnum()
    return key if bare else json.dumps(key, ensure_ascii=False)


def _value(value: object) -> str:
    if isinstance(value, list):
        return "[\n" + "".join(f"  {_value(item)}, # ] }} \" ' \n" for item in value) + "]"
    if isinstance(value, str) and "'" not in value and len(value) % 2:
        return f"'{value}'" if len(value) % 3 else f"'''\n{value}'''"
    if isinstance(value, str) and len(value) % 4 == 2:
        return f'"""\n{json.dumps(value, ensure_ascii=False)[1:-1]}"""'
    return json.dumps(value, ensure_ascii=False)


@hypothesis.settings(max_examples=50)
@hypothesis.given(
    st.dictionaries(
        KEYS,
        st.dictionaries(KEYS, st.one_of(SCALARS, st.lists(SCALARS, max_size=3)), max_size=4),
        max_size=4,
    )
)
def test_each_generated_key_has_its_line(tables: dict[str, dict[str, object]]) -> None:
    lines: list[str] = []
    expected: dict[tuple[str, ...], int] = {}
    for table, keys in tables.items():
        lines.append(f"[{_key(table)}]")
        expected[(table,)] = len(lines)
        for key, value in keys.items():
            expected[(table, key)] = len(lines) + 1
            lines.extend(f"{_key(key)} = {_value(value)}".split("\n"))
    text = "\n".join(lines)
    lines_of_keys = key_paths.loads(text)[1]
    assert {path: line for path, line in lines_of_keys.items() if len(path) < 3} == expected
    for path in lines_of_keys:
        value: object = tomllib.loads(text)
        for part in path:
            value = value[part]  # type: ignore[index]


@hypothesis.given(st.text(st.sampled_from("ab=.[]{}\"'#\n\\, 1"), max_size=30))
def test_text_accepted_by_tomllib_is_accepted(text: str) -> None:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        with pytest.raises(tomllib.TOMLDecodeError):
            key_paths.loads(text)
    else:
        loaded, lines = key_paths.loads(text)
        assert loaded == data
        assert {path[0] for path in lines} == set(data)


@pytest.mark.parametrize(
    ("text", "parts", "rest"),
    [
        ("job.name=x", ("job", "name"), "=x"),
        (' args . "a.b" = 1', ("args", "a.b"), "= 1"),
        ("args.'a\"b'=1", ("args", 'a"b'), "=1"),
    ],
)
def test_read_key(text: str, parts: tuple[str, ...], rest: str) -> None:
    keys, end = key_paths.read_key(text)
    assert (keys, text[end:]) == (parts, rest)


@pytest.mark.parametrize("text", ["", "=x", ".a=1", "a.=1", "é=1", '"a=1', '"\\q"=1'])
def test_invalid_keys(text: str) -> None:
    with pytest.raises(key_paths.NotTomlError):
        key_paths.read_key(text)
