"""The site: its pages, their links, and a strict build where the generator is installed."""

import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec

import pytest

import paraembed
from infra import gallery, site
from tests.docs.pages import PAGES, ROOT, text_of

CONFIG = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]


def test_the_navigation_has_every_page():
    listed = [page for section in CONFIG["nav"] for pages in section.values() for one in pages for page in one.values()]
    assert sorted(listed) == sorted(site.site_pages().values())
    outside = {path for path in PAGES if path.parent != ROOT / "docs" and ".github" not in path.parts}
    assert {ROOT / name for name in site.OUTSIDE} == outside


def test_links_stay_on_the_site(tmp_path):
    site.write_site(tmp_path / "pages")
    for page in (tmp_path / "pages").glob("*.md"):
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)):
            assert re.match(r"[a-z]+:|#", target) or (tmp_path / "pages" / target.partition("#")[0]).is_file(), target


def test_links_to_modules_and_escapes_become_text():
    pages = site.site_pages()
    text = (
        "[`avg.py`](../paraembed/encoders/avg.py), [x](../infra/README.md#image), `a \\| b`\n```bash\n[x](../y)\n```\n"
    )
    expected = "`avg.py`, [x](machines.md#image), `a | b`\n```bash\n[x](../y)\n```\n"
    assert site.text_on_the_site(ROOT / "docs" / "train.md", text, pages) == expected


def test_nothing_is_fetched():
    assert CONFIG["theme"]["font"] is False
    assert "http" not in (ROOT / "zensical.toml").read_text()


@pytest.mark.skipif(find_spec("zensical") is None, reason="the extra 'docs' is not installed")
def test_the_site_builds_strictly():
    subprocess.run([sys.executable, "infra/site.py"], cwd=ROOT, check=True)
    subprocess.run([sys.executable, "-m", "zensical", "build", "--strict", "--clean"], cwd=ROOT, check=True)
    assert "encode" in (ROOT / "build" / "site" / "reference.html").read_text()


def test_the_gallery_is_that_of_its_script():
    page = text_of("docs/gallery.md")
    assert set(re.findall(r"<!-- (\w+) -->", page)) <= {*gallery.JOBS}
    assert set(re.findall(r"\(images/([\w.-]+)\)", page)) == {*gallery.PICTURES}
    for name in re.findall(r"<!-- (\w+) -->", page):
        assert f"$ paraembed {gallery.JOBS[name]}\n" in page
    assert gallery.with_block("<!-- a -->\n\n```text\nold\n```\nend", "a", "new\\1") == (
        "<!-- a -->\n\n```text\nnew\\1\n```\nend"
    )


def test_one_version_everywhere():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert paraembed.__version__ == version
    assert f"\nversion: {version}\n" in text_of("CITATION.cff")
    assert f"\n## [{version}]" in text_of("CHANGELOG.md")
    tags = {
        tag
        for path in (ROOT / "infra").rglob("*")
        if path.is_file() and path.suffix in {"", ".yaml", ".md"}
        for tag in re.findall(r"(?:paraembed:|newTag: )(\d+\.\d+\.\d+)", path.read_text())
    }
    assert tags == {version}
