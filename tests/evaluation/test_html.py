import base64
import re
from html.parser import HTMLParser

from paraembed.evaluation.html import page
from tests.evaluation.conftest import HOSTILE

VOID = {"meta", "link", "img"}


class Document(HTMLParser):
    """What a page holds; a tag that is not closed where it must be is an error."""

    def __init__(self, text):
        super().__init__()
        self.open = []
        self.tags = []
        self.texts = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        assert len({name for name, _ in attrs}) == len(attrs)
        self.tags.append((tag, dict(attrs)))
        self.open += [] if tag in VOID else [tag]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.texts.append(data)


def test_the_page_is_whole_has_every_picture_and_asks_for_nothing(analysed):
    report, analyses, _ = analysed
    document = Document(page(report, analyses))
    assert [tag for tag, _ in document.tags[:3]] == ["html", "head", "meta"]
    assert not {"script", "iframe", "object"} & {tag for tag, _ in document.tags}
    policies = [found["content"] for _, found in document.tags if "http-equiv" in found]
    assert policies == ["default-src 'none'; img-src data:; style-src 'unsafe-inline'"]
    assert not [name for _, attributes in document.tags for name in attributes if name.startswith("on")]
    ids = [attributes["id"] for _, attributes in document.tags if "id" in attributes]
    assert len({*ids}) == len(ids)
    addresses = [value or "" for _, found in document.tags for name, value in found.items() if name in {"href", "src"}]
    assert {address for address in addresses if address.startswith("#")} == {f"#{one}" for one in ids}
    assert all(address.startswith(("#", "data:")) for address in addresses)
    style = re.search(r"<style>(.*?)</style>", page(report, analyses), re.DOTALL)
    assert style
    assert "url(" not in style[1]
    assert "@import" not in style[1]
    sources = [found["src"] or "" for tag, found in document.tags if tag == "img"]
    pictures = [base64.b64decode(source.removeprefix("data:image/png;base64,"), validate=True) for source in sources]
    assert pictures == [one.content.picture for one in analyses if one.content and one.content.picture]
    assert len(pictures) >= 8


def test_texts_stay_texts(analysed):
    report, analyses, _ = analysed
    whole = page(report, analyses)
    assert (
        whole.index("[1]") < whole.index("<summary>All columns</summary>") < whole.index("Wieting 2017 table 4: GRAN<")
    )
    texts = "\n".join(Document(whole).texts)
    for text in (HOSTILE, f"avg {HOSTILE}", f"pairs/{HOSTILE}", *report.notes):
        assert text in texts
    missing = [one for one in analyses if one.content is None]
    assert missing
    for one in missing:
        assert one.title in texts
        assert one.reason in texts
