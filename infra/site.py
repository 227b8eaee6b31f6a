"""Copy the pages of the repository to one folder for the site generator: ``python infra/site.py``, a step of make docs.

Pages outside of docs/ (README, CONTRIBUTING, the guide of infra, …) become pages of the site. A link to a file that is
not a page, such as a module, becomes plain text, because the site has an API reference for modules.
"""

import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
OUTSIDE = {
    "README.md": "readme.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "infra/README.md": "machines.md",
}
"""Page outside of docs/ → its name on the site."""
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]*)(#[^)\s]*)?\)")
_CODE = re.compile(r"`[^`\n]+`")
_BLOCK = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def site_pages() -> dict[Path, str]:
    """Return the file of each page and its name on the site."""
    pages = {path: path.name for path in sorted((ROOT / "docs").glob("*.md"))}
    return pages | {ROOT / name: target for name, target in OUTSIDE.items()}


def text_on_the_site(path: Path, text: str, pages: dict[Path, str]) -> str:
    """Return the text of the page at a path of the repository with the links and escapes of the site."""

    def link(match: re.Match[str]) -> str:
        mark, label, target, anchor = match[1], match[2], match[3], match[4] or ""
        if not target or re.match(r"[a-z]+:", target):
            return match[0]
        file = (path.parent / target).resolve()
        if file in pages:
            return f"{mark}[{label}]({pages[file]}{anchor})"
        if file.is_relative_to(ROOT / "docs" / "images"):
            return f"{mark}[{label}](images/{file.name})"
        return label

    def page(part: str) -> str:
        r"""Adapt the text between two blocks: tables on a code host need ``\|`` in code, but the site generator does
        not.
        """
        return _LINK.sub(link, _CODE.sub(lambda match: match[0].replace(r"\|", "|"), part))

    parts = _BLOCK.split(text)
    return "".join(part if number % 2 else page(part) for number, part in enumerate(parts))


def write_site(folder: Path) -> None:
    """Write all pages and pictures to a folder, which is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs" / "images", folder / "images")
    pages = site_pages()
    for path, name in pages.items():
        (folder / name).write_text(text_on_the_site(path, path.read_text(), pages))


if __name__ == "__main__":
    write_site(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "docs")
