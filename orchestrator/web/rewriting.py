"""Pages for files: links to other files, without forms, streams and what needs the server."""

from __future__ import annotations

import html
import html.parser
import json
from collections.abc import Callable, Mapping

#: They have no end tag.
_VOID = frozenset({"br", "hr", "img", "input", "link", "meta", "wbr"})
#: Left out, with all that they contain.
_CONTROLS = frozenset({"button", "datalist", "input", "label", "select"})


class Rewriter(html.parser.HTMLParser):
    """Rewrites the HTML of one page, which has been rendered by our templates."""

    def __init__(
        self,
        link: Callable[[str], str | None],
        charts: Callable[[str], Mapping[str, object]],
        footer: str,
    ) -> None:
        """Take functions for the addresses of this server.

        Args:
            link: the address in the file; None: there is no such file.
            charts: what a page needs to draw the curves at an address, as JSON.
            footer: HTML at the end of the page.
        """
        super().__init__(convert_charrefs=False)
        self._link = link
        self._charts = charts
        self._footer = footer
        self._parts: list[str] = []
        #: elements that are left out, the outermost first
        self._left_out: list[str] = []
        #: whether each open <a> is a link
        self._links: list[bool] = []

    def rewrite(self, text: str) -> str:
        """Return a page with the new links and charts."""
        self.feed(text)
        self.close()
        return "".join(self._parts)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if self._left_out or tag in _CONTROLS:
            if tag not in _VOID:
                self._left_out.append(tag)
            return
        if tag == "form":
            return
        attributes.pop("data-events", None)
        url = attributes.get("href") or attributes.get("src") or ""
        if url.startswith(("/", "?")):
            target = self._link(url)
            name = "src" if "src" in attributes else "href"
            if target is None and "data-optional" in attributes:
                self._left_out.append(tag)
                return
            if target is None:
                tag = "span"
                for key in ("href", "rel", "aria-label", "title"):
                    attributes.pop(key, None)
            else:
                attributes[name] = target
        if tag in ("a", "span"):
            self._links.append(tag == "a")
        charts = attributes.pop("data-charts", None)
        if charts is not None:
            attributes["data-charts"] = ""
        self._parts.append(_start_tag(tag, attributes))
        if charts is not None:
            # `<` could end the element.
            text = json.dumps(self._charts(charts), separators=(",", ":")).replace("<", "\\u003c")
            self._parts.append(f'<script type="application/json">{text}</script>')

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._left_out:
            if tag == self._left_out[-1]:
                self._left_out.pop()
            return
        if tag == "form":
            return
        if tag in ("a", "span") and self._links:
            tag = "a" if self._links.pop() else "span"
        if tag == "main":
            self._parts.append(self._footer)
        self._parts.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        self._add(data)

    def handle_entityref(self, name: str) -> None:
        self._add(f"&{name};")

    def handle_charref(self, name: str) -> None:
        self._add(f"&#{name};")

    def handle_decl(self, decl: str) -> None:
        self._add(f"<!{decl}>")

    def _add(self, text: str) -> None:
        if not self._left_out:
            self._parts.append(text)


def _start_tag(tag: str, attributes: Mapping[str, str | None]) -> str:
    words = [tag]
    for name, value in attributes.items():
        words.append(name if value is None else f'{name}="{html.escape(value)}"')
    return f"<{' '.join(words)}>"
