"""What a training starts from: finished pair shards, and the untrained encoder."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch

from paraembed.checked import checked
from paraembed.data.shards import FORMAT, TrainingManifest, check_shard, read_manifest
from paraembed.encoders import Encoder
from paraembed.files import SUCCESS, read_json, require_file, sha256_of
from paraembed.recipe import BaseRecipe
from paraembed.words import END, START, Words, add_random_words, read_words, word_row

_BLOCK_ROWS = 65_536


def read_pair_manifest(folder: Path, *, for_training: bool = True) -> dict[str, Any]:
    """The manifest of finished pair shards.

    Args:
        folder: of the shards.
        for_training: whether the counts that a training needs must be there, and add up.

    Raises:
        FileNotFoundError, ValueError: no finished pair shards there, or one of them was changed.
    """
    if not folder.exists():
        raise FileNotFoundError(f"{folder} does not exist; expected pair shards, as jobs/shard.py writes")
    if not (folder / SUCCESS).is_file():
        raise ValueError(f"{folder} holds no finished pair shards (no {SUCCESS}); run jobs/shard.py, or run it again")
    where = f"{folder}/manifest.json"
    form = checked(dict[str, Any], read_json(folder / "manifest.json"), where).get("format")
    if form != FORMAT:
        raise ValueError(f"{folder} is of format {str(form)[:80]!r}; expected {FORMAT!r}, from jobs/shard.py")
    if read_json(folder / SUCCESS) != {"manifest_sha256": sha256_of(folder / "manifest.json")}:
        raise ValueError(f"{where} was changed after it was written; shard the pairs again")
    manifest = read_manifest(folder)
    for shard in manifest["shards"]:
        require_file(folder / shard["name"])
        if sha256_of(folder / shard["name"]) != shard.get("sha256"):
            raise ValueError(f"{folder / shard['name']} differs from its digest in the manifest; shard the pairs again")
        shard["rows"] = check_shard(folder / shard["name"], shard.get("rows"))
    if for_training:
        counted = checked(TrainingManifest, manifest, where)
        num_rows = sum(shard["rows"] for shard in counted["shards"])
        if num_rows != counted["counts"]["kept"]:
            raise ValueError(f"{where}: counts.kept is {counted['counts']['kept']}, the shards have {num_rows} rows")
    return manifest


@dataclass(frozen=True)
class Coverage:
    """How well word vectors cover the pairs.

    Attributes:
        num_words: rows of the word matrix, random ones included.
        width: length of a word vector.
        covered: share of the pairs' tokens that have a vector of the file, 0 to 1.
        num_random: words of the pairs that got a random vector.
    """

    num_words: int
    width: int
    covered: float
    num_random: int


def untrained_encoder(
    words_file: Path, pairs: Path, shards: dict[str, Any], recipe: BaseRecipe
) -> tuple[Encoder, Coverage]:
    """The encoder before training, and how well its words cover the pairs.

    Args:
        words_file: word-vector text file.
        pairs: folder of pair shards.
        shards: its manifest.
        recipe: architecture, vocabulary cut, what becomes of words without a vector, seed.

    Raises:
        OSError, ValueError: as ``read_words`` and ``read_pair_manifest``.
    """
    return encoder_for(words_file, _token_counts(pairs, shards), recipe)


def encoder_for(words_file: Path, counts: pa.StructArray, recipe: BaseRecipe) -> tuple[Encoder, Coverage]:
    """The encoder before training on texts whose tokens are counted.

    Args:
        words_file: word-vector text file.
        counts: fields ``values`` and ``counts``, as ``pyarrow.compute.value_counts`` makes them.
        recipe: as for ``untrained_encoder``.

    Raises:
        OSError, ValueError: as ``read_words``.
    """
    words = read_words(words_file, recipe.max_words)
    num_tokens = pc.sum(counts.field("counts")).as_py()
    if not num_tokens:
        raise ValueError("the texts to train on have no tokens; give others")
    known = pc.is_in(counts.field("values"), value_set=words.vocabulary)
    covered = pc.sum(counts.field("counts").filter(known)).as_py() or 0
    words, num_random = with_new_words(words, counts, recipe)
    num_words, width = words.matrix.shape
    coverage = Coverage(num_words, width, covered / num_tokens, num_random)
    encoder = Encoder(
        recipe.encoder,
        _with_boundary_words(words, recipe),
        recipe.tokeniser,
        recipe.seed,
        boundary_tokens=recipe.boundary_tokens,
        max_tokens=recipe.max_tokens,
    )
    return encoder, coverage


def with_new_words(words: Words, counts: pa.StructArray, recipe: BaseRecipe) -> tuple[Words, int]:
    """Words with a random vector for each counted token that has none, where the recipe wants that, and how many.

    Args:
        words: with vectors.
        counts: as for ``encoder_for``.
        recipe: whether, from how many occurrences on, seed.
    """
    if recipe.new_words != "random":
        return words, 0
    known = pc.is_in(counts.field("values"), value_set=words.vocabulary)
    often = pc.greater_equal(counts.field("counts"), recipe.new_words_min_count)
    new = counts.field("values").filter(pc.and_(often, pc.invert(known))).sort()
    if pc.any(pc.match_substring(new, "\n")).as_py():
        raise ValueError("a token of the pairs holds a line feed, which no vocabulary can; shard the pairs again")
    return add_random_words(words, new, recipe.seed), len(new)


def with_words_of(encoder: Encoder, counts: pa.StructArray, recipe: BaseRecipe) -> tuple[Encoder, int]:
    """A trained encoder with random vectors for words that are new to it, and how many; its own stay as they are."""
    words, num_new = with_new_words(Words(encoder.vocabulary, encoder.matrix.detach().numpy()), counts, recipe)
    if not num_new:
        return encoder, 0
    wider = Encoder(
        encoder.config,
        words,
        encoder.tokeniser,
        recipe.seed,
        boundary_tokens=encoder.boundary_tokens,
        max_tokens=encoder.max_tokens,
    )
    with torch.no_grad():
        for name, tensor in encoder.state_dict().items():  # one may have a row a word, as scaled_avg's has
            wider.state_dict()[name][: len(tensor)] = tensor
    wider.provenance = encoder.provenance
    return wider, num_new


def _with_boundary_words(words: Words, recipe: BaseRecipe) -> Words:
    """Words with the boundary words that the recipe wants: the file's vectors of <s> and </s>, else random ones."""
    wanted = {"none": [], "start": [START], "end": [END], "both": [START, END]}[recipe.boundary_tokens]
    new = [word for word in wanted if not pc.is_in(pa.scalar(word), value_set=words.vocabulary).as_py()]
    if not new:
        return words
    words = add_random_words(words, pa.array(new, pa.string()), recipe.seed + 1)
    for word in new:  # files have them in lower case, as read_words does
        row = pc.index(words.vocabulary, word.lower()).as_py()
        if row >= 0:
            words.matrix[word_row(words.vocabulary, word)] = words.matrix[row]
    return words


def _token_counts(pairs: Path, shards: dict[str, Any]) -> pa.StructArray:
    """How often each token occurs in the pairs: fields ``values`` and ``counts``."""
    tables = []
    for shard in shards["shards"]:
        for batch in pq.ParquetFile(pairs / shard["name"]).iter_batches(_BLOCK_ROWS, columns=["first", "second"]):
            for column in batch.columns:
                counted = pc.value_counts(pc.split_pattern(column, " ").flatten())
                tables.append(pa.table({"token": counted.field("values"), "count": counted.field("counts")}))
    total = pa.concat_tables(tables).group_by("token").aggregate([("count", "sum")]).combine_chunks()
    return pa.StructArray.from_arrays([total["token"].chunk(0), total["count_sum"].chunk(0)], ["values", "counts"])
