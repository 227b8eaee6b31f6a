"""Public original files of the four papers, with URL, size, digest and license.

No URL was tested when this table was written. ``Source.evidence`` names the evidence for each: a "seen" URL occurs
verbatim in public code (the set-up scripts of the papers' authors, if available); a "pattern" URL is derived from such
a URL by size and part. Sizes and digests are given if two public sources agree (for paragram-sl999, one source); the
others are recorded at the first download. The servers are old: paraphrase.org (403 since 2025) and the word2vec bucket
are reported as gone. The parameter ``url`` of ``fetch`` is a mirror or a local file.
"""

from dataclasses import dataclass
from typing import Literal

SIZES = ("s", "m", "l", "xl", "xxl", "xxxl")
PARTS = {
    "lexical": "one word each side",
    "o2m": "one word to a phrase",
    "m2o": "a phrase to one word",
    "phrasal": "phrases of several words",
    "syntax": "patterns with non-terminals",
    "all": "all parts",
}


@dataclass(frozen=True)
class Source:
    """A public file."""

    name: str  # name on the command line
    url: str  # http or https URL
    file: str  # name in the cache; ``.zip`` and ``.tar.gz`` are unpacked next to it
    num_bytes: int | None  # size, if known
    sha256: str | None  # digest of the file on the server, hexadecimal, if known
    license: str  # license as stated by the publisher
    what: str
    # Format: ``ppdb`` lines, ``aligned`` (two files with equally many lines), ``pairs`` (an archive of the authors with
    # two-column pair files), word ``vectors`` (text), ``binary`` vectors.
    kind: Literal["ppdb", "aligned", "pairs", "vectors", "binary"]
    evidence: Literal["seen", "pattern"]  # evidence for the URL, see the module


_PPDB_SEEN = {
    *("ppdb-1.0-s-lexical", "ppdb-1.0-s-o2m", "ppdb-1.0-xl-lexical"),
    *("ppdb-2.0-s-lexical", "ppdb-2.0-s-phrasal", "ppdb-2.0-m-all", "ppdb-2.0-xxl-lexical", "ppdb-2.0-xxxl-all"),
}


def _ppdb(release: str, size: str, part: str) -> Source:
    folder, terms = {
        "1.0": ("http://www.cis.upenn.edu/~ccb/ppdb/release-1.0", "CC BY 3.0"),
        "2.0": ("http://nlpgrid.seas.upenn.edu/PPDB/eng", "CC BY, see paraphrase.org"),
    }[release]
    name = f"ppdb-{release}-{size}-{part}"
    what = f"PPDB {release} English, {size.upper()}, {PARTS[part]}"
    seen: Literal["seen", "pattern"] = "seen" if name in _PPDB_SEEN else "pattern"
    return Source(name, f"{folder}/{name}.gz", f"{name}.gz", None, None, terms, what, "ppdb", seen)


_UNSTATED = "not stated"
_TTIC, _STANFORD = "http://ttic.uchicago.edu/~wieting", "https://nlp.stanford.edu/data"
# fmt: off
_OTHERS = (
    Source("simpwiki-v2", "http://www.cs.pomona.edu/~dkauchak/simplification/data.v2/sentence-aligned.v2.tar.gz",
           "sentence-aligned.v2.tar.gz", None, None, "not stated; text of Wikipedia, CC BY-SA 3.0",
           "SimpWiki, 167,689 aligned sentence pairs (Kauchak 2013)", "aligned", "seen"),
    Source("tacl2015-demo", f"{_TTIC}/paragram-word-demo.zip", "paragram-word-demo.zip", None, None, _UNSTATED,
           "the authors' PPDB XL word pairs and vectors (Wieting 2015)", "pairs", "seen"),
    Source("iclr2016-demo", f"{_TTIC}/iclr-demo.zip", "iclr-demo.zip", None, None, _UNSTATED,
           "the authors' PPDB XL phrase pairs and vectors (Wieting 2016)", "pairs", "seen"),
    Source("acl2017-demo", f"{_TTIC}/acl2017-demo.zip", "acl2017-demo.zip", None, None, _UNSTATED,
           "the authors' pairs and vectors (Wieting and Gimpel 2017)", "pairs", "seen"),
    Source("paragram-sl999",  # the file's number and digest are seen, this form of the address is not
           "https://drive.usercontent.google.com/download?id=0B9w48e1rj-MOck1fRGxaZW1LU2M&export=download&confirm=t",
           "paragram_300_sl999.zip", None, "9a16adc7d620642f863278451db4c03a2646016440ccea7e30a37ba17868781d",
           "not stated by the authors", "PARAGRAM-SL999 word vectors, 300 wide (Wieting 2015)", "vectors", "pattern"),
    Source("paragram-phrase-xxl", f"{_TTIC}/paragram-phrase-XXL.zip", "paragram-phrase-XXL.zip", None, None, _UNSTATED,
           "PARAGRAM-PHRASE XXL word vectors, 300 wide (Wieting 2016)", "vectors", "seen"),
    Source("glove-6b", f"{_STANFORD}/glove.6B.zip", "glove.6B.zip", 862_182_613,
           "617afb2fe6cbd085c235baf7a465b96f4112bd7f7ccb2b2cbd649fed9cbcf2fb", "PDDL 1.0",
           "GloVe of 6B tokens, 400,000 words, 50 to 300 wide", "vectors", "seen"),
    Source("glove-840b", f"{_STANFORD}/glove.840B.300d.zip", "glove.840B.300d.zip", 2_176_768_927,
           "c06db255e65095393609f19a4cfca20bf3a71e20cc53e892aafa490347e3849f", "PDDL 1.0",
           "GloVe of 840B tokens, 2,196,017 words, 300 wide", "vectors", "seen"),
    Source("word2vec-googlenews",
           "https://s3.amazonaws.com/dl4j-distribution/GoogleNews-vectors-negative300.bin.gz",
           "GoogleNews-vectors-negative300.bin.gz", 1_647_046_227,
           "21c05ae916a67a4da59b1d006903355cced7de7da1e42bff9f0504198c748da8",
           "not stated (the project's code is Apache-2.0)",
           "word2vec of Google News, 3M words and phrases, 300 wide", "binary", "seen"),
)
# fmt: on

_PPDB = [_ppdb(release, size, part) for release in ("1.0", "2.0") for size in SIZES for part in PARTS]
SOURCES = {source.name: source for source in (*_PPDB, *_OTHERS)}


def find_source(name: str) -> Source:
    """Return the source with this name; raise ValueError if the name is unknown."""
    if name in SOURCES:
        return SOURCES[name]
    ppdb = f"ppdb-{{1.0,2.0}}-{{{','.join(SIZES)}}}-{{{','.join(PARTS)}}}"
    raise ValueError(f"unknown source {name!r}; allowed: {', '.join([ppdb, *(source.name for source in _OTHERS)])}")
