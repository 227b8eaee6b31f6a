"""Three local Ray nodes of which some are lost, for test_embed_kills.py. ``lost_nodes.py tasks kill|vanish`` runs tasks
while one is lost, and prints the seconds from the loss to the last result. ``lost_nodes.py embed kill|vanish ENCODER
CORPUS OUT LOSSES PART_ROWS`` embeds to OUT/0, OUT/1, … until so many were lost: a run may be done before the next loss.

``kill``: SIGKILL of the raylet, so that connections are refused; ``vanish``: SIGSTOP of the raylet and its workers, so
that nothing answers.
"""

import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path

import numpy as np
import psutil
import ray
from ray.cluster_utils import Cluster

from paraembed.cluster.embed import embed
from paraembed.cluster.session import run_tasks
from paraembed.embedding.settings import Settings

NODE = {"num_cpus": 2, "object_store_memory": 100 << 20, "include_dashboard": False}
TASKS, BEFORE = 40, 8


def add(cluster, number):
    return cluster.add_node(node_ip_address=f"127.0.0.{number}", **NODE)


def vanish(node):
    """Stop a node's processes; they are returned."""
    raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
    processes = [*raylet.children(recursive=True), raylet]
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.suspend()
    return processes


def work(number):
    time.sleep(1.5)
    return number, np.full(200_000, number)  # too large for a reply: the result is on the node


def run_while_one_is_lost(lose):
    results, lost = [], 0.0
    for number, values in run_tasks(work, range(TASKS), 5):
        assert (values == number).all()
        results.append(number)
        if len(results) == BEFORE:
            lost = time.monotonic()
            lose(0)
    assert sorted(results) == list(range(TASKS))
    sys.stdout.write(f"{time.monotonic() - lost:.0f}\n")


def embed_while_some_are_lost(lose, encoder, corpus, out, losses, part_rows):
    draw, lost, runs = random.Random(0), 0, 0
    with ThreadPoolExecutor(1) as other:  # a node can be added by the main thread alone
        while lost < int(losses) or runs == 0:
            place = Path(out, str(runs))
            runs += 1
            done = other.submit(embed, encoder, [corpus], place, Settings(part_rows=int(part_rows)), workers=4)
            while lost < int(losses) and wait_for_parts(place, draw.randrange(1, 8), done):
                lose(draw.randrange(2))
                lost += 1
            done.result()


def wait_for_parts(out, count, done):
    """Wait until there are so many more parts; false if the run is done before."""
    wanted = len(list(out.glob("data/part-*.parquet"))) + count
    while len(list(out.glob("data/part-*.parquet"))) < wanted:
        if done.done():
            return False
        time.sleep(0.002)
    return not done.done()


def main(what, how, *arguments):
    cluster = Cluster(initialize_head=True, head_node_args={**NODE, "num_cpus": 1, "node_ip_address": "127.0.0.2"})
    nodes, vanished = [add(cluster, number) for number in (3, 4)], []
    numbers = count(5)
    ray.init(address=cluster.address, _node_ip_address="127.0.0.2", log_to_driver=False)

    def lose(which):
        node = nodes.pop(which)
        if how == "vanish":
            vanished.extend(vanish(node))
            return
        cluster.remove_node(node, allow_graceful=False)
        if what == "embed":
            nodes.append(add(cluster, next(numbers)))

    (embed_while_some_are_lost if what == "embed" else run_while_one_is_lost)(lose, *arguments)
    for process in vanished:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
