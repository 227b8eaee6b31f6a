from pathlib import Path

import pytest

from paraembed.embedding import replace as module
from paraembed.embedding.replace import discard, previous_folder, remove_previous, replace_output, staging_folder


def begun(folder, name):
    """A folder of this job, with one part."""
    folder.mkdir()
    (folder / "_plan.json").write_text("{}")
    (folder / "_reports").mkdir()
    (folder / name).write_text(name)
    return folder


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("exchange", [True, False], ids=["in one step", "by two renames"])
def test_the_new_folder_takes_the_place_of_the_old(tmp_path, monkeypatch, exchange):
    if not exchange:
        monkeypatch.setattr(module, "_exchange", lambda *_: False)
    out = begun(tmp_path / "out", "part-00000-of-00001.parquet")
    new = begun(staging_folder(out), "part-00000-of-00002.parquet")
    replace_output(new, out)
    assert names(out) == ["_plan.json", "_reports", "part-00000-of-00002.parquet"]
    assert names(tmp_path) == ["out"]
    replace_output(begun(staging_folder(tmp_path / "other"), "_SUCCESS"), tmp_path / "other")
    assert names(tmp_path) == ["other", "out"]


def test_the_old_folder_is_there_at_every_moment(tmp_path, monkeypatch):
    """What is under the name is one folder or the other, whole, at every call that changes the file system."""
    out = begun(tmp_path / "out", "part-00000-of-00001.parquet")
    new = begun(staging_folder(out), "part-00000-of-00002.parquet")
    seen = []
    real = {"unlink": Path.unlink, "rmdir": Path.rmdir, "rename": Path.rename}
    for name, call in real.items():

        def look(path, *more, call=call, **named):
            seen.append(names(out))
            return call(path, *more, **named)

        monkeypatch.setattr(Path, name, look)
    replace_output(new, out)
    assert len(seen) >= 3
    assert all(one == ["_plan.json", "_reports", "part-00000-of-00002.parquet"] for one in seen)


def test_a_link_stays_and_what_it_leads_to_is_replaced(tmp_path):
    (tmp_path / "disk").mkdir()
    out = tmp_path / "out"
    out.symlink_to(begun(tmp_path / "disk" / "data", "part-00000-of-00001.parquet"))
    assert staging_folder(out).parent == tmp_path / "disk"
    replace_output(begun(staging_folder(out), "part-00000-of-00002.parquet"), out)
    assert out.is_symlink()
    assert names(out) == ["_plan.json", "_reports", "part-00000-of-00002.parquet"]
    assert (names(tmp_path), names(tmp_path / "disk")) == (["disk", "out"], ["data"])


def test_the_previous_output_of_a_killed_run_is_removed_and_an_unfinished_new_one_is_not(tmp_path):
    out = begun(tmp_path / "out", "part-00000-of-00001.parquet")
    begun(previous_folder(out), "part-00000-of-00001.parquet")
    begun(staging_folder(out), "part-00000-of-00001.parquet")
    remove_previous(out)
    assert names(tmp_path) == [".out.new", "out"]
    begun(previous_folder(out), "notes.txt")
    remove_previous(out)
    assert names(previous_folder(out)) == ["_plan.json", "_reports", "notes.txt"]


def test_a_folder_that_is_being_discarded_is_known_to_the_end(tmp_path, monkeypatch):
    folder = begun(tmp_path / "out", "part-00000-of-00001.parquet")
    (folder / ".part-00000-of-00001.parquet.0123abcd.tmp").touch()

    def killed(path):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rmdir", killed)
        with pytest.raises(KeyboardInterrupt):
            discard(folder)
    discard(folder)
    assert names(tmp_path) == []
    discard(folder)
    begun(folder, "notes.txt")
    with pytest.raises(ValueError, match=r"contains a file .*: notes\.txt"):
        discard(folder)
    assert "notes.txt" in names(folder)
