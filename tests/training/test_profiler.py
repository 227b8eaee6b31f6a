import gzip
import json
from dataclasses import replace

from paraembed.recipe import Recipe
from paraembed.training.loop import SKIPPED_STEPS, TRACED_STEPS, train

RECIPE = Recipe(batch_size=10, epochs=1)


def test_some_steps_are_traced(
    make_encoder,
    pairs,
    tmp_path,
    caplog,
):
    train(make_encoder(RECIPE), pairs, RECIPE, trace=tmp_path / "trace.json.gz")
    events = json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))["traceEvents"]
    names = {event.get("name") for event in events}
    assert {name for name in names if str(name).startswith("ProfilerStep")} == {
        f"ProfilerStep#{SKIPPED_STEPS + number}" for number in range(TRACED_STEPS)
    }
    assert any("paraembed/training/step.py" in str(name) for name in names)
    whole = replace(RECIPE, batch_size=500)
    train(make_encoder(whole), pairs, whole, trace=tmp_path / "none.json.gz")
    assert "no trace was written: it starts after 20 steps" in caplog.text
    assert not (tmp_path / "none.json.gz").exists()
