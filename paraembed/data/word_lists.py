"""Lists of words, each followed by its paraphrases, as retrofitting reads them: one line makes many pairs."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.data.lines import Lines
from paraembed.data.parsed import Block, ParsedPairs, TextRows, is_blank, refuse


def read_word_list(blocks: Iterator[Lines]) -> Iterator[Block]:
    """Pairs of the first word of each line with each other word of it; white space separates words.

    A line of one word is refused, as is one that cannot be read; each counts as one row.
    """
    row = 0
    for lines in blocks:
        text = pc.fill_null(lines.text, "")
        words = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(text))
        offsets = words.offsets.to_numpy().astype(np.int64)
        counts = np.diff(offsets)
        num_rows = np.maximum(counts - 1, 1)
        line = np.repeat(np.arange(len(lines)), num_rows)
        place = np.arange(len(line)) - np.repeat(np.cumsum(num_rows) - num_rows, num_rows) + 1
        heads, flat = offsets[line], words.flatten()
        first = flat.take(pa.array(heads - offsets[0]))
        second = flat.take(pa.array(heads - offsets[0] + np.minimum(place, counts[line] - 1)))
        alone = pa.array(counts[line] < 2)
        tests = [(test.take(pa.array(line)), name) for test, name in (*lines.tests(), (is_blank(text), "empty line"))]
        none = pa.nulls(len(line), pa.string())
        refused = refuse([*tests, (alone, "too few fields")])
        score = pa.nulls(len(line), pa.float32())
        yield Block(
            "words", row, TextRows(first, second), ParsedPairs(first, second, score, none, none, none, refused),
            lines.first + line,
        )  # fmt: skip
        row += len(line)
