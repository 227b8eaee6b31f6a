import errno
import gzip
import json
import random
import re
import shutil
import string
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import replace

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paraembed.cluster.shard import shard_pairs
from paraembed.commands.job import message_of, user_error
from paraembed.io.atomic import work_folder
from paraembed.io.fingerprint import sha256_of
from paraembed.io.limits import DEFAULT_LIMITS, ReadLimits
from paraembed.pairs.outputs import read_identity
from paraembed.pairs.schema import PAIRS
from paraembed.pairs.settings import ShardSettings
from paraembed.pairs.shards import has_ptb_tokens, read_pair_manifest
from paraembed.signals import RunFailedError
from tests.jobs import digests, interrupted, job_command

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
NAMES = [f"n{row}".translate(str.maketrans("0123456789", "abcdefghij")) for row in range(1500)]
pytestmark = pytest.mark.usefixtures("in_store")

SETTINGS = ShardSettings(rows_per_shard=40)
SETTINGS_LARGE = ShardSettings(rows_per_shard=30_000)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A TSV file of 90 pairs and a PPDB-format file that repeats 30 of them, swapped, and has two bad lines."""
    folder = tmp_path_factory.mktemp("inputs")
    tsv, ppdb = folder / "pairs.tsv", folder / "ppdb"
    tsv.write_text("".join(f"one {number}\tuno {number}\n" for number in range(90)))
    lines = [
        f"[NP] ||| uno {number} ||| one {number} ||| PPDB2.0Score={number} ||| 0-0 ||| Equivalence"
        for number in range(60, 120)
    ]
    ppdb.write_text("\n".join([*lines, "[NP] ||| cut", ""]))
    return [tsv, ppdb]


@pytest.fixture(scope="module")
def sharded(ray_cluster, in_store, inputs, tmp_path_factory):
    """Their shards, and the manifest."""
    out = tmp_path_factory.mktemp("sharded") / "out"
    manifest, before = shard_pairs(inputs, out, SETTINGS, workers=2)
    assert not before
    return out, manifest


def contents(folder):
    return digests(folder, "**/*")


def test_shards_manifest_and_success(sharded):
    out, manifest = sharded
    # Of the 30 pairs that are in both files the lower rank stays: those of the second file.
    assert manifest["counts"] == {
        "read": 151,
        "kept": 120,
        "refused": 1,
        "duplicates": 30,
        "reasons": {"too few fields": 1},
    }
    assert manifest["sources"]["pairs.tsv"] == {"read": 90, "pairs": 90, "duplicates": 30, "refused": {}}
    assert manifest["sources"]["ppdb"]["ppdb_version"] == "2.0"
    assert not has_ptb_tokens(manifest)  # those of the .tsv file alone
    tables = [pq.read_table(out / shard["name"]) for shard in manifest["shards"]]
    assert [table.num_rows for table in tables] == [40, 40, 40]
    assert all(table.schema.equals(PAIRS) for table in tables)
    rows = [row for table in tables for row in table.to_pylist()]
    assert [(row["source"], row["rank"]) for row in rows] == [
        *(("pairs.tsv", rank) for rank in range(60)),
        *(("ppdb", rank) for rank in range(60)),
    ]
    assert rows[60] == {
        "first": "uno 60", "second": "one 60", "score": 60.0, "rank": 0, "relation": "Equivalence", "source": "ppdb",
        "first_tree": None, "second_tree": None,
    }  # fmt: skip
    for shard in manifest["shards"]:
        assert sha256_of(out / shard["name"]) == shard["sha256"]
    refused = [json.loads(line) for line in (out / "rejected-sample.jsonl").read_text().splitlines()]
    assert refused == [{"file": "ppdb", "line": 61, "reason": "too few fields", "text": "[NP] ||| cut"}]
    assert json.loads((out / "_SUCCESS").read_text()) == {"manifest_sha256": sha256_of(out / "manifest.json")}
    assert [path.name for path in out.parent.iterdir()] == ["out"]


def test_bytes_do_not_depend_on_spans(ray_cluster, tmp_path):
    """Of columns with a header and of PPDB: pairs repeat, and more rows are refused than the sample shows."""
    inputs = [tmp_path / "a", tmp_path / "b"]
    for number, form in enumerate(("{0}\t{1}\n", "[X] ||| {0} ||| {1} ||| PPDB2.0Score=1 ||| 0-0\n")):
        rows = [(f"one {row % 300}", "" if row % 5 == 4 else NAMES[row % 300]) for row in range(number, 900)]
        lines = [form.format(*row) if row[1] else "bad\n" for row in rows]
        inputs[number].write_text("".join(["phrase\tparaphrase\n"] * (number == 0) + lines))
    whole, _ = shard_pairs(inputs, tmp_path / "whole", SETTINGS, workers=1)
    assert whole["counts"]["duplicates"] == 1199
    assert whole["counts"]["refused"] == 360
    shown = [json.loads(line) for line in (tmp_path / "whole" / "rejected-sample.jsonl").read_text().splitlines()]
    assert [row["line"] for row in shown] == [*range(6, 506, 5), *range(4, 504, 5)]
    shard_pairs(inputs, tmp_path / "spans", SETTINGS, workers=3, span_bytes=3000)
    assert contents(tmp_path / "spans") == contents(tmp_path / "whole")


def test_what_older_code_left_or_is_damaged_is_not_gone_on_from(sharded, inputs, tmp_path):
    out, manifest = sharded
    identity = json.dumps({name: manifest[name] for name in ("format", "settings", "inputs", "words")})
    for name, text in (("older", identity), ("damaged", identity[:9])):
        left = tmp_path / f".{name}.partial"
        left.mkdir()
        (left / "identity.json").write_text(text)
        (left / "parsed-00000.json").write_text("{}")
        shard_pairs(inputs, tmp_path / name, SETTINGS)
        assert contents(tmp_path / name) == contents(out)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["local", "ray"])
def test_a_killed_driver_goes_on_from_the_files_that_are_parsed(ray_cluster, tmp_path, capsys, engine):
    inputs = []
    for number in range(6):
        inputs.append(tmp_path / f"{number}.tsv")
        rows = (f"{number} {row} a b c d e f\t{number} {row % 4000} x\n" for row in range(10_000))
        data = "".join(rows).encode()
        inputs[-1].write_bytes(gzip.compress(data) if number % 2 else data)
    shard_pairs(inputs, tmp_path / "unbroken", SETTINGS_LARGE)
    given = "shard", "--engine", engine, "--input", *inputs, "--out", tmp_path / "out"
    job = job_command(*given, "--rows-per-shard", 30_000)
    interrupted(job, lambda: list(tmp_path.glob(".out.partial/parsed-*.json")), start_new_session=True)
    assert not (tmp_path / "out").exists()
    capsys.readouterr()
    shard_pairs(inputs, tmp_path / "out", SETTINGS_LARGE)
    assert 1 <= capsys.readouterr().err.count("(parsed before)") < 6
    assert contents(tmp_path / "out") == contents(tmp_path / "unbroken")
    third = job_command(*given, "--rows-per-shard", 25_000, "--overwrite")
    parsed = tmp_path / ".out.partial"
    interrupted(third, lambda: list(parsed.glob("parsed-*.json")), start_new_session=True)
    other = ShardSettings(rows_per_shard=20_000)
    for out in ("out", "other"):  # over unfinished work of other settings, it starts over
        shard_pairs(inputs, tmp_path / out, other, overwrite=True)
    assert contents(tmp_path / "out") == contents(tmp_path / "other") != contents(tmp_path / "unbroken")


@pytest.mark.slow
def test_a_driver_killed_after_the_selection_leaves_nothing_behind(ray_cluster, tmp_path):
    source, words = tmp_path / "p.tsv", tmp_path / "words"
    settings = ShardSettings(training_set="pgru2017", rows_per_shard=60)
    rows = enumerate(NAMES)
    source.write_text("".join(f"{WORDS[row % 10]} {WORDS[row % 7]}\tone {name}\n" for row, name in rows))
    words.write_text("\n".join([*WORDS, *NAMES]))
    unbroken, _ = shard_pairs([source], tmp_path / "unbroken", settings, words=words)
    assert unbroken["counts"]["kept"] == 1500
    flags = "--words", words, "--training-set", "pgru2017", "--rows-per-shard", 60
    result = tmp_path / ".out.partial" / "result"
    job = job_command("shard", "--input", source, "--out", tmp_path / "out", *flags)
    interrupted(job, lambda: len(list(result.glob("train/pairs-*"))) > 2, start_new_session=True)
    assert not (tmp_path / "out").exists()
    assert not (result / "test" / "_SUCCESS").exists()
    shard_pairs([source], tmp_path / "out", settings, words=words)
    assert contents(tmp_path / "out") == contents(tmp_path / "unbroken")
    assert {f"{name}/_SUCCESS" for name in ("train", "dev", "test")} < contents(tmp_path / "out").keys()


def test_two_runs_at_once_and_unusable_inputs_are_refused(ray_cluster, inputs, tmp_path):
    with work_folder(tmp_path / ".out.partial"), pytest.raises(ValueError, match="another run is writing to"):
        shard_pairs(inputs, tmp_path / "out", SETTINGS)
    with pytest.raises(ValueError, match="an input is given twice"):
        shard_pairs([*inputs, inputs[0]], tmp_path / "out", SETTINGS)
    (tmp_path / "quoted.csv").write_text('a,b\nc,"d\ne,f\n')
    with pytest.raises(ValueError, match=r"quoted\.csv, line \d: wrong quoting.*`format` to tsv"):
        shard_pairs([tmp_path / "quoted.csv"], tmp_path / "out", SETTINGS)
    (tmp_path / "none.csv").write_text("source,target\n")
    pq.write_table(pa.table({"source": pa.nulls(0, pa.string()), "target": []}), tmp_path / "none.parquet")
    for name in ("none.csv", "none.parquet"):
        with pytest.raises(ValueError, match=f"^{re.escape(name)} has no rows; leave it out"):
            shard_pairs([*inputs, tmp_path / name], tmp_path / "out", SETTINGS)
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / inputs[0].name).write_text("x\ty\n")
    manifest, _ = shard_pairs([*inputs, tmp_path / "more" / inputs[0].name], tmp_path / "out", SETTINGS)
    assert list(manifest["sources"]) == ["0/pairs.tsv", "1/ppdb", "2/pairs.tsv"]


def test_pairs_from_before_the_flag_have_lines_of_its_default(tmp_path):
    identity = {"format": "paraembed-pairs-1", "inputs": [], "max_line_bytes": DEFAULT_LIMITS.max_line_bytes}
    (tmp_path / "manifest.json").write_text('{"format": "paraembed-pairs-1", "inputs": []}')
    (tmp_path / "_SUCCESS").touch()
    assert read_identity(tmp_path, tuple(identity)) == identity


def test_finished_output_is_kept_or_replaced_only_on_request(sharded, inputs, tmp_path, capsys):
    out, before = shutil.copytree(sharded[0], tmp_path / "out"), contents(sharded[0])
    shard_pairs(inputs, out, SETTINGS)
    assert "is already finished, 120 pairs; nothing to do" in capsys.readouterr().err
    other = ShardSettings(rows_per_shard=41)
    with pytest.raises(ValueError, match=r"settings.rows_per_shard \(was 40, is 41\); .* `overwrite`"):
        shard_pairs(inputs, out, other)
    with pytest.raises(ValueError, match=r"settings.encoding \(was not set, is latin-1\)"):
        shard_pairs(inputs, out, SETTINGS, limits=ReadLimits(encoding="latin-1"))
    (out / "notes.txt").write_text("dear")
    with pytest.raises(ValueError, match=r"out contains .*jobs/shard\.py .*: notes\.txt"):
        shard_pairs(inputs, out, other, overwrite=True)
    (out / "notes.txt").unlink()
    assert contents(out) == before
    (tmp_path / ".out.old").mkdir()  # of a run that was killed while it removed what it had replaced
    (tmp_path / ".out.old" / SHARD).touch()
    (tmp_path / ".out.partial").mkdir()
    (tmp_path / ".out.partial" / "parsed-00000.parquet").touch()
    shard_pairs(inputs, out, other, overwrite=True)
    assert contents(out) != before
    assert not list(tmp_path.glob(".out*"))


def test_files_of_a_user_in_or_beside_the_output_survive(inputs, tmp_path):
    for folder in (tmp_path / "out", tmp_path / ".out.old", tmp_path / ".out.partial"):
        folder.mkdir()
        (folder / "chapter1.txt").write_text("dear")
        for overwrite in (False, True):
            message = rf"{re.escape(str(folder))} contains .*jobs/shard\.py .*: chapter1\.txt"
            with pytest.raises(ValueError, match=message):
                shard_pairs(inputs, tmp_path / "out", SETTINGS, overwrite=overwrite)
        assert (folder / "chapter1.txt").read_text() == "dear"
        shutil.rmtree(folder)
        assert not (tmp_path / "out").exists()
    (tmp_path / "empty").mkdir()
    for name in (".out.old", ".out.partial"):
        for target in (tmp_path, tmp_path / "empty"):
            (tmp_path / name).symlink_to(target)
            with pytest.raises(ValueError, match=rf"jobs/shard\.py .*: {re.escape(name)}"):
                shard_pairs(inputs, tmp_path / "out", SETTINGS)
            (tmp_path / name).unlink()
    assert all(path.exists() for path in inputs)


@pytest.mark.slow
def test_commands_that_begin_at_once_give_one_output(inputs, tmp_path):
    command = job_command("shard", "--input", *inputs, "--out", tmp_path / "out", "--rows-per-shard", 40)
    for _ in range(3):
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
        said = [process.communicate(timeout=200)[1] for process in processes]
        assert not any("Traceback" in text for text in said), said
        ended = [process.returncode for process in processes]
        assert 0 in ended
        for status, text in zip(ended, said, strict=True):
            assert status == 0 or "error: another run is writing to" in text, text
        assert len(contents(tmp_path / "out")) == 8
        assert not list(tmp_path.glob(".out*"))


PHRASES = ["good deal", "large amount", "the whole thing", "point of view", "in any case", "at long last"]


def test_a_split_is_three_folders_of_shards(ray_cluster, tmp_path):
    rows = [
        (f"{one} {chr(97 + row)}", f"{other} {chr(97 + row)}")
        for row in range(20)
        for one in PHRASES
        for other in PHRASES
    ]
    (tmp_path / "ppdb").write_text("".join(f"[NP] ||| {one} ||| {other} ||| x=1 ||| 0-0\n" for one, other in rows))
    words = sorted({word for pair in rows for text in pair for word in text.split()} - {"long"})
    (tmp_path / "words").write_text("\n".join(words))
    settings = ShardSettings(training_set="pgru2017")
    files = {"words": tmp_path / "words"}
    whole, _ = shard_pairs([tmp_path / "ppdb"], tmp_path / "out", settings, **files)
    # 20 × 6 equal ones; of the other 20 × 30, 20 × 10 have the unknown word; half of the rest are swaps.
    assert whole["counts"] == {
        "read": 720, "kept": 200, "refused": 320, "duplicates": 200,
        "reasons": {"equal texts": 120, "out of vocabulary": 200},
    }  # fmt: skip
    assert set(whole["subsets"]) == {"train", "dev", "test"}
    seen = set()
    for name, size in whole["subsets"].items():
        manifest = read_pair_manifest(tmp_path / "out" / name)
        assert manifest["counts"]["kept"] == size
        assert manifest["counts"]["reasons"]["in another part of the split"] == 200 - size
        pairs = [
            frozenset((row["first"], row["second"]))
            for shard in manifest["shards"]
            for row in pq.read_table(tmp_path / "out" / name / shard["name"]).to_pylist()
        ]
        assert len(set(pairs)) == len(pairs) == size
        assert seen.isdisjoint(pairs)
        seen.update(pairs)
        assert manifest["coverage"]["tokens"]["without_vector"] == 0
    with pytest.raises(ValueError, match="has the format 'paraembed-pair-subsets-1'"):
        read_pair_manifest(tmp_path / "out")
    assert shard_pairs([tmp_path / "ppdb"], tmp_path / "out", settings, **files)[1]
    shard_pairs([tmp_path / "ppdb"], tmp_path / "one", ShardSettings(training_set="pgru2017", split="dev"), **files)
    assert contents(tmp_path / "one")[SHARD] == contents(tmp_path / "out" / "dev")[SHARD]


SHARD = "pairs-00000-of-00001.parquet"


def test_labels_decide_rows_and_are_settings_of_inputs_that_have_them(tmp_path):
    for name, header in (("p.tsv", "text1\ttext2\tlabel"), ("q.tsv", "text1\ttext2\tid")):
        (tmp_path / name).write_text(f"{header}\na\tb\t1\nc\td\t0\ne\tf\t1\n")
    manifest, _ = shard_pairs([tmp_path / "p.tsv"], tmp_path / "p", ShardSettings(), engine="local")
    assert manifest["settings"]["keep_labels"] == "default"
    assert manifest["counts"]["reasons"] == {"label 0": 1}
    assert manifest["sources"]["p.tsv"]["labels"] == {"1": 2}
    zeros = ShardSettings(keep_labels=("0",))
    with pytest.raises(ValueError, match=r"another settings\.keep_labels"):
        shard_pairs([tmp_path / "p.tsv"], tmp_path / "p", zeros, engine="local")
    manifest, _ = shard_pairs([tmp_path / "q.tsv"], tmp_path / "q", ShardSettings(), engine="local")
    assert (manifest["counts"]["kept"], "keep_labels" in manifest["settings"]) == (3, False)
    with pytest.raises(ValueError, match="have no labels"):
        shard_pairs([tmp_path / "q.tsv"], tmp_path / "out", zeros, engine="local")


@pytest.mark.parametrize("nested", ["none", "ordered"])
def test_a_selection_without_a_pair_is_an_error(inputs, sharded, tmp_path, nested):
    settings = replace(SETTINGS, leave_out=(str(sharded[0]),), nested_subsets=nested)
    with pytest.raises(RunFailedError, match=r"none of 120 pairs \(120 left"):
        shard_pairs(inputs, tmp_path / "out", settings, engine="local")
    assert not [*tmp_path.glob("*out*")]


@pytest.mark.parametrize("nested", ["none", "ordered"])
@pytest.mark.parametrize(
    "line", ["a {0}\tb {0}\t1\n", "[X] ||| a {0} ||| b {0} ||| PPDB2.0Score=1 ||| 0-0 ||| Exclusion\n"]
)
def test_an_output_of_0_1_with_labels_is_another_one(tmp_path, line, nested):
    head = "text1\ttext2\tlabel\n" if "\t" in line else ""
    (tmp_path / "p").write_text(head + "".join(map(line.format, string.ascii_lowercase)))
    labels = () if head else ("Exclusion",)
    settings, out = ShardSettings(nested_subsets=nested, keep_labels=labels), tmp_path / "out"
    shard_pairs([tmp_path / "p"], out, settings, engine="local")
    for manifest in out.rglob("manifest.json"):  # version 0.1 had no such setting
        values = json.loads(manifest.read_text())
        del values["settings"]["keep_labels"]
        manifest.write_text(json.dumps(values))
        success = manifest.with_name("_SUCCESS")
        success.write_text(json.dumps({"manifest_sha256": sha256_of(manifest)}))
    with pytest.raises(ValueError, match=r"settings\.keep_labels \(was not set"):
        shard_pairs([tmp_path / "p"], out, replace(settings, keep_labels=()), engine="local")


def test_a_killed_worker_changes_nothing(ray_cluster, tmp_path):
    inputs = []
    for number in range(4):
        inputs.append(tmp_path / f"{number}.tsv")
        inputs[-1].write_text("".join(f"{number} {row} a b c\t{number} {row % 4000} x\n" for row in range(60_000)))
    shard_pairs(inputs, tmp_path / "unbroken", SETTINGS_LARGE)
    killed = []

    def kill():
        while not killed:
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):
                    if any(file.path.startswith(str(tmp_path / ".out.partial")) for file in process.open_files()):
                        process.kill()
                        killed.append(process.pid)
                        return
            time.sleep(0.002)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        shard_pairs(inputs, tmp_path / "out", SETTINGS_LARGE)
    finally:
        done, _ = bool(killed), killed.append(0)
        killer.join()
    assert done
    assert contents(tmp_path / "out") == contents(tmp_path / "unbroken")


def test_a_cut_file_ends_the_job_and_names_the_last_line(ray_cluster, tmp_path):
    lines = "".join(f"[NP] ||| one {row} ||| uno {row} ||| x={row * 7919 % 1000} ||| 0-0\n" for row in range(90_000))
    whole = gzip.compress(lines.encode())
    (tmp_path / "cut.gz").write_bytes(whole[: len(whole) - 9])
    with pytest.raises(ValueError, match=r"cut\.gz is not .*last complete line: \d+"):
        shard_pairs([tmp_path / "cut.gz"], tmp_path / "out", SETTINGS_LARGE)
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / ".out.partial").exists()


@pytest.mark.parametrize("size", ["16k", pytest.param("512k", marks=pytest.mark.slow)])
def test_a_full_disk_is_one_sentence_and_the_same_command_resumes(ray_cluster, tmp_path, disk, size):
    """Full while a part is parsed, and later."""
    pairs = tmp_path / "pairs.tsv"
    draw = random.Random(0)
    texts = [f"{draw.getrandbits(256):x} {number}" for number in range(4000)]
    pairs.write_text("".join(f"one {text}\tuno {text}\n" for text in texts))
    out = disk(f"size={size}") / "out"
    with pytest.raises(Exception, match="No space left") as caught:
        shard_pairs([pairs], out, SETTINGS_LARGE)
    cause = user_error(caught.value)
    assert cause.errno == errno.ENOSPC
    assert message_of(cause).startswith(f"no space left on the disk for {tmp_path}")
    assert not out.exists()
    disk("size=64m")
    assert shard_pairs([pairs], out, SETTINGS_LARGE)[0]["counts"]["kept"] == 4000


def test_what_was_read_as_what_is_shown(ray_cluster, tmp_path, capsys):
    for number in range(3):
        (tmp_path / f"{number}.tsv").write_text(f"target\tsource\nx{number}\ty\na\tb\nc\td\ne\tf\n")
    (tmp_path / "p.csv").write_text("id,score,body\n1,2,a b\n2,3,c d\n")
    files = [tmp_path / f"{number}.tsv" for number in range(3)]
    with pytest.raises(ValueError, match=r"p\.csv .* id, score, body;.* `columns`"):
        shard_pairs([*files, tmp_path / "p.csv"], tmp_path / "out", SETTINGS)
    shard_pairs(files, tmp_path / "out", SETTINGS)
    said = capsys.readouterr().err
    assert said.count("0.tsv and 2 more, tsv: first is 'source', second is 'target'") == 0
    assert said.count("0.tsv and 2 more, tsv: second is 'target', first is 'source'") == 1
    assert said.count('  "y" | "x0"\n  "b" | "a"\n  "d" | "c"\n') == 1
    assert said.count(" | ") == 3
    shard_pairs(files, tmp_path / "other", SETTINGS, rejected_sample=False)
    said = capsys.readouterr().err
    assert said.count("second is 'target'") == 1
    assert " | " not in said


def test_columns_that_were_asked_for(ray_cluster, inputs, tmp_path):
    settings = ShardSettings(features=("PPDB2.0Score", "AGigaSim"), alignment=True)
    manifest, _ = shard_pairs(inputs, tmp_path / "out", settings)
    table = pq.read_table(tmp_path / "out" / manifest["shards"][0]["name"])
    assert table.column_names == [*PAIRS.names, "PPDB2.0Score", "AGigaSim", "alignment"]
    assert table.slice(59, 2).select([2, 8, 9, 10]).to_pylist() == [
        {"score": None, "PPDB2.0Score": None, "AGigaSim": None, "alignment": None},
        {"score": 60.0, "PPDB2.0Score": 60.0, "AGigaSim": None, "alignment": "0-0"},
    ]
