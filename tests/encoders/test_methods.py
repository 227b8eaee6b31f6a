"""What every encoder that ``load`` returns can do, and that it loads where POSIX is missing."""

import sys
from dataclasses import asdict

import numpy as np
import pytest
import torch

import paraembed
from paraembed import checkpoint
from paraembed.encoders import Encoder
from paraembed.encoders.configs import LstmAvgConfig
from paraembed.export.concat import write_concat
from paraembed.export.folder import write_folder
from paraembed.settings import Inference
from tests.jobs import ran

TEXTS = ["the cat sat", "a dog ran home", "", "zebra on a mat"]
NAMES = {
    "words": "Encoder avg: avg, 4 dimensions, ptb-v1, 12 words",
    "torch": "Encoder lstm: lstm_avg, 4 dimensions, ptb-v1, 12 words",
    "both": "Encoder both: avg and lstm_avg, 8 dimensions, ptb-v1",
    "m2v": "Encoder m2v:{}: model2vec, 4 dimensions",
}


@pytest.fixture(scope="module")
def folders(tiny_encoder_folder, tiny_words, tmp_path_factory):
    folder = tmp_path_factory.mktemp("methods")
    lstm = Encoder(LstmAvgConfig(), tiny_words, "ptb-v1")
    checkpoint.save(lstm, folder / "lstm", recipe={}, provenance={"a": 1}, model_card="")
    write_concat([tiny_encoder_folder, folder / "lstm"], folder / "both")
    pytest.importorskip("model2vec")
    write_folder(checkpoint.load(tiny_encoder_folder), "model2vec", folder / "m2v")
    names = {"words": tiny_encoder_folder, "torch": folder / "lstm", "both": folder / "both"}
    return {**names, "m2v": f"m2v:{folder / 'm2v'}"}


@pytest.mark.parametrize("kind", NAMES)
def test_methods_of_every_encoder(folders, kind, monkeypatch):
    encoder = paraembed.load(folders[kind])
    assert repr(encoder) == NAMES[kind].format(str(folders[kind])[4:])
    plain, units = encoder.encode(TEXTS), encoder.encode(TEXTS, normalize=True)
    lengths = np.linalg.norm(plain.astype(float), axis=1, keepdims=True)
    np.testing.assert_allclose(units * lengths, plain, atol=1e-6)
    assert not units[2].any()
    np.testing.assert_allclose(encoder.encode(TEXTS[0], normalize=True), units[0], atol=1e-6)  # in a batch of its own
    expected = units.astype(float) @ units[:2].T.astype(float)
    for first in (TEXTS, plain, torch.from_numpy(plain), plain.astype(float)):
        for second in (TEXTS[:2], plain[:2]):
            cosines = encoder.similarity(first, second)
            assert (cosines.dtype, cosines.shape) == (np.float32, (4, 2))
            np.testing.assert_allclose(cosines, expected, atol=1e-6)
    assert encoder.similarity(TEXTS[0], plain[0]) == pytest.approx(1)
    for wrong in (plain[:, 1:], plain[None], np.float32(3)):
        with pytest.raises(ValueError, match="`second` has the shape"):
            encoder.similarity(TEXTS, wrong)
    with pytest.raises(TypeError, match="of type"):
        encoder.similarity(TEXTS, 3)


@pytest.mark.parametrize("kind", ["words", "torch", "both"])
def test_a_saved_encoder_is_the_same(folders, tmp_path, kind):
    encoder = paraembed.load(folders[kind])
    encoder.save(tmp_path / "saved")
    again = paraembed.load(tmp_path / "saved")
    assert (again.fingerprint, again.provenance, again.name) == (encoder.fingerprint, encoder.provenance, "saved")
    np.testing.assert_array_equal(again.encode(TEXTS), encoder.encode(TEXTS))
    with pytest.raises(ValueError, match="saved contains an encoder"):
        encoder.save(tmp_path / "saved")
    paraembed.load(folders["words"]).save(tmp_path / "saved", overwrite=True)
    assert paraembed.load(tmp_path / "saved").width == 4


def test_what_cannot_be_saved(folders, tmp_path):
    with pytest.raises(ValueError, match="m2v: model2vec, 4 dimensions is a model"):
        paraembed.load(folders["m2v"]).save(tmp_path / "saved")
    with pytest.raises(ValueError, match="computes in bfloat16"):
        paraembed.load(folders["torch"], Inference(**asdict(Inference()) | {"precision": "bfloat16"})).save(
            tmp_path / "b"
        )
    assert not [*tmp_path.iterdir()]


def test_progress_is_shown_on_request_and_on_terminals(folders, monkeypatch, capsys):
    monkeypatch.setattr("paraembed.console.QUIET_SECONDS", 0)
    monkeypatch.setattr("paraembed.console._TICK_SECONDS", 0.001)
    encoder = paraembed.load(folders["torch"])
    texts = TEXTS * 2000
    for show, is_terminal, is_shown in (
        (True, False, True),
        (None, True, True),
        (None, False, False),
        (False, True, False),
    ):
        monkeypatch.setattr(sys.stderr, "isatty", lambda is_terminal=is_terminal: is_terminal)
        encoder.encode(texts, batch_size=100, show_progress=show)
        assert ("of 8,000 texts" in capsys.readouterr().err) == is_shown


def test_completion_offers_the_api_alone():
    names = {name for name in dir(paraembed) if not name.startswith("__")}
    assert names == {*paraembed.__all__} - {"__version__"}
    assert {"__version__", "__path__", "__file__"} <= {*dir(paraembed)}


WITHOUT_POSIX = """
import errno, os, signal, sys
sys.modules.update(dict.fromkeys(("fcntl", "resource", "pwd", "grp", "termios")))
for module, names in {
    os: ("O_NONBLOCK", "O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "getuid", "geteuid", "sched_getaffinity", "pipe2"),
    signal: ("SIGHUP", "SIGKILL", "pthread_kill"),
    errno: ("EDQUOT",),
}.items():
    for name in names:
        delattr(module, name)
import paraembed
print(paraembed.load("small").encode("a cat").shape, paraembed.load(sys.argv[1]).similarity("the cat", "the cat"))
print("torch" in sys.modules)
"""


def test_encoders_load_where_posix_is_missing_and_without_pytorch(folders):
    """As on Windows, as far as Linux can be made to look like it; avg needs no PyTorch anywhere."""
    done = ran(sys.executable, "-W", "error", "-c", WITHOUT_POSIX, folders["words"])
    assert done.stdout == "(256,) [[1.]]\nFalse\n"
