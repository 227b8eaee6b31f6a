"""Embed on three local Ray nodes of which some are lost, for test_embed_kills.py: ``three_nodes.py ENCODER CORPUS OUT
LOSSES PART_ROWS kill|vanish``.

Embeds to OUT/0, OUT/1, … until so many nodes were lost: a run may be done before the next loss. ``kill``: SIGKILL of
the raylet, so that connections are refused; ``vanish``: SIGSTOP of the raylet and its workers, so that nothing answers.
"""

import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil
import ray
from ray.cluster_utils import Cluster

from paraembed.cluster.embed import embed
from paraembed.embedding.settings import Settings

NODE = {"num_cpus": 2, "object_store_memory": 100 << 20, "include_dashboard": False}


def main(encoder, corpus, out, losses, part_rows, how):
    cluster = Cluster(initialize_head=True, head_node_args={**NODE, "num_cpus": 1, "node_ip_address": "127.0.0.2"})
    nodes = [add(cluster, number) for number in (3, 4)]
    ray.init(address=cluster.address, _node_ip_address="127.0.0.2", log_to_driver=False)
    draw, lost, runs, vanished = random.Random(0), 0, 0, []
    with ThreadPoolExecutor(1) as other:  # a node can be added by the main thread alone
        while lost < losses or runs == 0:
            place = out / str(runs)
            runs += 1
            done = other.submit(embed, encoder, [corpus], place, Settings(part_rows=part_rows), workers=4)
            while lost < losses and wait_for_parts(place, draw.randrange(1, 8), done):
                node = nodes.pop(draw.randrange(2))
                if how == "kill":
                    cluster.remove_node(node, allow_graceful=False)
                else:
                    vanished += vanish(node)
                lost += 1
                if how == "kill":
                    nodes.append(add(cluster, 4 + lost))
            done.result()
    for process in vanished:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    ray.shutdown()
    cluster.shutdown()


def wait_for_parts(out, count, done):
    """Wait until there are so many more parts; false if the run is done before."""
    wanted = len(list(out.glob("data/part-*.parquet"))) + count
    while len(list(out.glob("data/part-*.parquet"))) < wanted:
        if done.done():
            return False
        time.sleep(0.002)
    return not done.done()


def vanish(node):
    """Stop a node's processes; they are returned."""
    raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
    processes = [*raylet.children(recursive=True), raylet]
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.suspend()
    return processes


def add(cluster, number):
    return cluster.add_node(node_ip_address=f"127.0.0.{number}", **NODE)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]), *map(int, sys.argv[4:6]), sys.argv[6])
