"""Word-vector files, vocabularies, and the vector of out-of-vocabulary (OOV) tokens.

The text format has one row per word: ``word v1 … vd``, separated by single spaces or tabs, plain or compressed; a word
may have spaces. word2vec's header line (``rows width``) is accepted if it is correct, or counts a few more rows, like
headers that count repeated words. The vector of OOV tokens is the row ``UUUNKKK`` if the file
has one, like the papers' files, or a row of ``OOV_NAMES``. Otherwise it is the mean of the rows after the vocabulary
cut (Wieting 2015 §5), or the mean of all rows if nothing is cut.
"""

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.io.lines import Lines, read_lines, string_array, strings_of
from paraembed.io.places import open_regular
from paraembed.settings import MAX_BAD_WORDS
from paraembed.text.word_formats import BadRows, Block, binary_blocks, finite_rows, is_binary, model_blocks

LOW_COVERAGE = 0.5
"""Fraction of tokens with a vector below which a warning is logged."""
UNKNOWN = "UUUNKKK"
OOV_NAMES = ("<unk>", "<UNK>", "UNK", "*UNKNOWN*")
"""Other names of the row of OOV tokens, in the files of GloVe, word2vec and others, by precedence."""
START, END = "<S>", "</S>"
"""BOS and EOS tokens. They are upper-case, like UNKNOWN, so they cannot equal a lower-cased token."""
BOS_EOS = {"none": (), "start": (START,), "end": (END,), "both": (START, END)}
"""Value of ``bos_eos_tokens`` → the tokens that it adds to a text."""

_LINE_FEED = ord("\n")
_LAST_ROWS = 20  # to compare the decimals of the last number with
_NUMBER = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Words:
    """Vocabulary with one float32 vector per word; ``UNKNOWN`` is always one of the words."""

    vocabulary: pa.StringArray  # string array [V], distinct
    matrix: npt.NDArray[np.float32]  # float32 [V, d]

    def __post_init__(self) -> None:
        shape, dtype = self.matrix.shape, self.matrix.dtype
        if dtype != np.float32 or len(shape) != 2 or shape[0] != len(self.vocabulary):
            raise ValueError(
                f"the matrix is {dtype} {list(shape)}; expected float32 [{len(self.vocabulary)}, d], one row per word"
            )

    @property
    def unknown(self) -> int:
        """Row of out-of-vocabulary tokens."""
        return unknown_row(self.vocabulary)


def unknown_row(vocabulary: pa.StringArray) -> int:
    """Return the row of out-of-vocabulary tokens in a vocabulary [V]."""
    return word_row(vocabulary, UNKNOWN)


def word_row(vocabulary: pa.StringArray, word: str) -> int:
    """Return the row of a word, such as ``END``; raise ValueError if the vocabulary does not have it."""
    row = int(pc.index(vocabulary, strings_of([word])[0]).as_py())
    if row < 0:
        raise ValueError(f"the vocabulary has no row {word!r}; add a vector for it")
    return row


def word_ids(tokens: pa.StringArray, vocabulary: pa.StringArray) -> npt.NDArray[np.int32]:
    """Return the rows of T tokens in the vocabulary, int32 [T]; OOV tokens get the row of ``UNKNOWN``."""
    rows = pc.fill_null(pc.index_in(tokens, value_set=vocabulary), unknown_row(vocabulary))
    return np.array(rows, np.int32)  # a copy: torch needs writable memory


