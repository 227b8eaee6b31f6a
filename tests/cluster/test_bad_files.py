"""Input files that cannot be read are left out, up to a limit, and listed; what else there is becomes the same rows."""

import gzip
import json
import os
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paraembed.cluster.embed import embed
from paraembed.embedding.inputs import find_inputs
from paraembed.embedding.settings import Limits, Settings
from paraembed.embedding.verify import verify
from tests.cluster.test_embed_kills import moments, run_until_done
from tests.jobs import digests, run_job

pytestmark = pytest.mark.usefixtures("in_store")

WHOLE = gzip.compress(b"the dog ran\n" * 5000, mtime=0)
SETTINGS = Settings(part_rows=2)
local = partial(embed, engine="local")


@pytest.fixture
def corpus(tmp_path):
    """Two good files, and three bad ones: one is seen at its beginning, two at their ends."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "a.txt.gz").write_bytes(WHOLE[:-20])
    (folder / "b.txt").write_text("the cat\na dog\nthe mat\n")
    (folder / "c.txt").write_bytes(b"\xff\xfe" + "the cat\n".encode("utf-16-le"))
    (folder / "d.txt").write_text("the dog ran home\n")
    (folder / "e.txt.gz").write_bytes(WHOLE[:-1] + b"?")
    return folder


def rows_of(out):
    return pq.read_table(out / "data").to_pylist()


def test_the_rows_are_those_of_the_good_files(corpus, tiny_encoder_folder, tmp_path):
    good, out, limits = [corpus / "b.txt", corpus / "d.txt"], tmp_path / "out", Limits(max_bad_files=3)
    local(tiny_encoder_folder, good, tmp_path / "good", SETTINGS)
    for identity in ("stamp", "sha256"):
        done = local(tiny_encoder_folder, [corpus], out, SETTINGS, limits=limits, identity=identity)
        assert (done.rows, done.bad_files, done.was_finished) == (4, 3, identity == "sha256")
    assert rows_of(out) == rows_of(tmp_path / "good")
    listed = [json.loads(line) for line in (out / "_rejected" / "files.jsonl").read_text().splitlines()]
    assert [entry["source"] for entry in listed] == [str(corpus / name) for name in ("a.txt.gz", "c.txt", "e.txt.gz")]
    assert "UTF-16" in listed[1]["reason"]
    again = tmp_path / "again"
    local(tiny_encoder_folder, [corpus], again, SETTINGS, limits=limits)
    assert digests(again) == digests(out)
    assert all(check.ok for check in verify(out, tiny_encoder_folder, [str(corpus)]))
    (out / "_rejected" / "files.jsonl").write_text('{"source": "a"}\n')
    (failed,) = (check for check in verify(out) if not check.ok)
    assert failed.name == "rejected"


def test_more_bad_files_than_allowed_stop_the_run(corpus, tiny_encoder_folder, tmp_path):
    run, out = partial(local, tiny_encoder_folder, [corpus], settings=SETTINGS), tmp_path / "out"
    with pytest.raises(ValueError, match=r"c\.txt is UTF-16"):
        run(out=out)
    with pytest.raises(ValueError, match=r"3 of 5 .* is 2; .*/a\.txt\.gz"):
        run(out=out, limits=Limits(max_bad_files=2))
    assert not out.exists()
    run(out=out, limits=Limits(max_bad_files=3))
    for most in (0, 2):
        with pytest.raises(ValueError, match=rf"3 of 5 .* is {most};"):
            run(out=out, limits=Limits(max_bad_files=most))
    with pytest.raises(ValueError, match="1 of 1 input files"):
        local(tiny_encoder_folder, [corpus / "c.txt"], tmp_path / "none", SETTINGS, limits=Limits(max_bad_files=1))


def test_a_repaired_file_is_a_changed_input(corpus, tiny_encoder_folder, tmp_path):
    run = partial(local, tiny_encoder_folder, [corpus], tmp_path / "out", SETTINGS, limits=Limits(max_bad_files=3))
    run()
    before = digests(tmp_path / "out")
    (corpus / "e.txt.gz").write_bytes(WHOLE)
    with pytest.raises(ValueError, match=r"begun without .*/e\.txt\.gz.*`append`"):
        run()
    assert digests(tmp_path / "out") == before


def test_mistakes_of_the_user_are_no_bad_files(tmp_path):
    """An unknown kind, a setting of other files, a delimiter that is not given; and a file that is missing."""
    for name, content in (("a.dat", "x"), ("b.txt", "x"), ("c.csv", "body;id\nx;1\n")):
        (tmp_path / name).write_text(content)
        limits = Limits(max_bad_files=9).reading
        limits = type(limits)(csv_delimiter=",") if name == "b.txt" else limits
        with pytest.raises(ValueError, match=r"unknown kind|no meaning|one column"):
            find_inputs([tmp_path / name], limits, max_bad_files=9)
    with pytest.raises(FileNotFoundError):
        find_inputs([tmp_path / "missing.txt"], max_bad_files=9)


def test_tables_without_a_footer_a_header_or_rows(tmp_path, tiny_encoder_folder):
    """As each is seen before the columns are checked, the good ones decide these."""
    table, bad = pa.table({"body": ["the cat", "a dog"]}), tmp_path / "0.parquet"
    pq.write_table(table, tmp_path / "1.parquet")
    bad.write_bytes((tmp_path / "1.parquet").read_bytes()[:-30])
    with pa.ipc.new_file(tmp_path / "1.arrow", table.schema) as writer:
        writer.write_table(table)
    (tmp_path / "0.arrow").write_bytes((tmp_path / "1.arrow").read_bytes()[:40])
    (tmp_path / "1.csv").write_text("body\nthe cat\na dog\n")
    (tmp_path / "0.csv").write_text("\nthe cat\n")
    (tmp_path / "1.jsonl").write_text('{"body": "the cat"}\n{"body": "a dog"}\n')
    (tmp_path / "0.jsonl").touch()
    for kind in ("parquet", "arrow", "csv", "jsonl"):
        files = [tmp_path / f"{number}.{kind}" for number in (0, 1)]
        out, limits = tmp_path / kind, Limits(max_bad_files=1)
        done = local(tiny_encoder_folder, files, out, Settings("body", keep=("body",)), limits=limits)
        assert [row["body"] for row in rows_of(out)] == ["the cat", "a dog"]
        assert done.bad_files == 1


def test_parquet_with_a_damaged_page(tmp_path, tiny_encoder_folder):
    """Its footer is whole; only a page of a column that is needed counts."""
    rows = [f"the cat number {number}" for number in range(4000)]
    for name in ("0", "1", "2"):
        table = pa.table({"body": rows, "other": rows[::-1]})
        pq.write_table(table, tmp_path / f"{name}.parquet", compression="snappy", use_dictionary=False)
    for name, column in (("0", 0), ("2", 1)):
        path = tmp_path / f"{name}.parquet"
        chunk = pq.ParquetFile(path).metadata.row_group(0).column(column)
        octets, middle = bytearray(path.read_bytes()), chunk.data_page_offset + chunk.total_compressed_size // 2
        octets[middle : middle + 40] = bytes(40)
        path.write_bytes(octets)
    files, out = [tmp_path / f"{name}.parquet" for name in ("0", "1", "2")], tmp_path / "out"
    with pytest.raises(ValueError, match=r"0\.parquet"):
        local(tiny_encoder_folder, files, out, Settings("body"))
    done = local(tiny_encoder_folder, files, tmp_path / "without", Settings("body"), limits=Limits(max_bad_files=1))
    assert (done.rows, done.bad_files) == (8000, 1)
    listed = json.loads((tmp_path / "without" / "_rejected" / "files.jsonl").read_text())
    assert listed["source"] == str(files[0])


def test_arrow_with_damaged_offsets(tmp_path, tiny_encoder_folder):
    """Its footer and the sizes of its batches are whole."""
    for name in ("0", "1"):
        table = pa.table({"body": [f"the cat number {number}" for number in range(4000)]})
        with pa.ipc.new_file(tmp_path / f"{name}.arrow", table.schema) as writer:
            writer.write_table(table)
    octets = bytearray((tmp_path / "1.arrow").read_bytes())
    octets[4000:4040] = b"\xff" * 40
    (tmp_path / "1.arrow").write_bytes(octets)
    files, limits = [tmp_path / "0.arrow", tmp_path / "1.arrow"], Limits(max_bad_files=1)
    done = local(tiny_encoder_folder, files, tmp_path / "out", Settings("body"), limits=limits)
    assert (done.rows, done.bad_files) == (4000, 1)
    assert str(files[1]) in (tmp_path / "out" / "_rejected" / "files.jsonl").read_text()


def test_an_object_that_is_damaged(server, tiny_encoder_folder):
    server.objects |= {"corpus/a.txt.gz": WHOLE[:-20], "corpus/b.txt": b"the cat\n", "corpus/c.txt": b"\xff\xfe\0\0"}
    limits = Limits(max_bad_files=2)
    for _ in range(2):
        done = local(tiny_encoder_folder, [server.uri("corpus")], server.uri("out"), SETTINGS, limits=limits)
        assert (done.rows, done.bad_files) == (1, 2)
    assert done.was_finished
    assert b"secret" not in b"".join(data for key, data in server.objects.items() if key.startswith("out/"))
    assert b"s3://bucket/corpus/c.txt" in server.objects["out/_rejected/files.jsonl"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_without_the_permission_to_read_it(corpus, tiny_encoder_folder, tmp_path):
    (corpus / "d.txt").chmod(0)
    limits = Limits(max_bad_files=4)
    assert local(tiny_encoder_folder, [corpus], tmp_path / "out", SETTINGS, limits=limits).bad_files == 4


CRASHES = [f"rename {name}" for name in ("files.jsonl", "inputs-000.arrow", "_manifest.json")] + ["open files.jsonl"]


@pytest.mark.parametrize(
    "names", [CRASHES[:1], pytest.param(CRASHES, marks=pytest.mark.slow)], ids=["of the list", "all"]
)
def test_every_crash_point(corpus, tiny_encoder_folder, tmp_path, names):
    expected, out = tmp_path / "expected", tmp_path / "out"
    local(tiny_encoder_folder, [corpus], expected, SETTINGS, limits=Limits(max_bad_files=3))
    crashes = moments(tmp_path / "crashes", *names)
    more = ("--part-rows", "2", "--max-bad-files", "3", "--engine", "local")
    assert run_until_done(tiny_encoder_folder, corpus, out, more=more, crashes=crashes) == len(names)
    assert digests(out) == digests(expected)


def test_the_end_of_the_job_says_so(corpus, tiny_encoder_folder, tmp_path, capfd):
    flags = ("--encoder", tiny_encoder_folder, "--input", corpus, "--out", tmp_path / "out", "--max-bad-files", "3")
    assert run_job("embed", *flags, "--dry-run") == 0
    assert "bad files" in capfd.readouterr().out
    assert run_job("embed", *flags, "--json") == 0
    printed = capfd.readouterr()
    assert json.loads(printed.out)["bad_files"] == 3
    assert "3 of 5 input files could not be read" in printed.err
