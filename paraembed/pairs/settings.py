"""Settings that decide the rows of pair shards."""

from dataclasses import dataclass
from typing import Literal

from paraembed.options import MOST_INT, check_fields
from paraembed.text import check_tokenizer

Format = Literal["auto", "ppdb", "tsv", "csv", "words", "aligned", "parquet", "jsonl"]
Role = Literal[
    "first",
    "second",
    "score",
    "relation",
    "first_tree",
    "second_tree",
    "first_pos",
    "second_pos",
    "alignment",
    "ignore",
]
SetName = Literal[
    "iclr2016",
    "tacl2015/words",
    "tacl2015/bigrams-jn",
    "tacl2015/bigrams-nn",
    "tacl2015/bigrams-vn",
    "tacl2015/phrases",
    "tacl2015/annotated",
    "pgru2017",
    "acl2017/simpwiki",
    "acl2017/ppdb-matched",
]
NestedSubsets = Literal["none", "ordered", "random"]
Split = Literal["all", "train", "dev", "test"]


@dataclass(frozen=True)
class FilterOptions:
    """Filters of the pairs, and how many to keep."""

    training_set: SetName | None = None
    """Training set of a paper to build, see paraembed/pairs/training_sets.py; default: keep every pair."""
    min_score: float | None = None
    """Reject pairs without a score or with a score below this value; default: no limit."""
    max_length: int | None = None
    """Reject pairs with a text of more than N tokens; default: no limit."""
    top: int | None = None
    """Keep only the first N pairs in input order (PPDB is ordered by confidence); default: all."""
    sample: int | None = None
    """Draw N random pairs, after top if both are given; default: all."""
    sample_seed: int = 1
    """Random seed of sample, nested_subsets random and acl2017/ppdb-matched."""
    nested_subsets: NestedSubsets = "none"
    """Also write nested subsets of 1/2, 1/4, … of the pairs, down to fewer than 10: the first ones (ordered) or random
    ones (Wieting 2016 figure 1).
    """
    split: Split = "all"
    """Split of pgru2017 to write; default: all three, train (80 %), dev (10 %) and test (10 %), one folder each."""
    match_tokens_of: str | None = None
    """For acl2017/ppdb-matched: folder of pair shards; pairs are sampled until they have as many tokens."""
    leave_out: tuple[str, ...] = ()
    """Folders of pair shards, such as dev and test pairs, whose pairs are excluded in either order of the texts."""

    def __post_init__(self) -> None:
        counts = dict.fromkeys(("max_length", "top", "sample"), (1, MOST_INT))
        check_fields(self, {**counts, "sample_seed": (0, MOST_INT), "rows_per_shard": (1, 1_000_000)})
        if self.split != "all" and self.training_set != "pgru2017":
            raise ValueError(
                f"split is {self.split}, but only the training set pgru2017 has splits; leave split at all"
            )
        if self.nested_subsets != "none" and self.training_set == "pgru2017" and self.split == "all":
            raise ValueError("nested_subsets of pgru2017 need a single split; give `split` train, dev or test")
        matched = self.training_set == "acl2017/ppdb-matched"
        if matched != (self.match_tokens_of is not None):
            raise ValueError(
                "acl2017/ppdb-matched needs `match_tokens_of`, a folder of pair shards whose number of tokens is "
                "matched"
                if matched
                else "match_tokens_of can only be used with the training set acl2017/ppdb-matched"
            )
        if matched and self.sample is not None:
            raise ValueError("sample and match_tokens_of both set the number of pairs; give only one of them")


@dataclass(frozen=True)
class ShardSettings(FilterOptions):
    """Settings that, together with the input files, decide the rows of the shards."""

    format: Format = "auto"
    """Input format; auto: detect it from the name and first line of each file."""
    columns: tuple[Role, ...] = ()
    """Roles of the columns of TSV, CSV, Parquet or JSONL input, in order; default: from the column names."""
    no_header: bool = False
    """Read the first row of TSV or CSV input as a pair, even if it looks like a header."""
    features: tuple[str, ...] = ()
    """PPDB features to write as columns, such as PPDB1.0Score or AGigaSim; NA becomes null."""
    alignment: bool = False
    """Write the word alignment of PPDB as a column."""
    keep_labels: tuple[str, ...] = ()
    """Labels of pairs to keep, in any case; the pairs of all other labels are rejected. Default: 1, true, entailment,
    paraphrase and the like; of PPDB, all but Exclusion and Independent, or all for the training set of a paper.
    """
    non_terminals: bool = False
    """Keep syntactic rules of PPDB with non-terminals such as [NP,1]."""
    tokenizer: str = "auto"
    """Tokenizer of the texts; auto: space for PPDB and word lists, ptb-v1 for other formats."""
    remove: tuple[str, ...] = ()
    """Strings to remove from the texts, such as the marker <::::> of WikiSplit."""
    rows_per_shard: int = 250_000
    """Maximum rows per shard file, 1 to 1,000,000."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tokenizer != "auto":
            check_tokenizer(self.tokenizer)
        if self.features:
            from paraembed.pairs.schema import PAIRS  # noqa: PLC0415 - imports Arrow, which help does without

            taken = [*PAIRS.names, "alignment"]
            if len({*self.features} - {*taken}) < len(self.features):
                features = ", ".join(self.features)
                raise ValueError(f"features are {features}; give each once, and none of {', '.join(taken)}")
        if "" in self.remove:
            raise ValueError("remove contains an empty string; give the strings to remove, or none")
