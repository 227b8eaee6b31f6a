"""Write the texts and pairs of the table "More texts, and words next to word pieces" in docs/teach.md.

Run: python infra/teach_data.py DATA WORK

DATA holds train/sentpairs and train/text, as for infra/small.py; WORK gets texts.txt and pairs.tsv, for the commands of
that table: jobs/shard.py --input WORK/pairs.tsv --tokenizer space, and jobs/teach.py --texts WORK/texts.txt.

The number of pairs is that of the table: 260,747 distinct ones; without texts of the evaluation sets 260,618, by the
rule that --leave-out had then, and 260,608 by today's. The texts are not exactly those of the table: 328,899 by that
rule, where it has 328,816, and 328,891 by today's. Which 56,000 pairs gave the 109,877 texts of the table before, and
which 275,169 pairs it had, was not recorded.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from infra.small import WIKIPEDIA, lines, plain, questions, texts

PAIRS = ["wyudu.quora.train", "wyudu.twitter_url.train", "parasci.ACL.train", "simpwiki-v2.10pct-dev.normal-simple"]
SIMPLIFIED = "asset.valid.orig-plus-10-simp.tsv.gz"
MAX_WORDS = 40


def pairs(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the pairs: questions, tweets, papers, Wikipedia, and each sentence of ASSET with its ten simpler forms."""
    for name in [*(f"{name}.tsv.gz" for name in PAIRS), *WIKIPEDIA]:
        for line in lines(folder / name):
            first, second, *_ = line.split("\t")
            yield cleaned(first), cleaned(second)
    yield from ((cleaned(first), cleaned(second)) for first, second, *_ in questions(folder))
    for line in lines(folder / SIMPLIFIED):
        first, *others = line.split("\t")
        yield from ((cleaned(first), cleaned(other)) for other in others)


def cleaned(text: str) -> str:
    """Return a text without the marks of tokenizers and of WikiSplit, with single spaces."""
    return plain(" ".join(text.replace("<::::>", " ").split()))


def main(data: Path, work: Path) -> None:
    """Write the files."""
    work.mkdir(parents=True, exist_ok=True)
    unordered = dict[frozenset[str], tuple[str, str]]()
    for pair in filter(all, pairs(data / "train" / "sentpairs")):
        unordered.setdefault(frozenset(text.lower() for text in pair), pair)
    kept = [pair for texts_of_pair, pair in unordered.items() if len(texts_of_pair) == 2]
    (work / "pairs.tsv").write_text("".join(f"{first}\t{second}\n" for first, second in kept), encoding="utf-8")
    of_pairs = (text for pair in kept for text in pair if len(text.split()) <= MAX_WORDS)
    distinct = dict.fromkeys([*texts(data), *of_pairs])
    (work / "texts.txt").write_text("".join(f"{text}\n" for text in distinct), encoding="utf-8")
    print(f"{len(distinct):,} texts, {len(kept):,} pairs")  # noqa: T201 - what it is run for


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
