"""Run tasks on three local Ray nodes, one of which is lost meanwhile, for test_embed_kills.py: ``lost_tasks.py
kill|vanish``. Prints the seconds from the loss to the last result.
"""

import sys
import time
from contextlib import suppress

import numpy as np
import psutil
import ray
from ray.cluster_utils import Cluster

from paraembed.cluster.session import run_tasks
from tests.cluster.three_nodes import NODE, add, vanish

TASKS, BEFORE = 40, 8


def work(number):
    time.sleep(1.5)
    return number, np.full(200_000, number)  # too large for a reply: the result is on the node


def main(how):
    cluster = Cluster(initialize_head=True, head_node_args={**NODE, "num_cpus": 1, "node_ip_address": "127.0.0.2"})
    nodes = [add(cluster, number) for number in (3, 4)]
    ray.init(address=cluster.address, _node_ip_address="127.0.0.2", log_to_driver=False)
    results, vanished, lost = [], [], 0.0
    for number, values in run_tasks(work, range(TASKS), 5):
        assert (values == number).all()
        results.append(number)
        if len(results) == BEFORE:
            lost = time.monotonic()
            if how == "kill":
                cluster.remove_node(nodes[0], allow_graceful=False)
            else:
                vanished = vanish(nodes[0])
    assert sorted(results) == list(range(TASKS))
    sys.stdout.write(f"{time.monotonic() - lost:.0f}\n")
    for process in vanished:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
