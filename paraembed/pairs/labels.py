"""Labels of pairs: which ones mark a paraphrase, and the rows that the others reject."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from paraembed.io.escape import listed
from paraembed.pairs.blocks import Block, filled

IS_PARAPHRASE = {
    **dict.fromkeys(("1", "true", "yes", "paraphrase", "duplicate", "entailment"), True),
    **dict.fromkeys(("equivalence", "forwardentailment", "reverseentailment", "otherrelated"), True),  # of PPDB
    **dict.fromkeys(("0", "false", "no", "not_paraphrase", "not_duplicate", "not_entailment"), False),
    **dict.fromkeys(("contradiction", "neutral", "exclusion", "independent"), False),
    **dict.fromkeys(("-", "-1"), False),  # no label, in SNLI and in Hugging Face's data sets
}
"""Known labels of PAWS, Quora, MRPC, NLI and PPDB 2.0, in lower case → whether their pairs are paraphrases."""

_MOST_LABELS = 100
_SHOWN = 40  # characters of a label in a reason


@dataclass(frozen=True)
class LabelRule:
    """Rule that decides by their labels which pairs are kept."""

    keep: Sequence[str] = ()  # labels of paraphrases, in any case; default: those of ``IS_PARAPHRASE``
    all_entailments: bool = False  # whether all lines of PPDB are kept, unless ``keep`` names labels
    is_labeled: bool = False  # whether rows without a label are rejected, except lines of PPDB: version 1.0 has none

    def applies_to(self, form: str) -> bool:
        """Return whether the rule can reject rows of a format."""
        return bool(self.keep) or form != "ppdb" or not self.all_entailments

    def filter(self, block: Block, where: str) -> Block:
        """Return a block whose rows with other labels are rejected; ``where`` is the name of its file.

        Raise ValueError if a label is unknown and ``keep`` is empty, or if the block has more than 100 labels.
        """
        is_optional = block.form == "ppdb" or not self.is_labeled
        if not self.applies_to(block.form) or (is_optional and block.pairs.relation.null_count == len(block)):
            return block
        encoded = _labels(block).dictionary_encode()
        labels = encoded.dictionary.to_pylist()
        chosen = {*map(_plain, self.keep)}
        kept = [name in chosen if chosen else IS_PARAPHRASE.get(name) for name in map(_plain, labels)]
        if len(labels) > _MOST_LABELS or None in kept:
            column = block.columns.get("relation", "entailment")
            raise ValueError(
                f"{where}: the column {column} has the labels {listed(sorted(labels))}; name those of paraphrases with "
                "`keep_labels`, or give the column the role score or ignore with `columns`"
            )
        reasons = [None if is_kept else f"label {label[:_SHOWN]}" for is_kept, label in zip(kept, labels, strict=True)]
        refused = pc.coalesce(block.pairs.refused, pa.array(reasons, pa.string()).take(encoded.indices))
        if not is_optional:
            refused = pc.coalesce(refused, pc.if_else(pc.is_null(encoded), "no label", pa.scalar(None, pa.string())))
        return replace(block, pairs=replace(block.pairs, refused=refused))

    def count(self, block: Block) -> dict[str, int]:
        """Return the number of rows of each label in a block after ``filter``."""
        if not self.applies_to(block.form):
            return {}
        counts = pc.value_counts(_labels(block).drop_null())
        return dict(zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True))


def _labels(block: Block) -> pa.StringArray:
    """Return the label of each row [n] of a block; null if it has none, or the row is rejected."""
    return pc.if_else(pc.is_null(block.pairs.refused), filled(block.pairs.relation), pa.scalar(None, pa.string()))


def _plain(label: str) -> str:
    return label.lower().removesuffix(".0")  # a column of floats
