from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from paraembed.evaluation.analyses.content import CannotMakeError
from paraembed.evaluation.analyses.margin import _draw, margin, margins, read_some_pairs
from paraembed.io.atomic import SUCCESS, write_json
from paraembed.io.fingerprint import sha256_of
from paraembed.pairs.shards import FORMAT
from paraembed.settings import AnalysisOptions
from paraembed.training.negatives import candidate_similarity, choose


def test_negatives_are_those_of_the_training():
    generator = np.random.default_rng(0)
    first, second = generator.standard_normal((2, 30, 8)).astype(np.float32)
    texts = torch.nn.functional.normalize(torch.from_numpy(np.stack([first, second], axis=1).reshape(60, 8)))
    chosen = choose("max", candidate_similarity(texts, texts, "both_sides"), None, 0.4)
    negative = (texts * texts[chosen]).sum(dim=1).reshape(30, 2).sum(dim=1)
    expected = 2 * (texts[::2] * texts[1::2]).sum(dim=1) - negative
    assert np.allclose(margins(first, second), expected.numpy(), atol=1e-5)
    first, second = np.array([[0, 0], [1, 0]], np.float32), np.array([[1, 0], [1, 0]], np.float32)
    assert np.allclose(margins(first, second), [0 - 0 - 1, 2 - 1 - 1])  # a text without tokens has cosine 0


def _pair_shards(folder, *sizes):
    """Finished pair shards; pair i of all is ``first{i}``, ``second{i}``."""
    folder.mkdir()
    shards, done = [], 0
    for number, size in enumerate(sizes):
        path = folder / f"pairs-{number}.parquet"
        rows = range(done, done + size)
        pq.write_table(pa.table({"first": [f"first{i}" for i in rows], "second": [f"second{i}" for i in rows]}), path)
        shards.append({"name": path.name, "rows": size, "sha256": sha256_of(path)})
        done += size
    write_json(folder / "manifest.json", {"format": FORMAT, "shards": shards})
    write_json(folder / SUCCESS, {"manifest_sha256": sha256_of(folder / "manifest.json")})
    return folder


@pytest.mark.parametrize("most", [7, 12, 100])
def test_pairs_are_drawn_from_all_shards_and_stay_pairs(tmp_path, most):
    folder = _pair_shards(tmp_path / "pairs", 5, 0, 7)
    first, second, total = read_some_pairs(folder, most_pairs=most)
    numbers = [int(text.removeprefix("first")) for text in first.to_pylist()]
    assert second.to_pylist() == [f"second{number}" for number in numbers]
    assert (total, len(numbers), len({*numbers})) == (12, min(most, 12), min(most, 12))
    assert numbers == np.random.default_rng(0).permutation(12)[:most].tolist()


def test_the_mean_of_a_folder(tmp_path, inputs):
    folder = _pair_shards(tmp_path / "pairs", 30)
    (table,) = margin(replace(inputs, options=AnalysisOptions(margin_pairs=folder))).tables
    # every word is unknown: all cosines are 1
    assert [row[:2] for row in table.rows] == [("avg", 30), ("gran", 30)]
    assert np.allclose([row[2] for row in table.rows], 0, atol=1e-6)


@pytest.mark.parametrize(("values", "ends"), [([0.5, -1], (-1, 2)), ([2.5, 4, 1], (0, 4))])
def test_the_histogram_has_every_pair(monkeypatch, values, ends):
    drawn = []
    monkeypatch.setattr(
        "paraembed.evaluation.analyses.margin.lines", lambda panels, *_, **__: drawn.extend(panels[0].series) or b""
    )
    _draw({"some": np.array(values), "others": np.zeros(5)})
    assert [sum(series.values) for series in drawn] == [0, len(values), 5]
    assert (drawn[1].places[0], drawn[1].places[-1]) == ends


def test_what_it_needs_is_said(tmp_path, inputs):
    with pytest.raises(CannotMakeError, match="`margin_pairs`"):
        margin(inputs)
    with pytest.raises(CannotMakeError, match="has 1 pair"):
        margin(replace(inputs, options=AnalysisOptions(margin_pairs=_pair_shards(tmp_path / "pairs", 1))))
