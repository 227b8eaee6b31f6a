import base64
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pyarrow as pa
import pytest
from matplotlib.image import imread

from paraembed.evaluation.analyses import analyse
from paraembed.evaluation.analyses.content import Analysis
from paraembed.evaluation.html import TEMPLATES, page, write_html
from paraembed.evaluation.report import compare
from paraembed.evaluation.sets import Group, ScoredPairs, Suite
from paraembed.plots import COLORS
from paraembed.settings import AnalysisOptions

HOSTILE = "<script>alert(1)</script> & \"the\" 'cat' </td></style>"
VOID = {"meta", "link", "img"}
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--enable-logging=stderr"),
    "--window-size=1200,2400",
]


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


@pytest.fixture(scope="module")
def made(inputs, tmp_path_factory):
    """A report whose labels, notes and texts hold HTML, and its analyses."""
    generator = np.random.default_rng(0)
    texts = [f"{HOSTILE} the {' '.join(generator.choice(['cat', 'dog', 'sat', 'mat', 'home'], 4))}" for _ in range(60)]
    pairs = ScoredPairs(HOSTILE, generator.uniform(0, 5, 30), pa.array(texts[:30]), pa.array(texts[30:]))
    suites = (*inputs.suites, Suite("pairs", (Group("", (pairs,)),), notes=(HOSTILE,)))
    candidates = [replace(one, label=f"{one.label} {HOSTILE}", description=HOSTILE) for one in inputs.candidates]
    report = compare(candidates, suites, resamples=0)
    out = tmp_path_factory.mktemp("page")
    return report, analyse(report, candidates, suites, AnalysisOptions(neighbors_of=(HOSTILE,)), out)


def test_the_page_is_whole_has_every_picture_and_asks_for_nothing(made):
    report, analyses = made
    document = Document(page(report, analyses))
    assert [tag for tag, _ in document.tags[:3]] == ["html", "head", "meta"]
    assert not {"script", "iframe", "object"} & {tag for tag, _ in document.tags}
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
    assert len(pictures) >= 6


def test_texts_stay_texts(made):
    report, analyses = made
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


def test_numbers_stand_at_the_right_and_means_are_bold():
    rows = [["a", "-1.5", "1,200", "7 b"], ["b†", "42.6*", "-1.2 – 3.4", "8"], ["mean", "7.8= (18.2)", "5 [4, 6]", ""]]
    html = TEMPLATES.get_template("table.html.jinja").module.table(
        ["set", "r", "pairs", "name"], rows, [False, False, True]
    )
    assert html.count('class="number"') == 7
    assert html.count('class="number best"') == 1
    assert '<tr class="mean"><td>mean</td>' in html


def test_the_summary_is_first_zeros_are_folded_and_parameters_are_spelled(inputs):
    texts = pa.array(["the cat", "a dog", "the mat", "dog sat", "a cat", "home"])
    known = ScoredPairs("known", np.array([5.0, 1, 3, 2, 4, 0]), texts, texts[::-1])
    report = compare(inputs.candidates, (*inputs.suites, Suite("pairs", (Group("", (known,)),))), resamples=50)
    missing = [Analysis("margin", "Margin", "", None, "set `margin_pairs`")]
    whole = page(report, missing, lambda text: text.replace("`margin_pairs`", "--margin-pairs"))
    assert "set --margin-pairs<" in whole
    assert whole.index("Summary: means") < whole.index('id="scores"')
    sts, pairs = (
        re.findall(rf"<h3>{name}: (.*?)<details>(.*?)</details>", whole, re.DOTALL)[0] for name in ("sts", "pairs")
    )
    assert ["unknown %" in part for part in (*sts, *pairs)] == [True, True, False, True]
    marked = re.findall(r'<td class="number best">[-\d.]+([†=])', whole)
    assert len(marked) == len(re.findall(r"\d[†=]", whole)) > 10


def _screenshot(html, folder):
    """Let Chromium draw a page into ``folder/page.png``; what it logs."""
    assert CHROMIUM
    profile = f"--user-data-dir={folder / 'profile'}"
    command = [CHROMIUM, *FLAGS, profile, f"--screenshot={folder / 'page.png'}", html.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True)
    shutil.rmtree(folder / "profile", ignore_errors=True)
    return done.stderr


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_a_browser_shows_the_pictures_and_has_no_complaint(made, tmp_path):
    report, analyses = made
    some = tuple(one for one in analyses if one.name in {"score-by-length", "error-by-gold-score"})
    first = replace(report, columns=tuple(replace(one, scores=one.scores[:3]) for one in report.columns), notes=())
    assert "CONSOLE" not in _screenshot(write_html(first, some, tmp_path), tmp_path)
    pixels = imread(tmp_path / "page.png")[..., :3]
    for colour in COLORS[:2]:
        rgb = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
        assert (np.abs(pixels - rgb).max(axis=2) < 0.03).sum() > 2000  # bars of one encoder

    # the policy in the page holds, and the log would say what is wrong
    broken = write_html(first, (), tmp_path)
    broken.write_text(broken.read_text().replace("</body>", '<img alt="" src="http://127.0.0.1:9/x.png"></body>'))
    assert "Content Security Policy" in _screenshot(broken, tmp_path)
