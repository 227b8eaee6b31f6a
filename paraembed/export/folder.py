"""Write an encoder as a model folder of another library, whole or not at all."""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from paraembed.export.tokenizer import check_ids, tokenizer_json
from paraembed.io.atomic import foreign_file, new_folder, write_json
from paraembed.io.resume import MARK, described
from paraembed.late import Late
from paraembed.text import WORDPIECE
from paraembed.text.vocabulary import unknown_row

if TYPE_CHECKING:
    from paraembed.encoders import Encoder
    from paraembed.export import onnx, static
else:
    onnx, static = Late("paraembed.export.onnx"), Late("paraembed.export.static")

_OWN = re.compile(
    r"(\d_\w+/)?(config|modules|tokenizer|tokenizer_config|config_sentence_transformers|special_tokens_map)\.json"
    r"|(\d_\w+/)?model\.safetensors|(onnx/)?model\.onnx|README\.md|paraembed\.json"
)
"""Files of the model folders; a folder with other files is not replaced."""
FORMAT = "paraembed-export-1"


def check_target(out: Path, *, overwrite: bool) -> None:
    """Check that a model folder may be written. Raise ValueError if the path is a file, or exists without
    ``overwrite``, or the folder has files of something else, or is not marked as one that this job wrote.
    """
    if out.is_dir() and not any(out.iterdir()):
        return
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; give `out` the name of a folder")
    if out.exists() and not overwrite:
        raise ValueError(f"{out} already exists; choose another `out`, or replace it with `overwrite`")
    if out.exists() and described(out / MARK).get("format") != FORMAT:
        raise ValueError(
            f"{out} has no {MARK}, so it may not be a model of jobs/export.py and is not replaced; choose another "
            "`out`, or remove it"
        )
    if out.exists() and (other := foreign_file(out, _OWN)):
        raise ValueError(f"{other} is not a file of an exported model, so {out} is not replaced; choose another `out`")


def write_folder(
    encoder: "Encoder",
    to: str,
    out: Path,
    texts: Sequence[str] = (),
    card: str | None = None,
    *,
    overwrite: bool = False,
) -> None:
    """Write a model folder atomically, after its tokenizer was compared with the encoder's on a built-in sample and on
    ``texts``; ``overwrite`` replaces an existing model (see ``check_target``).

    ``to`` is ``sentence-transformers``, ``hub`` (the same), ``model2vec`` or ``onnx``; ``card`` is the model card, if
    any. Raise ValueError if the library cannot compute the encoder's vectors, or the ids of a text differ.
    """
    if encoder.pieces is not None:
        raise ValueError(
            "OOV tokens of the encoder have vectors of pieces, which no other library can compute; export the encoder "
            "of words from which it was made"
        )
    if encoder.has_bigrams:
        raise ValueError("the encoder has vectors of bigrams, which no other library can add up; use `to` word2vec")
    form, limit = None, encoder.max_tokens
    if to != "onnx":
        form = static.static_form(encoder)
        limit = form.max_tokens
        if to == "model2vec" and encoder.tokenizer == WORDPIECE:
            form = replace(
                form, table=np.vstack([form.table, form.table[unknown_row(encoder.vocabulary)]])
            )  # that of OOV_WORD
    tokenizer = tokenizer_json(encoder, "mark" if to == "model2vec" else "token", limit)
    check_ids(encoder, tokenizer, texts)
    with new_folder(out, partial(check_target, overwrite=overwrite)) as folder:
        if form is None:
            onnx.write_onnx(encoder, tokenizer, folder)
        else:
            (static.write_model2vec if to == "model2vec" else static.write_sentence_transformers)(
                form, tokenizer, folder
            )
        write_json(folder / MARK, {"format": FORMAT, "encoder": encoder.fingerprint})
        if card is not None:
            (folder / "README.md").write_text(card, encoding="utf-8")
