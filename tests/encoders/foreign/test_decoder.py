"""Decoders with last-token pooling, as Qwen3-Embedding: the vectors are those of sentence-transformers."""

import json

import numpy as np
import pyarrow as pa
import pytest
import torch

from paraembed.loading import open_encoder
from paraembed.settings import Inference
from tests.encoders.models import TAUGHT, subword_tokenizer

pytestmark = pytest.mark.filterwarnings("default")  # of the libraries

END = "<|endoftext|>"
INSTRUCTION = "Instruct: Given a web search query\nQuery:"
LONG = "A dog ran home, là-bas 12. " * 20
TEXTS = [*TAUGHT, "a", LONG, f"{END} x", "\n漢 '", "x" * 300] * 2
POOLING = {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": False, "pooling_mode_lasttoken": True}
PROMPTS = {"query": INSTRUCTION, "document": ""}


@pytest.fixture(scope="module", params=["left", "right"])
def folder(request, tmp_path_factory):
    """A model of random weights, in two files, with the files and fields of Qwen3-Embedding-4B; ``padding_side`` is
    only in some of its copies.
    """
    pytest.importorskip("sentence_transformers")
    library, transformers = pytest.importorskip("tokenizers"), pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("qwen")
    tokenizer = subword_tokenizer("bytes")
    tokenizer.add_special_tokens([END])
    pieces = library.processors.TemplateProcessing(f"$A {END}", special_tokens=[(END, tokenizer.token_to_id(END))])
    of_bytes = library.processors.ByteLevel(trim_offsets=False)
    tokenizer.post_processor = library.processors.Sequence([of_bytes, pieces])
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    shape |= {"num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 96, "tie_word_embeddings": True}
    torch.manual_seed(0)
    config = transformers.Qwen3Config(vocab_size=tokenizer.get_vocab_size(), **shape)
    transformers.Qwen3Model(config).save_pretrained(folder, max_shard_size="40kB")
    tokenizer.save(str(folder / "tokenizer.json"))
    of_tokenizer = {"tokenizer_class": "Qwen2Tokenizer", "model_max_length": 131_072, "pad_token": END}
    of_tokenizer |= {"eos_token": END, "unk_token": None, "add_bos_token": False, "chat_template": "{{ messages }}"}
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in kinds.items()]
    files = {
        "config": json.loads((folder / "config.json").read_text()) | {"architectures": ["Qwen3ForCausalLM"]},
        "tokenizer_config": of_tokenizer | ({"padding_side": "left"} if request.param == "left" else {}),
        "modules": [{"idx": number, "name": str(number), **module} for number, module in enumerate(modules)],
        "1_Pooling/config": POOLING,
        "config_sentence_transformers": {"prompts": PROMPTS, "default_prompt_name": None},
    }
    (folder / "1_Pooling").mkdir()
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    return folder


@pytest.fixture(scope="module")
def bare(folder):
    """The library's own model."""
    library = pytest.importorskip("sentence_transformers")
    return library.SentenceTransformer(str(folder), device="cpu", local_files_only=True)


@pytest.mark.parametrize("prompt", [None, INSTRUCTION])
def test_vectors_of_a_decoder_are_those_of_its_library(folder, bare, prompt):
    """In batches of several lengths, alone, and longer than the model reads: then the end of text is kept, too."""
    encoder = open_encoder(f"st:{folder}", Inference(prompt=prompt, batch_tokens=300))
    result = encoder.embed(pa.array(TEXTS))
    name = "query" if prompt else "document"
    np.testing.assert_allclose(result.vectors, bare.encode(TEXTS, prompt_name=name, batch_size=7), rtol=0, atol=1e-6)
    for text, vector in zip(TEXTS[:10], result.vectors, strict=False):
        expected = bare.encode(text, prompt_name=name)
        for found in (vector, encoder.encode([text])[0]):
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    counts = [len(ids) for ids in bare.tokenizer([*TEXTS, prompt or ""], add_special_tokens=False)["input_ids"]]
    of_prompt = counts.pop()
    assert result.num_tokens.tolist() == counts
    assert encoder.max_tokens == bare.max_seq_length - 1 - of_prompt == 95 - of_prompt
    assert result.is_cut.tolist() == [count > encoder.max_tokens for count in counts]
    assert set(np.array(TEXTS)[result.is_cut]) >= {LONG, "x" * 300}
