"""infra/README.md and what it tells of: the table of sizes, the tests it names, the dashboard's numbers."""

import json
import re
import time
import urllib.request
from pathlib import Path

import psutil
import pytest
import ray

from infra import sizing
from paraembed.cluster import metrics

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "infra" / "README.md").read_text()
BOARD = json.loads((ROOT / "infra" / "grafana" / "dashboard.json").read_text())
EXPORTED = {f"ray_{name}_total" for name in metrics.COUNTED} | {f"ray_{name}" for name in metrics.MEASURED}


def test_the_table_of_sizes_is_that_of_the_measurement():
    table = sizing.table(sizing.read_measured(ROOT / "infra" / "measured.json"))
    assert sizing.with_table(GUIDE, table) == GUIDE, "run: python infra/sizing.py"


def test_sizes_follow_from_the_rate():
    table = sizing.table(sizing.Measured(100_000, 2**30, 10, 300, 2))
    row = next(line for line in table.splitlines() if line.startswith("| 10¹⁰"))
    # 10^10 / 10^5 / 3600 = 27.8 core hours, 3.47 on 8 cores; 10^10 x (4 x 300 + 16) bytes = 12.16 TB.
    # 10^10 x (0.21 + 0.14 + 2.5) microseconds = 7.9 core hours of tasks.
    assert row == "| 10¹⁰ | 27.8 | 7.9 | 3.47 | 1 | 4 | 12.16 TB | 6.16 TB |"


def test_the_files_that_the_guide_names_are_there():
    named = set(re.findall(r"`((?:kuberay|ray-cluster|slurm|mlflow|grafana)[\w./-]*)`", GUIDE))
    named |= set(re.findall(r"\binfra/((?:\w[\w-]*/)*[\w.-]+)", GUIDE))
    assert len(named) > 8
    assert not {name for name in named if not (ROOT / "infra" / name).exists()}


def test_the_dashboard_shows_what_is_exported():
    shown = {name for panel in BOARD["panels"] for one in panel["targets"] for name in names_in(one["expr"])}
    assert {name for name in shown if "paraembed" in name} == EXPORTED
    reporter = Path(ray.__file__).parent / "dashboard" / "modules" / "reporter" / "reporter_agent.py"
    ours = {name.removeprefix("ray_") for name in shown - EXPORTED}
    assert not {name for name in ours if f'"{name}"' not in reporter.read_text()}, "not a number of this Ray"
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
    assert set(re.findall(r"ray_paraembed_\w+", GUIDE)) == EXPORTED


def names_in(expression):
    """The metrics of a PromQL expression."""
    return re.findall(r"\bray_\w+", expression)


@pytest.mark.ray
def test_what_a_job_tells_can_be_scraped(ray_cluster):
    metrics.embedded(1000)
    metrics.embedded(0)
    metrics.part_failed()
    metrics.trained(0.25, 5000.0)
    (node,) = (one for one in ray.nodes() if one["Alive"])
    address = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    listening = {
        connection.laddr.ip
        for process in psutil.process_iter()
        for connection in connections(process)
        if connection.laddr.port == node["MetricsExportPort"] and connection.status == psutil.CONN_LISTEN
    }
    assert listening <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}
    found = {}
    for _ in range(120):  # the agent collects every few seconds
        with urllib.request.urlopen(address, timeout=10) as page:
            lines = re.findall(r"^(ray_paraembed_\w+)\{[^}]*\} (\S+)$", page.read().decode(), re.MULTILINE)
        found = {name: float(value) for name, value in lines}
        if found.keys() >= EXPORTED:
            break
        time.sleep(0.5)
    assert found["ray_paraembed_rows_total"] >= 1000
    assert found["ray_paraembed_parts_total"] >= 2
    assert found["ray_paraembed_parts_failed_total"] >= 1
    assert found.keys() >= EXPORTED


def connections(process):
    try:
        return list(process.net_connections("inet"))
    except psutil.Error:
        return []