def read_words(path: Path, max_words: int | None = None, max_bad_words: float = MAX_BAD_WORDS) -> Words:
    """Read a word-vector file.

    Words are lower-cased, like all inputs. Of rows that become the same word, the first is kept; exact repetitions of a
    word are counted in a warning. Rows without a word or vector are skipped; a warning has their number and the first
    five.

    Args:
        path: text file, plain or ``.gz``; word2vec's binary form, ``.bin`` or ``.bin.gz``; or ``model.safetensors`` of
            a static model (see ``text.word_formats``); or fastText's model (see ``text.fasttext``).
        max_words: vocabulary cut: keep only the first N rows (files are ordered by frequency). If the file has no
            vector for OOV tokens, the mean of the other rows becomes that vector.
        max_bad_words: maximum fraction of bad rows: not UTF-8, without a word, of another width, not finite. Unless it
            is 0, up to five are skipped in files of any size, if most rows are good.

    Returns:
        The words of the file in its order; ``UNKNOWN`` replaces the first of ``OOV_NAMES`` that the file has, or is
        added at the end.

    Raises:
        FileNotFoundError, IsADirectoryError: the file is missing or a folder.
        ValueError: the file is empty, binary or truncated, too many rows are bad, or the header contradicts the rows.

    Example:
        >>> words = read_words(Path("vectors.txt"))
        >>> words.matrix.shape
        (12, 4)
        >>> words.vocabulary.to_pylist()[words.unknown]
        'UUUNKKK'
    """
    if max_words is not None and max_words < 1:
        raise ValueError(f"max_words is {max_words}; it must be at least 1, or left out to keep every word")
    bad = BadRows(path, max_bad_words)
    if path.suffix == ".safetensors":
        blocks = model_blocks(path, UNKNOWN, bad)
    else:
        blocks = binary_blocks(path, bad) if is_binary(path) else _blocks(path, replace(bad, unit="line"))
    rows: dict[str, int] = {}
    spellings: set[str] = set()
    oov: dict[str, npt.NDArray[np.float32]] = {}
    kept: list[npt.NDArray[np.float32]] = []
    repeated = num_rows = num_beyond = 0
    sum_all = sum_beyond = np.zeros(1)
    for words, block in blocks:
        fresh, beyond = [], []
        num_rows += len(words)
        lowered = pc.utf8_lower(pa.array(words, pa.string())).to_pylist()
        for row, (spelling, lower) in enumerate(zip(words, lowered, strict=True)):
            repeated += spelling in spellings
            spellings.add(spelling)
            if spelling in OOV_NAMES:
                oov.setdefault(spelling, block[row])
            word = spelling if spelling == UNKNOWN else lower
            if word in rows:
                continue
            if max_words is None or len(rows) < max_words or word == UNKNOWN:
                rows[word] = len(rows)
                fresh.append(row)
            else:
                beyond.append(row)
        kept.append(block[fresh])
        num_beyond += len(beyond)
        sum_all = sum_all + block.sum(axis=0, dtype=np.float64)
        sum_beyond = sum_beyond + block[beyond].sum(axis=0, dtype=np.float64)
    if repeated:
        log.warning("%s: %d repeated words; only the first row of each is used", path, repeated)
    if UNKNOWN in rows:
        return Words(pa.array([*rows], pa.string()), np.concatenate(kept))
    mean = sum_beyond / num_beyond if num_beyond else sum_all / num_rows
    return _with_unknown(path, rows, kept, oov, mean)


def _with_unknown(
    path: Path,
    rows: dict[str, int],
    kept: Sequence[npt.NDArray[np.float32]],
    oov: dict[str, npt.NDArray[np.float32]],
    mean: npt.NDArray[np.float64],
) -> Words:
    """Return the words with ``UNKNOWN``: the first of ``OOV_NAMES`` in ``oov``, renamed, or ``mean`` at the end."""
    name = next((name for name in OOV_NAMES if name in oov), "")
    if name:
        log.warning(
            "%s: the vector of out-of-vocabulary tokens is that of the row %r", path, name
        )  # also with Ray, which turns off INFO
    vector = oov.get(name, mean).astype(np.float32)
    vocabulary, matrix = [*rows, UNKNOWN], np.concatenate([*kept, vector[None]])
    if name and (place := rows.get(name.lower())) is not None:
        vocabulary[place], matrix[place] = UNKNOWN, vector
        return Words(pa.array(vocabulary[:-1], pa.string()), matrix[:-1])
    return Words(pa.array(vocabulary, pa.string()), matrix)


def spaced(text: pa.StringArray) -> pa.StringArray:
    """Return rows [n] of a word-vector file with a space for each tab before a number."""
    if not pc.any(pc.match_substring(text, "\t")).as_py():
        return text
    return pc.replace_substring_regex(text, rf"\t({_NUMBER})\b", r" \1")


