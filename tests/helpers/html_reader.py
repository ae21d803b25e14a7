"""What a browser would show of an HTML view."""

from html.parser import HTMLParser

from helpers.explanations import HOSTILE

TEXTS = {
    "english": "A joyless ,  tedious film\n\tthat Never finds its heart",
    "arabic": "هذا الفيلم ممل جدا ولا يستحق المشاهدة",
    "chinese": "这部电影非常无聊，我不推荐。",
    "emoji": "so good 👩‍👩‍👧 🏳️‍🌈 ❤️!",
    "combining": "cafe\u0301 nai\u0308ve Z\u0351\u036b\u0343a",
    "hostile": HOSTILE,
}


class Reader(HTMLParser):
    """What a browser would show of a text: the characters inside paragraphs of either direction."""

    VOID = ("br", "img", "input", "meta", "link")

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.paragraphs: list[str] = []
        self.inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "p" and dict(attrs).get("dir") == "auto":
            self.paragraphs.append("")
            self.inside = True

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self.inside = self.inside and tag != "p"

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.paragraphs[-1] += data


def shown(source: str) -> Reader:
    """Read an HTML view; fail unless every element is closed."""
    reader = Reader()
    reader.feed(source)
    reader.close()
    assert reader.open == []
    return reader
