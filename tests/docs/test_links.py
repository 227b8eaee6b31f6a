"""Links, anchors, file names and names of tests in the pages."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from paraembed.encoders import ENCODERS
from paraembed.papers import RECIPES
from tests.docs.pages import NAMES, PAGES, ROOT, prose, text_of

_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
TESTS = "\n".join(path.read_text() for path in ROOT.glob("tests/**/test_*.py"))


def anchors(path):
    """The anchors that a code host makes of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S), re.M)
    return {
        re.sub(r"[^\w\- ]", "", re.sub(r"[`*]", "", heading).lower()).strip().replace(" ", "-") for heading in headings
    }


@pytest.mark.parametrize("path", PAGES, ids=NAMES)
def test_links_lead_somewhere(path):
    for target in _LINK.findall(prose(path.relative_to(ROOT))):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        linked = (path.parent / file).resolve() if file else path
        assert linked.exists(), target
        assert linked.is_relative_to(ROOT), target
        if anchor:
            assert anchor in anchors(linked), target
            assert "--" not in anchor, f"{target}: the site has one hyphen there"


@pytest.mark.parametrize("name", NAMES)
def test_named_files_are_there(name):
    files = re.findall(r"`((?:paraembed|infra|tests|jobs|tune_spaces|docs)/[\w./-]+)`", text_of(name))
    assert not [file for file in files if not (ROOT / file).exists() and "X.py" not in file]


@pytest.mark.parametrize("name", NAMES)
def test_named_tests_are_there(name):
    named = set(re.findall(r"`(test_\w+)`", text_of(name)))
    assert not {test for test in named if f"def {test}(" not in TESTS}
    assert len(named) > 8 or name not in {"docs/guarantees.md", "infra/README.md"}


def test_every_page_is_linked_from_another():
    linked = {
        (path.parent / target.partition("#")[0]).resolve()
        for path in PAGES
        for target in _LINK.findall(path.read_text())
        if not re.match(r"[a-z]+:", target)
    }
    assert not {page for page in ROOT.glob("docs/*.md") if page not in linked and page.name != "index.md"}


def test_every_encoder_and_recipe_has_its_line():
    rows = re.findall(r"^\| `(\w+)` \|", text_of("docs/encoders.md"), re.MULTILINE)
    assert rows == [*ENCODERS]
    assert set(re.findall(r"`(\w+)`", text_of("README.md").split("## Encoders")[1].split("](")[0])) == {*ENCODERS}
    lines = re.findall(r"^\* `(\w+)/` (.+)$", text_of("docs/train.md"), re.MULTILINE)
    assert {f"{paper}/{name}" for paper, names in lines for name in re.findall(r"`([\w-]+)`", names)} == {*RECIPES}


def test_the_reference_names_what_exists():
    names = re.findall(r"^::: ([\w.]+)$", text_of("docs/reference.md"), re.MULTILINE)
    assert len(names) >= 6
    for name in names:
        module, _, attribute = name.rpartition(".")
        assert getattr(import_module(module), attribute).__doc__


def test_the_readme_is_short():
    assert len(text_of("README.md").splitlines()) <= 150


def test_a_cost_is_that_of_its_rate():
    table = re.findall(
        r"^\| (.+?) \| ([\d.]+) \| (\S+) \| (\S+) \| (\S+) \| .+ \|$", text_of("docs/which-encoder.md"), re.M
    )
    costs = [(float(rate.replace(",", "")), float(cost)) for *_, rate, _, cost in table if cost != "–"]
    assert len(costs) > 6
    assert [cost for _, cost in costs] == [round(1e9 / rate / 3600 * 0.04, 2) for rate, _ in costs]
    figures = {name: {score, rate, size} for name, score, rate, size, _ in table}
    [of_readme] = [row for row in text_of("README.md").splitlines() if row.startswith("| `small` |")]
    assert figures["`small`"] < {*of_readme.split(" | ")}


def test_pictures_are_small():
    pictures = [path for path in ROOT.glob("docs/images/*") if path.is_file()]
    assert pictures
    assert not [path.name for path in pictures if path.stat().st_size > 150_000]
    assert not [path for path in pictures if path.name not in "".join(page.read_text() for page in PAGES)]
    assert "prefers-color-scheme: dark" in Path(ROOT / "docs/images/flow.svg").read_text()
