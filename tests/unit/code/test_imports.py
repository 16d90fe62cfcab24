"""Folders from which Python would import the original code, as build tools write them."""

from __future__ import annotations

import json

import pytest

from orchestrator.code import imports


def test_pth_files() -> None:
    text = "# comment\nimport __editable___x_finder; __editable___x_finder.install()\n\n/p/src \n"
    assert [*imports.of_pth(text)] == ["/p/src"]


@pytest.mark.parametrize(
    "text",
    [
        "MAPPING: dict[str, str] = {'pkg': '/p/src/pkg', 'other': '/p/other'}\n",
        "MAPPING = {'pkg': '/p/src/pkg', 'other': '/p/other'}\n",
    ],
)
def test_finders_of_setuptools(text: str) -> None:
    before, after = "import sys\n", "NAMESPACES: dict[str, list[str]] = {}\n"
    assert [*imports.of_finder(before + text + after)] == ["/p/src", "/p"]


def test_a_package_in_a_package() -> None:
    assert [*imports.of_finder("MAPPING = {'a.b': '/p/src/a/b'}\n")] == ["/p/src"]
    assert [*imports.of_finder("MAPPING = {broken: }\n")] == []


def test_direct_urls() -> None:
    record = {"url": "file:///home/a%20b/p", "dir_info": {"editable": True}}
    assert imports.of_direct_url(json.dumps(record)) == "/home/a b/p"
    for other in ({"url": "file:///p", "dir_info": {}}, {"url": "https://x/y.whl"}, []):
        assert imports.of_direct_url(json.dumps(other)) is None
    assert imports.of_direct_url("no JSON") is None


def test_paths_inside_a_root() -> None:
    paths = ["/p/src", "/p", "/other", "/p2", "/p/src"]
    assert imports.inside(paths, "/p") == ["src", "."]
    assert imports.inside(paths, "/") == ["p/src", "p", "other", "p2"]