def _blocks(path: Path, bad: BadRows) -> Iterator[Block]:
    """Yield the good rows of a text file, several thousand at a time."""
    width = num_rows = 0
    header: tuple[int, int] | None = None
    last_rows, is_ended = list[str](), True
    for lines in read_lines(path):
        is_ended = lines.is_ended or lines.data[-2:-1] in {b" ", b"\r"}  # the last number is whole
        if lines.first == 0:
            header = _header(lines.text[0].as_py())
        skip = int(lines.first == 0 and header is not None)
        text = pc.utf8_rtrim(spaced(lines.text.slice(skip)), " ")
        if not len(text):
            continue
        num_rows += len(text)
        cells = pc.split_pattern(text, " ")
        counts = pc.fill_null(pc.list_value_length(cells), 0).to_numpy()
        width = width or max(0, int(counts[np.argmax(np.bincount(counts)[counts])]) - 1)  # of most rows, else the first
        if header is not None and header[1] != width:
            raise ValueError(
                f"{path}, line 1: the header says {header[1]:,} values per word, but the rows have {width:,}; "
                "correct or delete it"
            )
        begins_with_space = pc.fill_null(pc.starts_with(text, " "), True).to_numpy(zero_copy_only=False)
        is_odd = (counts != width + 1) | (counts < 2) | begins_with_space
        kept = np.arange(len(text))
        if is_odd.any():
            text = _mended(text, is_odd, width)
            kept = np.flatnonzero(pc.is_valid(text))
            for row in np.flatnonzero(pc.is_null(text)).tolist():
                bad.add(lines.first + 1 + skip + row, _fault(lines, row + skip, width))
            text = text.drop_null()
            cells = pc.split_pattern(text, " ")
        is_value = np.tile(np.arange(width + 1) > 0, len(text))
        words = pc.replace_substring(cells.flatten().filter(pa.array(~is_value)), "\n", " ").to_pylist()
        values = _numbers(cells.flatten().filter(pa.array(is_value))).reshape(len(words), width)
        last_rows = [*last_rows, *text[-_LAST_ROWS:].to_pylist()][-_LAST_ROWS:]
        block = finite_rows(words, values, bad, lines.first + 1 + skip + kept)
        bad.check(num_rows)
        yield block
    if not num_rows:
        raise ValueError(f"{path} has no rows; expected text rows 'word v1 … vd'")
    bad.check(num_rows, is_end=True)
    _check_header(path, header, num_rows, bad)
    if not is_ended:
        _check_end(path, num_rows + (header is not None), last_rows, has_header=header is not None)


def _mended(text: pa.StringArray, is_odd: npt.NDArray[np.bool_], width: int) -> pa.StringArray:
    """Return rows [n], where odd ones have a line feed for each space in their word, and null is no word vector."""
    rows = list[str | None]()
    for row in text.filter(pa.array(is_odd)).to_pylist():
        cells = (row or "").split(" ")
        *names, last = " ".join(cells[:-width]).strip(" ").split(" ")
        # A word that ends in a number is rather a row with too many values.
        is_row = last and not (names and re.fullmatch(_NUMBER, last))
        rows.append(" ".join(["\n".join([*names, last]), *cells[-width:]]) if is_row else None)
    return pc.replace_with_mask(text, pa.array(is_odd), pa.array(rows, pa.string()))


def _check_header(path: Path, header: tuple[int, int] | None, num_rows: int, bad: BadRows) -> None:
    """Raise ValueError if a header counts fewer rows than there are, or many more."""
    extra = header[0] - num_rows if header else 0
    if extra and header and not 0 < extra <= bad.allowed(header[0]):
        raise ValueError(
            f"{path}, line 1: the header says {header[0]:,} words, but the file has {num_rows:,}; download it again, "
            "or correct or delete the header"
        )
    if extra:
        log.warning("%s: the header counts %d more words than the file has; some may be repeated", path, extra)


def _header(line: str | None) -> tuple[int, int] | None:
    """Return rows and width if a line is word2vec's header, otherwise None."""
    match = re.fullmatch("([0-9]{1,100}) ([0-9]{1,100}) *", line or "")
    return (int(match[1]), int(match[2])) if match else None


