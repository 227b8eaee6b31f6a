"""Public original files that users of this project need, with address, size, SHA-256 and license.

No address was tried when this table was written. They occur in public code, except those of ``ppdb-1.0-s-all``, the
PPDB files with phrases and ``paragram-sl999``, which are derived from others of the same server. A size or digest is
given only if public sources record it. The servers are old: paraphrase.org (403 since 2025) is reported as gone. The
parameter ``url`` of ``fetch`` is a mirror or a local file.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Source:
    """A public file; ``license`` is that of the publisher, ``file`` the name in the cache."""

    name: str
    url: str
    file: str
    license: str
    what: str
    kind: Literal["ppdb", "vectors", "sets"]
    num_bytes: int | None = None  # None: unknown
    sha256: str | None = None  # hexadecimal; None: unknown


_PPDB = {
    "1.0": ("http://www.cis.upenn.edu/~ccb/ppdb/release-1.0", "CC BY 3.0"),
    "2.0": ("http://nlpgrid.seas.upenn.edu/PPDB/eng", "CC BY, see paraphrase.org"),
}
_UNSTATED, _STS = "not stated", "scores CC BY-SA 4.0, texts by source"
_TTIC, _STANFORD = "http://ttic.uchicago.edu/~wieting", "https://nlp.stanford.edu/data"
_STSWIKI, _SEMEVAL = "http://ixa2.si.ehu.es/stswiki/images", "http://alt.qcri.org/semeval2014/task1/data/uploads"
_FASTTEXT = "https://dl.fbaipublicfiles.com/fasttext/vectors-english"


def _ppdb(release: str, part: str, what: str) -> Source:
    (folder, terms), name = _PPDB[release], f"ppdb-{release}-{part}"
    return Source(name, f"{folder}/{name}.gz", f"{name}.gz", terms, f"PPDB {release} English, {what}", "ppdb")


def _at(folder: str, name: str, path: str, terms: str, what: str, kind: Literal["vectors", "sets"]) -> Source:
    return Source(name, f"{folder}/{path}", path.rpartition("/")[2], terms, what, kind)


# fmt: off
_ALL = (
    _ppdb("1.0", "s-all", "S, all parts (Zhou 2017)"),
    _ppdb("1.0", "xl-lexical", "XL, pairs of words (Wieting 2015)"),
    _ppdb("1.0", "xl-phrasal", "XL, pairs of phrases (Wieting 2016)"),
    _ppdb("1.0", "xxl-phrasal", "XXL, pairs of phrases (Wieting 2016)"),
    _ppdb("2.0", "s-phrasal", "S, pairs of phrases"),
    _ppdb("2.0", "xxl-phrasal", "XXL, pairs of phrases"),
    Source("paragram-sl999",
           "https://drive.usercontent.google.com/download?id=0B9w48e1rj-MOck1fRGxaZW1LU2M&export=download&confirm=t",
           "paragram_300_sl999.zip", _UNSTATED, "PARAGRAM-SL999 word vectors, 300 wide (Wieting 2015)", "vectors",
           sha256="9a16adc7d620642f863278451db4c03a2646016440ccea7e30a37ba17868781d"),
    _at(_TTIC, "paragram-phrase-xxl", "paragram-phrase-XXL.zip", _UNSTATED,
        "PARAGRAM-PHRASE XXL word vectors, 300 wide (Wieting 2016)", "vectors"),
    Source("glove-6b", f"{_STANFORD}/glove.6B.zip", "glove.6B.zip", "PDDL 1.0",
           "GloVe of 6B tokens, 400,000 words, 50 to 300 wide", "vectors", 862_182_613,
           "617afb2fe6cbd085c235baf7a465b96f4112bd7f7ccb2b2cbd649fed9cbcf2fb"),
    Source("glove-840b", f"{_STANFORD}/glove.840B.300d.zip", "glove.840B.300d.zip", "PDDL 1.0",
           "GloVe of 840B tokens, 2,196,017 words, 300 wide", "vectors", 2_176_768_927,
           "c06db255e65095393609f19a4cfca20bf3a71e20cc53e892aafa490347e3849f"),
    _at(_FASTTEXT, "fasttext-crawl", "crawl-300d-2M.vec.zip", "CC BY-SA 3.0",
        "fastText of Common Crawl, 2 million words, 300 wide", "vectors"),
    _at(_STSWIKI, "sts-2012", "4/40/STS2012-en-test.zip", _STS, "SemEval STS 2012, test", "sets"),
    _at(_STSWIKI, "sts-2013", "2/2f/STS2013-en-test.zip", _STS, "SemEval STS 2013, test", "sets"),
    _at(_STSWIKI, "sts-2014", "8/8c/STS2014-en-test.zip", _STS, "SemEval STS 2014, test", "sets"),
    _at(_STSWIKI, "sts-2015", "d/da/STS2015-en-test.zip", _STS, "SemEval STS 2015, test", "sets"),
    _at(_STSWIKI, "sts-2016", "9/98/STS2016-en-test.zip", _STS, "SemEval STS 2016, test", "sets"),
    _at(_SEMEVAL, "sick-train", "sick_train.zip", "CC BY-NC-SA 3.0", "SICK, training", "sets"),
    _at(_SEMEVAL, "sick-trial", "sick_trial.zip", "CC BY-NC-SA 3.0", "SICK, trial (dev)", "sets"),
    _at(_SEMEVAL, "sick-test", "sick_test_annotated.zip", "CC BY-NC-SA 3.0", "SICK, test", "sets"),
    _at("https://fh295.github.io", "simlex-999", "SimLex-999.zip", _UNSTATED, "SimLex-999 (Hill 2014)", "sets"),
)
# fmt: on
SOURCES = {source.name: source for source in _ALL}


def find_source(name: str) -> Source:
    """Return the source with this name; raise ValueError if the name is unknown."""
    if name not in SOURCES:
        raise ValueError(f"unknown source {name!r}; allowed: {', '.join(SOURCES)}")
    return SOURCES[name]
