import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch

from paraembed.encoders import ENCODERS, Encoder
from paraembed.encoders.configs import BiGranConfig, GranConfig
from paraembed.encoders.packed import pack
from paraembed.evaluation.analyses.gates import gate_norms, gates, has_gate, read_tagged
from paraembed.evaluation.candidates import Candidate
from paraembed.evaluation.sets import Group, ScoredPairs, Suite
from paraembed.settings import AnalysisOptions
from paraembed.text.ragged import Ragged
from paraembed.text.vocabulary import END, START, UNKNOWN, Words

IDS = np.array([3, 1, 4, 2, 2, 5, 3, 1], np.int32)
TEXTS = Ragged(IDS, np.array([0, 3, 4, 8]))


def _encoder(config, bos_eos_tokens="none", tokenizer="space", words=("a", "b", "c", "d", "e", START, END)):
    matrix = np.random.default_rng(1).standard_normal((len(words) + 1, 6), dtype=np.float32)
    words = Words(pa.array([UNKNOWN, *words]), matrix)
    return Encoder(config, words, tokenizer, 3, bos_eos_tokens=bos_eos_tokens)


def _gate_by_hand(reader, words_TD, states_TD):
    """L1 norm of the gate on each word of one text, token by token (Wieting 2017 §3)."""
    norms, width = [], words_TD.shape[1]
    total = torch.zeros(width)
    for word, state in zip(words_TD, states_TD, strict=True):
        logits = reader.input_weight @ word + reader.state_weight @ state + reader.bias
        if reader.sum_weight is not None:
            logits = logits + reader.sum_weight @ total
        gates = logits.sigmoid()
        if reader.form in {"gran3", "gran4"}:
            total = total * gates[:width] + word * gates[width:]
            gates = gates[width:]
        norms.append(float(gates[:width].abs().sum()))
    return norms


@pytest.mark.parametrize("name", ["gran", "gran2", "gran3", "gran4", "gran5"])
@torch.inference_mode()
def test_gates_are_those_of_a_loop_over_the_tokens(name):
    encoder = _encoder(ENCODERS[name]())
    assert has_gate(encoder)
    reader = encoder.composition.reader
    expected = []
    for number in range(len(TEXTS)):
        ids = torch.from_numpy(TEXTS.slice(number, number + 1).ids)
        states = reader.lstm(encoder.matrix, ids, pack(torch.tensor([0, len(ids)]), torch.device("cpu")))
        expected += _gate_by_hand(reader, encoder.matrix[ids.long()], states)
    assert np.allclose(gate_norms(encoder, TEXTS), expected, atol=1e-5)


def test_bigran_has_the_mean_of_both_directions():
    encoder = _encoder(BiGranConfig())
    ahead, back = (Ragged(ids, np.array([0, 4])) for ids in (IDS[4:], IDS[:3:-1].copy()))
    composition, one = encoder.composition, _encoder(GranConfig())
    norms = []
    for reader, texts in ((composition.reader, ahead), (composition.reader_back, back)):
        one.composition.reader = reader
        norms.append(gate_norms(one, texts))
    assert np.allclose(gate_norms(encoder, ahead), (norms[0] + norms[1][::-1]) / 2, atol=1e-5)


@pytest.mark.parametrize("bos_eos_tokens", ["start", "end", "both"])
def test_boundary_tokens_are_read_and_have_no_norm(bos_eos_tokens):
    encoder, plain = _encoder(GranConfig(), bos_eos_tokens), _encoder(GranConfig())
    start, end = (6 if bos_eos_tokens != "end" else None), (7 if bos_eos_tokens != "start" else None)
    bounded = TEXTS.with_ends(start, end)
    expected = gate_norms(plain, bounded)[~np.isin(bounded.ids, [6, 7])]
    assert np.allclose(gate_norms(encoder, TEXTS), expected, atol=1e-5)


