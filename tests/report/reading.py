"""A page as a reader of its markup sees it."""

import json
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Reading(HTMLParser):
    """What a page holds: values of data elements, loose text of the result sections, ids, links, tags."""

    def __init__(self, text):
        super().__init__()
        self.stack: list[tuple[str, str]] = []
        self.values: list[float] = []
        self.loose: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.add(tag)
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.links += [
            value for key, value in attributes.items() if key in ("href", "xlink:href", "src", "srcset")
        ]
        if tag == "data":
            self.values.append(float(attributes["value"]))
        if tag not in VOID:
            self.stack.append((tag, attributes.get("class") or ""))

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.stack.pop()

    def handle_endtag(self, tag):
        assert self.stack.pop()[0] == tag, f"</{tag}> closes something else"

    def handle_data(self, text):
        tags = {tag for tag, _ in self.stack}
        results = any("results" in kind.split() for _, kind in self.stack)
        if results and not tags & {"data", "svg", "code", "cite"}:
            self.loose.append(text)


def numbers_in(value):
    if isinstance(value, dict):
        if set(value) == {"float"}:
            return {float(value["float"])}
        return set().union(*map(numbers_in, value.values()))
    if isinstance(value, list):
        return set().union(*map(numbers_in, value))
    return {float(value)} if isinstance(value, int | float) and not isinstance(value, bool) else set()


def stored(report):
    rows = json.loads(report)
    return numbers_in(rows["measurements"]) | numbers_in(rows["summary"]) | {0.0}


def first_screen(text):
    return text[text.index('<section class="screen') :].split("</section>")[0] + "</section>"
