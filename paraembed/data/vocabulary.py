"""The words of a word-vector file, without the vectors."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from paraembed.data.lines import read_lines


def read_vocabulary(path: Path, max_words: int | None = None) -> pa.StringArray:
    """The first word of each line, lower-cased, each once, in the order of the file.

    Args:
        path: word-vector text file, plain or compressed, with or without a header; or one word a line.
        max_words: only so many different words, the first ones (files are ordered by frequency).

    Raises:
        FileNotFoundError, IsADirectoryError: as said.
        ValueError: ``max_words`` is not positive; or as ``read_lines``.
    """
    if max_words is not None and max_words < 1:
        raise ValueError(f"max_words is {max_words}; it must be at least 1, or left out for every word")
    words, waiting, num_waiting = pa.array([], pa.string()), list[pa.StringArray](), 0
    for lines in read_lines(path):
        text = lines.text
        if lines.first == 0 and pc.match_substring_regex(text[0], r"^\d+ \d+ *$").as_py():
            text = text.slice(1)
        here = pc.utf8_lower(pc.list_element(pc.split_pattern(text.drop_null(), " ", max_splits=1), 0))
        waiting.append(here)
        num_waiting += len(here)
        if num_waiting > len(words) or (max_words is not None and len(words) + num_waiting >= max_words):
            # Only once there are as many new ones as words: merging after each block would be quadratic.
            words, waiting, num_waiting = pc.unique(pa.concat_arrays([words, *waiting])), [], 0
        if max_words is not None and len(words) >= max_words:
            return words.slice(0, max_words)
    return pc.unique(pa.concat_arrays([words, *waiting]))