def test_tags_and_labels_of_a_file(tmp_path, inputs):
    tagged = tmp_path / "tagged.tsv"
    sentence = "The\tDT\tdet\nCAT\tNN\tnsubj\nsat\tVBD\troot\nzebra\tNN\tobj\n\n"
    tagged.write_text(10 * sentence)
    tables = {table.suffix: table for table in gates(replace(inputs, options=AnalysisOptions(tagged=tagged))).tables}
    encoder = inputs.candidates[1].encoder
    norms = gate_norms(encoder, Ragged(np.array([1, 3, 5, 0], np.int32), np.array([0, 4])))
    expected = {"DT": norms[0], "NN": norms[1], "VBD": norms[2]}  # the word without a vector is passed over
    found = {row[0]: row[1:] for row in tables["-tags-1"].rows}
    assert {tag: count for tag, (_, count) in found.items()} == dict.fromkeys(expected, 10)
    for tag, norm in expected.items():
        assert np.isclose(found[tag][0], norm, atol=1e-4)
    assert {row[0] for row in tables["-labels-1"].rows} == {"det", "nsubj", "root"}
    assert {row[0] for row in tables["-tags-and-labels-1"].rows} == {"DT det", "NN nsubj", "VBD root"}


def test_pieces_of_the_texts(inputs):
    encoder = _encoder(GranConfig(), tokenizer="wordpiece", words=("run", "##ning"))
    texts = pa.array([10 * "Running " + "zebra run"])
    suite = Suite("pairs", (Group("", (ScoredPairs("own", np.ones(1), texts, texts),)),))
    (table,) = gates(replace(inputs, suites=(suite,), candidates=(Candidate("pieces", "", encoder),))).tables
    assert {row[0]: row[2] for row in table.rows} == {"run": 11, "##ning": 10}


CONLLU = """\
# sent_id = 1
# text = Don't stop #1!
1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tDo\tdo\tAUX\tVB\t_\t3\taux\t_\t_
2\tn't\tnot\tPART\tRB\t_\t3\tadvmod\t_\t_
3\tstop\tstop\tVERB\tVB\t_\t0\troot\t_\t_
3.1\tat\tat\tADP\t_\t_\t_\t_\t_\t_
4\t#\t#\tSYM\t_\t_\t3\tobj\t_\t_

# text = Go
1\tGo\tgo\tVERB\tVB\t_\t0\troot\t_\t_
"""


@pytest.mark.parametrize(
    ("text", "tokens", "tags", "labels", "offsets"),
    [
        (  # the universal tag where there is no other
            *(CONLLU, ["Do", "n't", "stop", "#", "Go"], ("VB", "RB", "VB", "SYM", "VB")),
            *(("aux", "advmod", "root", "obj", "root"), [0, 4, 5]),
        ),
        ("\n#\tSYM\ncats\tNNS\n\n\nrun\tVBP\n\n", ["#", "cats", "run"], ("SYM", "NNS", "VBP"), (), [0, 2, 3]),
        ("#\tSYM\tdep\nrun\tVBP\troot\n", ["#", "run"], ("SYM", "VBP"), ("dep", "root"), [0, 2]),
    ],
)
def test_tagged_sentences_are_read(tmp_path, text, tokens, tags, labels, offsets):
    path = tmp_path / "some.tsv"
    path.write_text(text)
    read = read_tagged(path)
    assert (read.tokens.to_pylist(), read.tags, read.labels) == (tokens, tags, labels)
    assert read.offsets.tolist() == offsets


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cats NNS\n", "line 1: 1 columns"),
        ("cats\tNNS\nrun\tVBP\troot\n", "line 2: 3 columns"),
        ("cats\tNNS\n\t\n", "line 2: no token"),
        ("cats\t\n", "line 1: no tag"),
        (CONLLU.replace("3.1\t", "x\t"), "line 7: the ID is 'x'"),
        ("# nothing\n\n", "has no tokens"),
        (b"caf\xe9\tNN\n", "line 1: not UTF-8"),
    ],
)
def test_what_is_wrong_is_said_with_file_and_line(tmp_path, text, message):
    path = tmp_path / "wrong.tsv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=re.escape(str(path)) + ".*" + re.escape(message)):
        read_tagged(path)
