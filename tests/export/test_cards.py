"""A model card says what config.json says, by today's names, and its code runs in its folder."""

import json
import re

import pytest

import paraembed
from paraembed import checkpoint
from paraembed.aliases import ON_DISK
from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig
from paraembed.evaluation.candidates import trained
from paraembed.evaluation.report import compare, model_card
from paraembed.evaluation.suites import read_pairs_files
from paraembed.export import hub
from paraembed.export.folder import write_folder
from paraembed.export.smaller import cards_of
from paraembed.papers import find_recipe

RECIPE = find_recipe("iclr2016/avg")


def saved(encoder, folder):
    card = model_card("recipe", RECIPE, encoder, 0.5, {"pairs.tsv": 3}, None)
    card += "\n![Loss, share of active terms and scores](training.png)\n"
    checkpoint.save(encoder, folder, recipe=RECIPE.to_dict(), provenance={}, model_card=card)
    return card


def test_the_hub_reads_the_metadata_of_a_card(tiny_encoder_folder, tmp_path):
    cards = pytest.importorskip("huggingface_hub")
    pairs = tmp_path / 'a: "b"\n---\n# c.tsv'
    pairs.write_text("1\tthe cat\ta dog\n5\tthe mat\tthe mat\n2\tthe dog ran\ton a mat\n")
    candidate = trained(tiny_encoder_folder)
    report = compare([candidate], [read_pairs_files([pairs])], resamples=0)
    pearson = next(value for name, value in report.metrics().items() if name.endswith("pearson"))
    start = {"words": {"name": "v.txt", "bytes": 12, "sha256": "ab"}}
    text = model_card("iclr2016/avg", RECIPE, candidate.encoder, 0.5, {"ppdb: xl": 3}, report, "", start, "mit")
    of_hub = hub.model_card(candidate.encoder, text, "apache-2.0", None)
    for name, card in (("paraembed", cards.ModelCard(text)), ("sentence-transformers", cards.ModelCard(of_hub))):
        data = card.data
        assert (data.library_name, data.language, data.datasets) == (name, "en", ["ppdb: xl"])
        (result,) = data.eval_results
        assert f"{100 * result.metric_value:.1f}" in card.content.split("## Scores")[1]
        assert result.metric_value == round(pearson, 4)
        assert "| words | name v.txt, bytes 12, sha256 ab |" in card.content
    kept = hub.model_card(candidate.encoder, text, "", None)
    assert [cards.ModelCard(card).data.license for card in (text, of_hub, kept)] == ["mit", "apache-2.0", "mit"]
    assert of_hub.count("library_name") == 1
    assert "not among its 12 words" in text


def run(card):
    """Run the code of a card, which is one block."""
    (code,) = re.findall(r"(?s)```python\n(.*?)```", card)
    names = {}
    exec(code, names)
    return names


def test_the_card_has_the_values_of_the_configuration_by_current_names(tmp_path, monkeypatch):
    """An encoder that was trained from ``small`` has its tokenizer, not that of the recipe."""
    card = saved(paraembed.load("small"), tmp_path / "e")
    config = json.loads((tmp_path / "e" / "config.json").read_text())
    rows = dict(re.findall(r"^\| (\w+) \| (.*) \|$", card, re.MULTILINE))
    assert (rows["tokenizer"], RECIPE.tokenizer) == (config["tokeniser"], "ptb-v1") == ("wordpiece", "ptb-v1")
    assert (rows["bos_eos_tokens"], rows["max_tokens"]) == (config["boundary_tokens"], str(config["max_tokens"]))
    assert not rows.keys() & {*ON_DISK.values()}
    assert rows.keys() >= {*RECIPE.values()} - {"encoder"}
    assert ('language: "en"' in card, "license:" in card) == (True, False)
    monkeypatch.chdir(tmp_path / "e")
    assert run(card)["encoder"].fingerprint == config["fingerprint"]


def test_the_cards_of_other_folders_have_their_own_code(tmp_path, monkeypatch, tiny_words):
    encoder = Encoder(AvgConfig(), tiny_words, "ptb-v1")
    card = saved(encoder, tmp_path / "e")
    for copied in (hub.model_card(encoder, card, "", None), "\n".join(cards_of([tmp_path / "e"]))):
        assert "paraembed.load" not in copied
        assert "training.png" not in copied
        assert "| recipe | avg |" in copied
    pytest.importorskip("sentence_transformers")
    write_folder(encoder, "hub", tmp_path / "hub", card=hub.model_card(encoder, card, "", None))
    monkeypatch.chdir(tmp_path / "hub")
    assert run((tmp_path / "hub" / "README.md").read_text())["model"].encode(["a"]).shape == (1, 4)
