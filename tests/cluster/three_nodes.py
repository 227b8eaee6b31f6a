"""Embed on three local Ray nodes and kill some, for test_embed_kills.py: ``three_nodes.py ENCODER CORPUS OUT KILLS``.

Embeds to OUT/0, OUT/1, … until so many raylets were killed: a run may be done before the next kill.
"""

import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ray
from ray.cluster_utils import Cluster

from paraembed.cluster.embed import embed
from paraembed.embedding.settings import Settings

NODE = {"num_cpus": 2, "object_store_memory": 100 << 20, "include_dashboard": False}


def main(encoder, corpus, out, kills):
    cluster = Cluster(initialize_head=True, head_node_args={**NODE, "num_cpus": 1, "node_ip_address": "127.0.0.2"})
    nodes = [add(cluster, number) for number in (3, 4)]
    ray.init(address=cluster.address, _node_ip_address="127.0.0.2", log_to_driver=False)
    draw, killed, runs = random.Random(0), 0, 0
    with ThreadPoolExecutor(1) as other:  # a node can be added by the main thread alone
        while killed < kills or runs == 0:
            place = out / str(runs)
            runs += 1
            done = other.submit(embed, encoder, [corpus], place, Settings(part_rows=100), workers=4)
            while killed < kills and wait_for_parts(place, draw.randrange(1, 8), done):
                cluster.remove_node(nodes.pop(draw.randrange(2)), allow_graceful=False)  # SIGKILL
                killed += 1
                nodes.append(add(cluster, 4 + killed))
            done.result()
    ray.shutdown()
    cluster.shutdown()


def wait_for_parts(out, count, done):
    """Wait until there are so many more parts; false if the run is done before."""
    wanted = len(list(out.glob("part-*.parquet"))) + count
    while len(list(out.glob("part-*.parquet"))) < wanted:
        if done.done():
            return False
        time.sleep(0.002)
    return not done.done()


def add(cluster, number):
    return cluster.add_node(node_ip_address=f"127.0.0.{number}", **NODE)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