def _check_end(path: Path, number: int, rows: Sequence[str], *, has_header: bool) -> None:
    """Raise ValueError if a file without a final line feed seems to be truncated within the last number of its rows."""
    # A truncated number is a different number. If all other numbers have the same number of decimals, the last one is
    # complete if it has as many. Otherwise a file with a header is rejected, because programs that write headers end
    # every line with a line feed; a file without a header only gets a warning.
    values = [value for row in rows for value in row.split(" ")[1:]]
    decimals = [len(value.partition(".")[2]) for value in values]
    is_fixed = len(set(decimals[:-1])) == 1 and decimals[0] > 0
    if is_fixed and decimals[-1] == decimals[0]:
        return
    is_shorter = is_fixed and decimals[-1] < decimals[0] > 1
    if has_header or is_shorter or not values[-1][-1:].isdigit():
        raise ValueError(
            f"{path}, line {number}: the file ends with the value {values[-1][:40]!r} and no line feed, so it may be "
            "truncated; download it again, or end its last line with a line feed"
        )
    log.warning("%s: the last line has no line feed; if the file is truncated, its last value is wrong", path)


def _fault(lines: Lines, row: int, width: int) -> str:
    if not lines.text[row].is_valid:
        reason = f"longer than {lines.limits.max_line_bytes:,} bytes" if lines.too_long[row].as_py() else "not UTF-8"
        return f"{reason}; expected text rows 'word v1 … vd'"
    word, *values = spaced(lines.text[row : row + 1])[0].as_py().rstrip(" ").split(" ")
    what = f"a word with {len(values)} values" if word else "no word"
    return f"{what}; expected 'word v1 … vd' with {width or 'some'} values, separated by single spaces or tabs"


def _numbers(values: pa.StringArray) -> npt.NDArray[np.float32]:
    """Parse values [n] to float32; what is no number becomes NaN."""
    try:
        return np.asarray(values.cast(pa.float32()))
    except pa.ArrowInvalid:
        is_number = pc.match_substring_regex(values, f"^{_NUMBER}$")
        return np.asarray(pc.if_else(is_number, values, "nan").cast(pa.float32()))


def add_random_words(words: Words, unseen: pa.StringArray, seed: int) -> Words:
    """Add k words that have no vector, with random vectors of the same scale as the file's: N(0, s²), s their RMS."""
    scale = float(np.sqrt(np.mean(np.square(words.matrix, dtype=np.float64))))
    drawn = np.random.default_rng(seed).standard_normal((len(unseen), words.matrix.shape[1]), dtype=np.float32)
    return Words(
        pa.concat_arrays([words.vocabulary, unseen]), np.concatenate([words.matrix, drawn * np.float32(scale)])
    )


def save_vocabulary(vocabulary: pa.StringArray, path: Path) -> None:
    """Write a vocabulary [V], one word per line, UTF-8."""
    path.write_text("".join(f"{word}\n" for word in vocabulary.to_pylist()), encoding="utf-8", newline="\n")


def load_vocabulary(path: Path) -> pa.StringArray:
    """Read a vocabulary that ``save_vocabulary`` wrote; words can contain any character except a line feed.

    Raise ValueError if the file is not UTF-8, has no line feed at the end, or lists a word twice.
    """
    with open_regular(path) as file:
        data = file.read()
    try:
        *words, rest = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {line}: not UTF-8; copy or write the file again") from None
    if rest:
        raise ValueError(
            f"{path}, line {len(words) + 1}: no line feed at the end, so the file is truncated; copy or write it again"
        )
    octets = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(octets == _LINE_FEED)
    vocabulary = string_array(np.diff(ends, prepend=-1) - 1, octets[octets != _LINE_FEED])
    if len(pc.unique(vocabulary)) < len(words):
        lines = dict[str, int]()
        row = next(row for row, word in enumerate(words) if lines.setdefault(word, row) != row)
        raise ValueError(
            f"{path}, line {row + 1}: {words[row][:80]!r} is already in line {lines[words[row]] + 1}; each word must "
            "occur once"
        )
    return vocabulary
