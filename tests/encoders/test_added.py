"""Vectors that are added up in compiled loops, on several threads."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
import torch

from paraembed.encoders import ENCODERS, Encoder
from paraembed.words import UNKNOWN, Words

WORDS = [UNKNOWN, *"abcdefghijklmnopqrstuvwxyz"]


@pytest.fixture
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=["avg", "sum"])
def encoder(request: pytest.FixtureRequest) -> Encoder:
    matrix = np.random.default_rng(0).standard_normal((len(WORDS), 301), dtype=np.float32)
    return Encoder(ENCODERS[request.param](), Words(pa.array(WORDS), matrix), "ptb-v1")


def drawn_texts(num_texts: int) -> list[str | None]:
    generator = np.random.default_rng(1)
    letters = generator.choice(np.array(["é", " ", *WORDS[1:]]), (num_texts, 12))
    texts = [" ".join(row[:length]) for row, length in zip(letters, generator.integers(0, 13, num_texts), strict=True)]
    return [*texts[:-2], None, " "]


@pytest.mark.usefixtures("_threads")
def test_the_number_of_threads_and_slices_changes_no_bit(encoder: Encoder) -> None:
    texts = drawn_texts(10_000)
    made = []
    for threads, batch_size in ((1, 20_000), (3, 20_000), (2, 501)):
        torch.set_num_threads(threads)
        made.append(encoder.embed(pa.array(texts), batch_size))
        np.testing.assert_array_equal(encoder.encode(texts, batch_size), made[0].vectors)
        assert torch.get_num_threads() == threads
    for other in made[1:]:
        np.testing.assert_array_equal(other.vectors, made[0].vectors)
        np.testing.assert_array_equal(other.num_tokens, made[0].num_tokens)
        np.testing.assert_array_equal(other.num_unknown, made[0].num_unknown)
    tokens = [(text or "").split() for text in texts]
    assert made[0].num_tokens.tolist() == [len(some) for some in tokens]
    assert made[0].num_unknown.tolist() == [some.count("é") for some in tokens]


def test_compiled_loops_add_as_pytorch_does(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = pa.array(drawn_texts(500))
    compiled = encoder.embed(texts)
    monkeypatch.setattr(type(encoder.composition), "adds", None)
    plain = encoder.embed(texts)
    np.testing.assert_allclose(compiled.vectors, plain.vectors, rtol=0, atol=1e-5)
    assert not compiled.vectors[-2:].any()


@pytest.mark.usefixtures("_threads")
def test_what_is_no_text_is_refused_on_any_thread(encoder: Encoder) -> None:
    torch.set_num_threads(2)
    with pytest.raises((pa.ArrowTypeError, pa.ArrowInvalid)):
        encoder.encode([*["a"] * 9_000, 5])  # type: ignore[list-item]
