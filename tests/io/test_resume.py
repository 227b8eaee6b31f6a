"""Work in a folder: finished, resumed, refused by the differing field, started over."""

import json
import re
from dataclasses import replace

import pytest

from paraembed.io.atomic import write_json
from paraembed.io.resume import Work, check_destination, is_output

FILES = re.compile(r"identity\.json|model/.*|\.identity\.json\..*")
MARGIN = {"recipe": {"margin": 0.4, "sizes": (1, 2)}, "pairs": "a"}


def work(folder, **more):
    plain = Work(folder / "out", folder / "out.training", "identity.json", MARGIN, FILES, "jobs/train.py")
    plain.folder.mkdir(exist_ok=True)
    return replace(plain, **more)


def read(out):
    return json.loads((out / "config.json").read_text())


def test_an_output_of_the_same_is_finished_and_another_is_refused(tmp_path):
    some = work(tmp_path)
    assert not some.is_finished(read)
    some.out.mkdir()
    assert not some.is_finished(read)
    write_json(some.out / "config.json", MARGIN)
    assert some.is_finished(read)
    other = replace(some, fingerprint={**MARGIN, "pairs": "b"})
    with pytest.raises(ValueError, match=r"pairs \(was a, is b\); .*`out`, .*`overwrite`"):
        other.is_finished(read)
    assert not replace(other, overwrite=True).is_finished(read)
    write_json(some.out / "config.json", {**MARGIN, "evaluation": 2})
    with pytest.raises(ValueError, match=r"another evaluation \(was 2, is not set\)"):
        some.is_finished(read)


def test_work_is_resumed_by_the_same_alone(tmp_path):
    some = work(tmp_path)
    assert not some.is_begun()
    some.begin()
    assert some.is_begun()
    other = replace(some, fingerprint={"recipe": {"margin": 0.5}, "pairs": "b"})
    with pytest.raises(ValueError, match=r"recipe\.margin \(was 0\.4, is 0\.5\); pairs \(.*sizes"):
        other.is_begun()
    with pytest.raises(ValueError, match=r"another recipe\.margin \(.*\); recipe\.sizes .*is not set\)"):
        replace(other, is_nested=True).is_begun()
    (some.folder / "model").mkdir()
    (some.folder / "model" / "weights").write_text("old")
    again = replace(other, overwrite=True)
    assert not again.is_begun()
    again.clear()
    assert not any(some.folder.iterdir())


def test_damaged_work_is_other_work(tmp_path):
    some = work(tmp_path)
    for damaged in ("{", "[]"):
        (some.folder / "identity.json").write_text(damaged)
        with pytest.raises(ValueError, match=r"identity\.json.*; start over with `overwrite`"):
            some.is_begun()
        assert not replace(some, overwrite=True).is_begun()
        some.remove_leftover()
        assert (some.folder / "identity.json").exists()


@pytest.mark.parametrize("overwrite", [False, True])
def test_files_of_others_stay(tmp_path, overwrite, caplog):
    some = work(tmp_path, overwrite=overwrite)
    (some.folder / "chapter").write_text("dear")
    with pytest.raises(ValueError, match=r"jobs/train\.py did not write: chapter; "):
        some.is_begun()
    some.begin()
    some.remove_leftover()
    assert (some.folder / "chapter").read_text() == "dear"
    assert "chapter" in caplog.text
    (some.folder / "chapter").unlink()
    some.remove_leftover()
    assert not some.folder.exists()
    own = replace(some, folder=some.out)  # where nothing was begun, even a file with a name of the job's is another's
    (some.out / "model").mkdir(parents=True)
    (some.out / "model" / "weights").write_text("dear")
    with pytest.raises(ValueError, match=r"model/weights"):
        own.is_begun()


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("sweep.json", '{"program": "wandb"}', False),
        ("_manifest.json", "{}", False),
        ("_plan.json", '{"format": "terraform"}', False),
        ("_plan.json", "[" * 200, False),
        ("_manifest.json", '{\n  "files": {},\n  "format": "paraembed-teach-1"\n}', True),
        ("_plan.json", '{"encoder": "", "format": "paraembed-embeddings-1", "plan"', True),  # longer than what is read
        ("sweep.json", '{"metric": [], "search": {}, "searched": {}, "space": "avg", "workers": 1}', True),
    ],
)
def test_an_output_is_known_by_the_content_of_its_files(tmp_path, name, text, expected):
    (tmp_path / name).write_text(text)
    assert is_output(tmp_path) == expected
    if not expected:
        check_destination(tmp_path / "new" / "out")


def test_only_texts_that_name_a_path_are_inputs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_destination(tmp_path / "out", f"models:{tmp_path}", "x" * 5000, "st:" + "x" * 5000, "small", "a\0b")
    for name in (str(tmp_path), f"st:{tmp_path}"):
        with pytest.raises(ValueError, match="inside of the input"):
            check_destination(tmp_path / "out", name)
