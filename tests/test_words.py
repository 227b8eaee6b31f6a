"""The project speaks the field's language: words that it does not use, and names that say nothing of what they hold."""

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

from paraembed.aliases import ON_DISK

ROOT = Path(__file__).parents[1]
PLACES = (
    *sorted(str(path.parent.relative_to(ROOT)) for path in ROOT.glob("paraembed/*/__init__.py")),
    *("jobs", "tune_spaces", "docs", "infra", "README.md", "SECURITY.md", "CONTRIBUTING.md"),
    *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("paraembed/*.py") if path.name != "aliases.py"),
)
ONE_WORD = re.compile(
    r"""(?<!\w)(?:
    go(?:es|ing)?\ on | went\ on                                # resume, continue
    | gold\ labels? | priors? | unknown\ words?                 # labels; pretrained encoder; OOV token, <unk>
    | boundary\ (?:tokens?|words?)                              # BOS/EOS tokens
    | looks?\ at\ the\ dev\w* | development\ parts?             # evaluation on the dev set
    | afresh | growing | halvings? | twos                                 # start over; nested subsets; pairs
    | refuses? | refused | refusing | judges? | judged          # reject, filter
    | dies | die | died | tells? | told                         # fail; log
    | beside | ours | side\ by\ side | in\ words                # next to; this run; adjacent; a clear error
    | stands? | stand\ for                                    # say what it is
    | composition_(?:learning_rate|penalty|target) | word_penalty | penalty_form | head_penalty
    | mega_batches | mega_anneal | pool_workers | dev_every
    | (?:tokeni|optimi|regulari|normali|initiali|maximi|minimi|lemmati|finali|summari|generali)s(?:e[ds]?|er|ing|ation)
    | neighbours? | centred | labelled | favour\w* | behaviour\w*
    )(?!\w)""",
    re.IGNORECASE | re.VERBOSE,
)
PROSE = (".py", ".md", ".jinja", "results.tsv", "sources.tsv")
NAMES = {"at", "found", "held", "made", "one", "said", "some", "there", "told"}
# Names on disk and in public tables: keys of files, columns, recipes and spaces of 0.1; a word of SST; Ray's own file.
ON_DISK_NAMES = {"refused", *ON_DISK.values(), *(name.replace("_", "-") for name in ON_DISK.values())}
ALLOWED = re.compile(
    "|".join(sorted(map(re.escape, ON_DISK_NAMES), key=len, reverse=True))
    + r"|acl2017/\w+-(?:regularised|boundary)|mlflow\(?-refused|-refused\.jsonl|nearest-neighbours"
    + r"|ours × 100|--init ours|\"ours\"|\(ours\)|'ours'"
)


def files_of(place):
    path = ROOT / place
    return [path] if path.is_file() else sorted(file for suffix in PROSE for file in path.rglob(f"*{suffix}"))


def lines_of(path):
    """The prose of a file, a line with its number: of Python the comments, strings and names."""
    text = path.read_text()
    if path.suffix != ".py":
        return list(enumerate(text.splitlines(), 1))
    kinds = {tokenize.COMMENT, tokenize.STRING, tokenize.NAME, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    others = {"refuse", "refused", "tell"}  # methods and fields of io and pairs; of files
    tokens = [
        token
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type in kinds and token.string not in others
    ]
    return [
        (token.start[0] + offset, line) for token in tokens for offset, line in enumerate(token.string.splitlines())
    ]


@pytest.mark.parametrize("place", PLACES)
def test_the_words_are_those_of_the_field(place):
    wrong = []
    for path in files_of(place):
        for number, line in lines_of(path):
            wrong += [
                f"{path.relative_to(ROOT)}:{number}: {match[0]}: {line.strip()[:120]}"
                for match in ONE_WORD.finditer(ALLOWED.sub("", line))
            ]
    assert not wrong, "\n".join(wrong)


def variables_of(tree):
    """The names that a module gives to values and parameters, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg


@pytest.mark.parametrize("place", PLACES)
def test_variables_say_what_they_hold(place):
    paths = [path for path in files_of(place) if path.suffix == ".py"]
    wrong = [
        f"{path.relative_to(ROOT)}:{number}: {name}"
        for path in paths
        for number, name in variables_of(ast.parse(path.read_text()))
        if name in NAMES
    ]
    assert not wrong, "\n".join(wrong)
