"""The benchmark of the driver, on a small store: every phase is measured, and its requests are counted."""

import pytest
from pyarrow.fs import FileSelector

from infra.bench import scale
from infra.bench.command import parse
from infra.bench.loopback import Generated, serving
from paraembed.io.places import resolve


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
