"""Which nodes of a cluster there are, and which have worked: for ``two_namespaces.sh``."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from ray.util.state import list_actors, list_nodes, list_tasks
from ray.util.state.exception import RayStateApiException

WAIT_S = 90.0
OF_THE_JOB_ITSELF = "JobSupervisor"  # Ray's actor that runs the command, always on the head


def alive(address: str) -> dict[str, str]:
    """Node id -> IP address of the nodes that live."""
    return {node.node_id: node.node_ip for node in list_nodes(address=address) if node.state == "ALIVE"}


def wait_for(address: str, count: int) -> None:
    """Until there are so many nodes."""
    deadline = time.monotonic() + WAIT_S
    found: dict[str, str] = {}
    while time.monotonic() < deadline:
        try:
            found = alive(address)
        except (OSError, RayStateApiException, RuntimeError):  # not up yet
            found = {}
        if len(found) >= count:
            return
        time.sleep(0.5)
    sys.exit(f"{len(found)} of {count} nodes after {WAIT_S:g} s")


def worked(address: str) -> Counter[str]:
    """IP address -> actors and tasks of jobs that ran there."""
    nodes = {node.node_id: node.node_ip for node in list_nodes(address=address)}
    found: Counter[str] = Counter()
    for actor in list_actors(address=address, limit=10_000):
        if actor.class_name != OF_THE_JOB_ITSELF and actor.node_id:
            found[nodes[actor.node_id]] += 1
            print(f"{nodes[actor.node_id]}: actor {actor.class_name}")
    for task in list_tasks(address=address, limit=10_000, filters=[("type", "=", "NORMAL_TASK")]):
        if task.node_id and task.state == "FINISHED":
            found[nodes[task.node_id]] += 1
    return found


def main() -> None:
    """Exit with 1 if it is not as wanted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address", help="of the dashboard")
    parser.add_argument("--wait", type=int, metavar="N", help="until there are N nodes")
    parser.add_argument("--worked", nargs="+", metavar="IP", help="that these have worked")
    given = parser.parse_args()
    if given.wait:
        wait_for(given.address, given.wait)
    if given.worked:
        found = worked(given.address)
        for address in given.worked:
            print(f"{address}: {found[address]} actors and tasks")
        idle = [address for address in given.worked if not found[address]]
        if idle:
            sys.exit(f"nothing ran on {', '.join(idle)}")


if __name__ == "__main__":
    main()
