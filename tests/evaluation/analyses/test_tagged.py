import re
from pathlib import Path

import pytest

from paraembed.evaluation.analyses.tagged import read_tagged

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


def test_conllu(tmp_path: Path) -> None:
    path = tmp_path / "some.conllu"
    path.write_text(CONLLU)
    read = read_tagged(path)
    assert read.tokens.to_pylist() == ["Do", "n't", "stop", "#", "Go"]
    assert read.tags == ("VB", "RB", "VB", "SYM", "VB")  # the universal tag where there is no other
    assert read.labels == ("aux", "advmod", "root", "obj", "root")
    assert read.offsets.tolist() == [0, 4, 5]


@pytest.mark.parametrize(("label", "labels"), [("", ()), ("\tnsubj", ("nsubj",) * 3)])
def test_columns(tmp_path: Path, label: str, labels: tuple[str, ...]) -> None:
    path = tmp_path / "some.tsv"
    path.write_text(f"\n#\tSYM{label}\ncats\tNNS{label}\n\n\nrun\tVBP{label}\n\n")
    read = read_tagged(path)
    assert read.tokens.to_pylist() == ["#", "cats", "run"]
    assert (read.tags, read.labels) == (("SYM", "NNS", "VBP"), labels)
    assert read.offsets.tolist() == [0, 2, 3]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cats NNS\n", "line 1: 1 columns"),
        ("cats\tNNS\nrun\tVBP\troot\n", "line 2: 3 columns"),
        ("cats\tNNS\n\t\n", "line 2: no token"),
        ("cats\t\n", "line 1: no tag"),
        (CONLLU.replace("3.1\t", "x\t"), "line 7: the ID is 'x'"),
        ("# nothing\n\n", "holds no tokens"),
        (b"caf\xe9\tNN\n", "line 1: not UTF-8"),
    ],
)
def test_what_is_wrong_is_said_with_file_and_line(tmp_path: Path, text: str | bytes, message: str) -> None:
    path = tmp_path / "wrong.tsv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=re.escape(str(path)) + ".*" + re.escape(message)):
        read_tagged(path)
