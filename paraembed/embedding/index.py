"""FAISS index of a finished output: approximate nearest rows, for outputs with too many rows to compare all of them.

An inverted file (IVF) of the unit vectors, in float32: an output of n rows and width d takes n · (4 d + 8) bytes, which
processes of a machine share. It searches the lists that are closest to a row, as many as a sample needs to find the
wanted fraction of its true nearest rows. FAISS is optional: ``pip install faiss-cpu``.
"""

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from paraembed.console import doing
from paraembed.embedding.output import Embeddings, RowNumbers, Vectors
from paraembed.embedding.search import exact_cosines, search, unit
from paraembed.io.atomic import hidden_name, write_json
from paraembed.process import use_faiss_threads

_LISTS = 4  # times the square root of the rows, as FAISS recommends up to a million vectors
_ROWS_A_LIST = 39  # to train on: with fewer, FAISS warns
_TRAINED_ON = 64  # rows for each list
_SAMPLE = 256  # rows whose true nearest rows are computed
_SAME = 1e-6  # difference of equal cosines, from the unit vectors' rounding
_ROWS_AT_ONCE = 1024  # to search for


def import_faiss() -> Any:
    """Return the module ``faiss``; raise ValueError if it is not installed."""
    try:
        import faiss  # noqa: PLC0415 - optional
    except ImportError:
        raise ValueError(
            "the embeddings have more than `exact_rows` rows, which needs FAISS, but FAISS is not installed; run "
            "pip install faiss-cpu, or give a larger `exact_rows`"
        ) from None
    return faiss


def build_index(embeddings: Embeddings, path: Path, top: int, recall: float, threads: int) -> dict[str, Any]:
    """Write the index of an output, then its description, ``<name>.json``, next to it; return the description. It finds
    a fraction ``recall`` of the ``top`` nearest rows of a sample.
    """
    faiss = import_faiss()
    use_faiss_threads(threads)
    rows = embeddings.rows
    num_lists = max(1, min(int(_LISTS * rows**0.5), rows // _ROWS_A_LIST))
    width, metric = embeddings.width, faiss.METRIC_INNER_PRODUCT
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(width), width, num_lists, metric)
    index.cp.spherical = True
    doing(f"clustering {rows:,} rows into {num_lists:,} lists")
    index.train(unit(_vectors(embeddings, _spread(rows, _TRAINED_ON * num_lists)))[0])
    for block in embeddings.blocks():
        doing(f"indexing: row {block.first:,} of {rows:,}")
        index.add(unit(block.vectors)[0])
    doing("measuring the recall of the index")
    about = _choose_probes(embeddings, index, top, recall)
    temporary = hidden_name(path, "tmp")
    faiss.write_index(index, str(temporary))
    temporary.replace(path)
    described = {"rows": rows, "lists": num_lists, **about, "faiss": faiss.__version__}
    write_json(path.with_name(f"{path.name}.json"), described)
    return described


def _spread(rows: int, number: int) -> RowNumbers:
    """Return up to ``number`` row numbers, evenly spaced."""
    return np.unique(np.linspace(0, rows - 1, min(rows, number)).astype(np.int64))


def _vectors(embeddings: Embeddings, numbers: RowNumbers) -> Vectors:
    """Return the vectors of the rows with these ascending numbers, float32 [n, d]."""
    pieces = []
    for block in embeddings.blocks():
        start, stop = np.searchsorted(numbers, [block.first, block.first + len(block.vectors)])
        pieces.append(block.vectors[numbers[start:stop] - block.first])
    return np.concatenate(pieces)


def _choose_probes(embeddings: Embeddings, index: Any, top: int, recall: float) -> dict[str, Any]:
    """Set the number of lists to search so that a sample of rows reaches the recall; return both."""
    numbers = _spread(embeddings.rows, _SAMPLE)
    sample = _vectors(embeddings, numbers)
    hits = search(embeddings, sample, top + 1)
    others = np.flatnonzero(hits.rank > 1)  # without the row itself, which is always its own nearest row
    least = hits.cosine[others] - np.float32(_SAME)
    units, probes = unit(sample)[0], 1
    while True:
        index.nprobe = probes
        cosines = nearest_in_index(index, units, top + 1)[1]
        in_order = -np.sort(-cosines, axis=1)
        cosines = in_order[hits.query[others], hits.rank[others] - 1]
        # A row counts as found if the index returns as many rows with an equal or larger cosine.
        reached = float(np.mean(cosines >= least)) if len(least) else 1.0
        if reached >= recall or probes == index.nlist:
            return {"probes": probes, "recall": round(reached, 4), "sample": len(sample)}
        probes = min(2 * probes, index.nlist)


@lru_cache(maxsize=2)
def open_index(path: Path) -> Any:
    """Return an index, memory-mapped from its file, which uses one thread."""
    faiss = import_faiss()
    use_faiss_threads(1)
    return faiss.read_index(str(path), faiss.IO_FLAG_MMAP)


def nearest_in_index(index: Any, units: Vectors, top: int) -> tuple[RowNumbers, Vectors]:
    """Return the rows that an index finds for unit vectors [n, d], int64 [n, top], and their cosines; -1 and -inf if it
    finds fewer rows. Zero vectors have no rows.
    """
    rows = np.full((len(units), top), -1, np.int64)
    cosines = np.full((len(units), top), -np.inf, np.float32)
    for start in range(0, len(units), _ROWS_AT_ONCE):
        batch = units[start : start + _ROWS_AT_ONCE]
        _, labels, vectors = index.search_and_reconstruct(batch, top)
        item, rank = np.nonzero((labels >= 0) & batch.any(axis=1, keepdims=True) & vectors.any(axis=2))
        rows[start + item, rank] = labels[item, rank]
        flat = vectors.reshape(-1, units.shape[1])
        cosines[start + item, rank] = exact_cosines(batch, item, flat, item * top + rank)
    return rows, cosines
