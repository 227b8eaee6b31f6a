"""Write a smaller encoder: the average of several, then fewer words, then fewer dimensions, then int8. Or one whose OOV
tokens have vectors of pieces.

Only ``avg`` becomes smaller: its text vector is the mean of the word vectors, so a linear map of the table is the same
map of every text vector, and no layer depends on the rows or the width of the table. ``scaled_avg`` becomes an ``avg``
whose word vectors have its scales.

The mean of the parameters of several trainings is a model soup (Wortsman et al. 2022), here of tables that are first
scaled to vectors of mean length 1. The trainings must have begun with the same word vectors, and students must have one
teacher and all of its dimensions; otherwise the dimensions of the tables have no common meaning.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paraembed import checkpoint
from paraembed.console import doing
from paraembed.encoders.averages import Avg, ScaledAvg, vectors_of
from paraembed.encoders.base import Encoder
from paraembed.encoders.configs import AvgConfig
from paraembed.encoders.tables import Floats, of_mean_length, principal_axes, with_row_length
from paraembed.evaluation.report import encoder_metadata, without_usage
from paraembed.io.escape import markdown
from paraembed.io.fingerprint import sha256_of
from paraembed.io.lines import text_blocks
from paraembed.settings import Smaller
from paraembed.text import WORDPIECE
from paraembed.text.bigrams import is_bigram
from paraembed.text.subword import contents_of
from paraembed.text.tokens import TokenIds
from paraembed.text.vocabulary import END, START, UNKNOWN, Words, unknown_row
from paraembed.text.wordpiece import PREFIX, specials_of

Counts = npt.NDArray[np.int64]
Read = Callable[[], Iterator[pa.StringArray]]
"""Function that reads all texts, in blocks; it is called once per pass."""

_AT_ONCE = 16_384  # texts


def write_smaller(
    folders: Sequence[Path], out: Path, settings: Smaller, texts: Path | None = None, *, overwrite: bool = False
) -> tuple[Encoder, dict[str, float]]:
    """Write an encoder folder that is made from ``avg`` or ``scaled_avg`` encoders, of which several are averaged;
    ``overwrite`` replaces an encoder at ``out``. ``max_words`` and ``dim`` are decided by
    ``texts``, a file with one text per line, plain or compressed.

    Return the encoder, before int8 rounds it, and fractions by name. With ``max_words``: ``oov_before`` and ``oov``, of
    the tokens that are out of vocabulary before and after words are removed, and ``more_tokens``, by which the number
    of tokens grows, since removed word pieces are divided. With ``dim``: ``explained``, of the squared length of the
    text vectors in the dimensions that are kept.

    Raise ValueError, and write nothing, if an encoder has another architecture, the encoders do not match, or the texts
    do not suffice.
    """
    settings.check(texts, len(folders))
    encoders = [as_average(checkpoint.load(folder), str(folder)) for folder in folders]
    encoder, measures = averaged(encoders, list(map(str, folders))), dict[str, float]()
    if settings.dim is not None and settings.dim > encoder.width:
        raise ValueError(
            f"`dim` is {settings.dim}, but the encoder's vectors have {encoder.width} dimensions; give at most "
            f"{encoder.width}"
        )
    pieces = None
    if settings.oov_pieces is not None:
        pieces = as_average(checkpoint.load(settings.oov_pieces), settings.oov_pieces)
        encoder = with_pieces(encoder, pieces)
    if texts is not None:
        read = partial(_blocks, texts)
        if settings.max_words is not None:
            doing(f"counting the tokens of {texts.name}")
            counts = token_counts(encoder, read)
            if not counts.sum():
                raise ValueError(f"no line of {texts} has a token; give a file with one text per line")
            encoder, before = pruned(encoder, counts, settings.max_words), encoder
            counts_after = token_counts(encoder, read)
            measures |= {"oov_before": _oov(before, counts), "oov": _oov(encoder, counts_after)}
            measures["more_tokens"] = float(_tokens(encoder, counts_after) / _tokens(before, counts) - 1)
        if settings.dim is not None:
            doing(f"reducing the text vectors of {texts.name}")
            encoder, measures["explained"] = reduced(encoder, read, settings.dim)
    dtype = settings.dtype or "float32"
    record = {
        "sources": [source.fingerprint for source in encoders],
        **{name: value for name, value in asdict(settings).items() if name != "oov_pieces"},
        "dtype": dtype,
        **({"oov_pieces": pieces.fingerprint} if pieces else {}),
        "texts_sha256": texts and sha256_of(texts),
        **measures,
    }
    sizes = f"{len(encoder.vocabulary):,} of {len(encoders[0].vocabulary):,}", f"{encoder.width} of {encoders[0].width}"
    card = _card(folders, encoders, sizes, record, texts)
    provenance = {**training_of([*encoders, *([pieces] if pieces else [])]), "made_smaller": record}
    doing(f"writing {out.name}")
    encoder.fingerprint = checkpoint.save(
        encoder, out, recipe={}, provenance=provenance, model_card=card, dtype=dtype, overwrite=overwrite
    )
    return encoder, measures


_REASONS = {
    "sum": "is a sum; an avg encoder of the same word vectors has the same cosines",
    "word": "is that of the first token, not a mean",
}


def as_average(encoder: Encoder, name: str) -> Encoder:
    """Return an ``avg`` encoder with the text vectors of an ``avg`` or ``scaled_avg``, whose scales are folded into the
    table. Raise ValueError, with the ``name``, for another architecture.
    """
    if isinstance(encoder.composition, Avg):
        return encoder
    if not isinstance(encoder.composition, ScaledAvg):
        kind = encoder.config.name
        reason = _REASONS.get(kind, "depends on layers that were trained for these word vectors and their width")
        raise ValueError(f"{name}: the text vector of {kind} {reason}; only avg and scaled_avg encoders become smaller")
    words = Words(encoder.vocabulary, vectors_of(encoder))
    average = Encoder(AvgConfig(), words, pieces=encoder.pieces, **encoder.options)
    average.requires_grad_(requires_grad=False).eval()
    average.fingerprint, average.provenance = encoder.fingerprint, encoder.provenance
    return average


def with_pieces(encoder: Encoder, pieces: Encoder) -> Encoder:
    """Return an ``avg`` encoder whose OOV tokens have vectors of the pieces of another; raise ValueError if the two do
    not fit.

    Their length is that of OOV tokens before if these had vectors of their own, hashed or of other pieces, else the
    root mean square of the other words.
    """
    table_VD, unknown = vectors_of(encoder), unknown_row(encoder.vocabulary)
    if encoder.oov not in {"hashed", "pieces"}:
        no_tokens = np.append(np.flatnonzero(is_bigram(encoder.vocabulary)), unknown)
        table_VD = with_row_length(table_VD, unknown, _mean_length(table_VD, no_tokens))
    options = encoder.options | {"oov": "pieces"}
    combined = Encoder(encoder.config, Words(encoder.vocabulary, table_VD), pieces=pieces, **options)
    return combined.requires_grad_(requires_grad=False).eval()


def averaged(encoders: Sequence[Encoder], names: Sequence[str]) -> Encoder:
    """Return the encoder whose table is the mean of the tables of ``avg`` encoders, each scaled to vectors of mean
    length 1; a single encoder is returned unchanged. Raise ValueError if two differ in something else than the values
    of their tables; the message has the first difference, and their ``names``.
    """
    first, *others = encoders
    if not others:
        return first
    for encoder, name in zip(others, names[1:], strict=True):
        if difference := _difference(first, encoder):
            raise ValueError(
                f"{name} differs from {names[0]} in {difference}; average encoders of one tokenizer, vocabulary and "
                "width"
            )
    unknown = unknown_row(first.vocabulary)
    total_VD, lengths = np.zeros(first.matrix.shape), list[float]()
    for encoder in encoders:
        table_VD = of_mean_length(vectors_of(encoder))
        total_VD += table_VD
        lengths.append(_relative_length(table_VD, unknown))
    mean_VD = (total_VD / len(encoders)).astype(np.float32)
    return _with_table(first, first.vocabulary, mean_VD, float(np.mean(lengths)))


def _difference(first: Encoder, other: Encoder) -> str:
    """Return the first difference of two encoders, apart from the values of their tables; empty if there is none."""
    for what, name in (
        ("tokenizer", "the tokenizer"),
        ("bos_eos_tokens", "the BOS/EOS tokens"),
        ("max_tokens", "max_tokens"),
        ("oov", "the vectors of OOV tokens"),
        ("width", "the width"),
    ):
        before, now = getattr(first, what), getattr(other, what)
        if before != now:
            return f"{name} ({now}, not {before})"
    if contents_of(first.tokenizer) != contents_of(other.tokenizer):
        return "tokenizer.json"
    if first.pieces is not None and other.pieces is not None and first.pieces.fingerprint != other.pieces.fingerprint:
        return "the pieces of OOV tokens"
    words, other_words = first.vocabulary.to_pylist(), other.vocabulary.to_pylist()
    if len(words) != len(other_words):
        return f"the number of words ({len(other_words):,}, not {len(words):,})"
    for row, (word, other_word) in enumerate(zip(words, other_words, strict=True), 1):
        if word != other_word:
            return f"word {row:,} of the vocabulary ({other_word[:80]!r}, not {word[:80]!r})"
    return ""


def token_counts(encoder: Encoder, read: Read) -> Counts:
    """Return how often each row of the vocabulary [V] is a token or bigram of the texts; OOV tokens count for <unk>."""
    to_ids = TokenIds(encoder.vocabulary, encoder.tokenizer)
    counts = np.zeros(len(encoder.vocabulary), np.int64)
    for block in read():
        counts += np.bincount(to_ids(block).ids, minlength=len(counts))
    return counts


def pruned(encoder: Encoder, counts_V: Counts, max_words: int) -> Encoder:
    """Return an ``avg`` encoder with its most frequent words, in the order of its vocabulary; ties go to the first
    rows.

    <unk>, BOS, EOS and the special tokens of word pieces are kept too, and all pieces of a single character, so that a
    word whose characters are pieces is still divided. A token of ``SUBWORD`` that is removed becomes an OOV token.
    """
    words = encoder.vocabulary.to_pylist()
    specials, is_piece = {UNKNOWN, START, END}, encoder.tokenizer == WORDPIECE
    if is_piece:
        specials |= {*specials_of(words)}
    is_special = np.array([word in specials for word in words])
    order = np.argsort(-counts_V, kind="stable")
    is_kept = is_special | np.array([is_piece and len(word.removeprefix(PREFIX)) == 1 for word in words])
    is_kept[order[~is_special[order]][:max_words]] = True
    return _with_table(encoder, encoder.vocabulary.filter(pa.array(is_kept)), vectors_of(encoder)[is_kept])


def reduced(encoder: Encoder, read: Read, dim: int) -> tuple[Encoder, float]:
    """Return an ``avg`` encoder in the first ``dim`` principal components of its text vectors, and their fraction of
    the squared length of the text vectors. Raise ValueError if fewer texts than components have a vector.

    Hashed vectors of OOV tokens have no direction that a map could keep, so they do not count here.
    """
    unknown, table_VD, known = unknown_row(encoder.vocabulary), vectors_of(encoder), encoder
    if encoder.oov == "hashed":
        without_VD = table_VD.copy()
        without_VD[unknown] = 0
        known = _with_table(encoder, encoder.vocabulary, without_VD)
        known.oov = "shared"
    squares_DD, num_texts = np.zeros((encoder.width, encoder.width)), 0
    for block in read():
        vectors_ND = known.embed(block).vectors.astype(np.float64)
        squares_DD += vectors_ND.T @ vectors_ND
        num_texts += int(vectors_ND.any(axis=1).sum())
    if num_texts < dim:
        raise ValueError(f"`dim` is {dim}, but `texts` has {num_texts:,} texts with a vector; give at least {dim:,}")
    axes_DK = principal_axes(squares_DD, dim)
    explained = float(np.einsum("dk,de,ek->", axes_DK, squares_DD, axes_DK) / np.trace(squares_DD))
    components_VK = (table_VD @ axes_DK).astype(np.float32)
    relative, pieces = _relative_length(table_VD, unknown), None
    if encoder.pieces is not None:
        components_PK = (vectors_of(encoder.pieces) @ axes_DK).astype(np.float32)
        pieces = encoder.pieces.with_words(Words(encoder.pieces.vocabulary, components_PK))
    return _with_table(encoder, encoder.vocabulary, components_VK, relative, pieces), explained


def _with_table(
    encoder: Encoder,
    vocabulary: pa.StringArray,
    table_VD: Floats,
    relative_length: float | None = None,
    pieces: Encoder | None = None,
) -> Encoder:
    """Return an ``avg`` encoder with another vocabulary and table; ``relative_length`` is that of <unk> if it is the
    length of vectors of OOV tokens, see ``_relative_length``; None: unchanged. ``pieces`` None: those of the encoder.
    """
    if encoder.oov in {"hashed", "pieces"} and relative_length is not None:
        unknown = unknown_row(vocabulary)
        table_VD = with_row_length(table_VD, unknown, relative_length * _mean_length(table_VD, unknown))
    smaller = encoder.with_words(Words(vocabulary, table_VD), pieces=pieces)
    return smaller.requires_grad_(requires_grad=False).eval()


def _relative_length(table_VD: Floats, row: int) -> float:
    """Return the length of a row, divided by that of the other rows."""
    mean = _mean_length(table_VD, row)
    return float(np.linalg.norm(table_VD[row].astype(np.float64)) / mean) if mean else 0.0


def _mean_length(table_VD: Floats, rows: int | npt.NDArray[np.int64]) -> float:
    """Return the root mean square length of the other rows."""
    squares_V = np.delete(np.square(table_VD.astype(np.float64)).sum(axis=1), rows)
    return float(np.sqrt(squares_V.mean())) if len(squares_V) else 0.0


def _oov(encoder: Encoder, counts_V: Counts) -> float:
    return float(counts_V[unknown_row(encoder.vocabulary)] / _tokens(encoder, counts_V))


def _tokens(encoder: Encoder, counts_V: Counts) -> int:
    """Return the number of tokens, without bigrams."""
    return int(counts_V[~is_bigram(encoder.vocabulary)].sum())


def _blocks(path: Path) -> Iterator[pa.StringArray]:
    for block in text_blocks(path):
        for start in range(0, len(block), _AT_ONCE):
            yield block.slice(start, _AT_ONCE)


def training_of(encoders: Sequence[Encoder]) -> dict[str, Any]:
    """Return the data that the encoders were trained on, and how a single one was selected."""
    labels = [entry for encoder in encoders for entry in checkpoint.gold_of(encoder.provenance)]
    pairs = {(encoder.provenance.get("training") or {}).get("pairs") for encoder in encoders}
    training: dict[str, Any] = {"gold": [entry for row, entry in enumerate(labels) if entry not in labels[:row]]}
    if len(pairs) == 1 and pairs != {None}:
        training["pairs"] = pairs.pop()
    selected = encoders[0].provenance.get("selected") if len(encoders) == 1 else None
    known = {name: value for name, value in training.items() if value}
    return {**({"training": known} if known else {}), **({"selected": selected} if selected else {})}


def _card(
    folders: Sequence[Path],
    encoders: Sequence[Encoder],
    sizes: tuple[str, str],
    record: dict[str, Any],
    texts: Path | None,
) -> str:
    """Return the model card, with those of the sources."""
    names = names_of(folders)
    sources = [f"{name} ({source.fingerprint[:12]})" for name, source in zip(names, encoders, strict=True)]
    lines = [
        encoder_metadata(encoders[0]),
        f"# {'Average' if len(names) > 1 else 'Smaller form'} of {', '.join(names)}",
        "",
        "Written by jobs/export.py; the mean of the vectors of its words, as the encoders that it is made from.",
        "",
        f"* Encoders: {', '.join(sources)}",
        f"* Words: {sizes[0]}",
        f"* Dimensions: {sizes[1]}",
        f"* Number type of the word vectors: {record['dtype']}",
    ]
    if texts is not None:
        lines.append(f"* Texts that decided this: {markdown(texts.name)}, SHA-256 {record['texts_sha256']}")
    if "oov_pieces" in record:
        lines.append(f"* OOV tokens: vectors of the pieces of the encoder {record['oov_pieces'][:12]}")
    if "oov" in record:
        lines.append(f"* Tokens of the texts out of vocabulary: {record['oov']:.2%}, before {record['oov_before']:.2%}")
    if "explained" in record:
        lines.append(f"* Squared length of the text vectors in the dimensions: {record['explained']:.1%}")
    return "\n".join([*lines, *cards_of(folders), ""])


def names_of(folders: Sequence[Path]) -> list[str]:
    """Return the names of encoder folders, for a model card."""
    return [markdown(folder.name) for folder in folders]


def cards_of(folders: Sequence[Path]) -> list[str]:
    """Return the lines that quote the model cards of encoders."""
    lines = []
    for folder, name in zip(folders, names_of(folders), strict=True):
        readme = folder / "README.md"
        if readme.is_file():
            card = without_usage(readme.read_text(encoding="utf-8")).strip()
            lines += ["", f"The card of {name} follows; its scores and sizes are those of {name}.", "", "---", "", card]
    return lines
