"""A made-up site: the commands of Slurm, Kubernetes and NVIDIA that docs/operators.md calls, and its files."""

from __future__ import annotations

import json
import random
import stat
import sys
from datetime import datetime, timedelta
from pathlib import Path

from tests.cluster.slurm import matrix

JOBS = 1_200
START = datetime(2025, 1, 1)
TOPOLOGY = """\
# leaf switches
SwitchName=leaf0 Nodes=dgx[01-04] LinkSpeed=400
SwitchName=leaf1 Nodes=dgx[05-08],login01 LinkSpeed=400
SwitchName=spine Switches=leaf[0-1]
"""
SLURM = """\
ClusterName=site
SlurmctldHost=head
NodeName=DEFAULT Sockets=2 CoresPerSocket=64 State=UNKNOWN
NodeName=login01 CPUs=16
NodeName=dgx[01-08] RealMemory=2000000 Gres=gpu:a100:8(S:0-1)
PartitionName=gpu Nodes=dgx[01-08] Default=YES MaxTime=7-00:00:00
"""
SQUEUE = """\
4150|bob|nlp|2025-04-01T09:40:00|7-00:00:00|cpu=4,gres/gpu:a100=32,gres/gpu=32,node=4|
4160|cat|nlp|2025-04-01T09:45:00|2:30:00|cpu=4,mem=1G,node=1|
4170_1|ann|vision|2025-04-01T09:50:00|30:00|cpu=4,gres/gpu=2,node=1|
4171|ann|vision|2025-04-01T09:51:00|UNLIMITED|cpu=4,gres/gpu=2,node=1|
4172|ann|vision|2025-04-01T09:52:00|1-02:03:04|cpu=4,gres/gpu=40,node=5|
"""
# Prints the columns that --format asks for, as sacct does; an unknown one is an error.
SACCT = """\
import json, sys
options = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
assert {"--allusers", "--allocations", "--parsable2", "--starttime"} <= set(sys.argv)
names = options["--format"].split(",")
print("|".join(names))
for job in json.load(open(__file__ + ".json")):
    print("|".join(job[name] for name in names))
"""


def clock(seconds: int) -> str:
    """As Slurm writes it."""
    days, rest = divmod(seconds, 86_400)
    text = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{text}" if days else text


def accounting(jobs: int = JOBS) -> list[dict[str, str]]:
    """Jobs of three months, with what accounting is full of: failures, cancellations, CPU jobs, running ones."""
    draw = random.Random(7)
    submit, rows = START, []
    for number in range(jobs):
        submit += timedelta(seconds=draw.randint(1, 2 * 90 * 86_400 // jobs))
        gpus = draw.choice([0, 1, 1, 1, 2, 2, 4, 4, 8, 8, 16])
        took = int(draw.lognormvariate(10, 1.2))
        start = submit + timedelta(seconds=draw.randint(1, 7200))
        state = draw.choice(["COMPLETED"] * 6 + ["FAILED", "TIMEOUT", "CANCELLED by 1001", "PENDING"])
        waits = state == "PENDING"
        nodes = -(-gpus // 8) or 1
        asked = f"cpu=8,gres/gpu={gpus},mem=64G,node={nodes}" if gpus else "cpu=8,mem=64G,node=1"
        got = f"billing=8,gres/gpu:a100={gpus},{asked}" if gpus else f"billing=8,{asked}"
        rows.append(
            {
                "JobID": f"{1000 + number}" if draw.random() < 0.8 else f"900_{number}",
                "User": draw.choice(["ann", "bob", "cat", "dan"]),
                "Account": draw.choice(["nlp", "vision"]),
                "State": state,
                "Submit": submit.isoformat(),
                "Eligible": submit.isoformat(),
                "Start": "Unknown" if waits else start.isoformat(),
                "End": "Unknown" if waits else (start + timedelta(seconds=took)).isoformat(),
                "ElapsedRaw": "0" if waits else str(took),
                "Timelimit": clock(took * draw.randint(1, 4) + 60),
                "NNodes": str(nodes),
                "ReqTRES": asked,
                "AllocTRES": "" if waits else got,
            }
        )
    return rows


def _stamp(minutes: int) -> str:
    return (START + timedelta(minutes=minutes)).isoformat() + "Z"


def kubernetes_jobs() -> dict:
    """Three jobs: one complete, one failed, one that still runs, and one without GPUs."""

    def job(uid: str, created: int, pods: int, limits: dict, status: dict) -> dict:
        container = {"name": "main", "resources": {"limits": limits} if limits else {}}
        return {
            "metadata": {"uid": uid, "namespace": "team-a", "creationTimestamp": _stamp(created)},
            "spec": {"parallelism": pods, "template": {"spec": {"containers": [container]}}},
            "status": status,
        }

    gpus = {"nvidia.com/gpu": "8"}
    failed = [{"type": "Failed", "lastTransitionTime": _stamp(50)}]
    return {
        "items": [
            job("a-1", 0, 2, gpus, {"startTime": _stamp(5), "completionTime": _stamp(65)}),
            job("a-2", 10, 1, {"nvidia.com/gpu": "1"}, {"startTime": _stamp(20), "conditions": failed}),
            job("a-3", 20, 1, gpus, {"startTime": _stamp(30)}),
            job("a-4", 25, 1, {}, {"startTime": _stamp(30), "completionTime": _stamp(31)}),
        ]
    }


def kubernetes_pods() -> dict:
    """A gang of two pods, a pod of its own, and a gang of which one pod still runs."""

    def pod(uid: str, owner: str | None, created: int, started: int, ended: int | None) -> dict:
        finished = {"state": {"terminated": {"finishedAt": _stamp(ended)}} if ended is not None else {"running": {}}}
        owners = {"ownerReferences": [{"uid": owner}]} if owner is not None else {}
        return {
            "metadata": {"uid": uid, "namespace": "team-a", "creationTimestamp": _stamp(created), **owners},
            "spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "4"}}}, {"resources": {}}]},
            "status": {
                "phase": "Running" if ended is None else "Succeeded",
                "startTime": _stamp(started),
                "containerStatuses": [finished],
            },
        }

    gang = [pod("p-1", "b-1", 0, 4, 60), pod("p-2", "b-1", 1, 7, 61)]
    running = [pod("p-4", "b-2", 30, 31, 40), pod("p-5", "b-2", 30, 31, None)]
    return {"items": [*gang, pod("p-3", None, 9, 10, 20), *running]}


def build(folder: Path) -> Path:
    """Write the site's files into a folder and its commands into ``bin`` below it, which is returned."""
    commands = folder / "bin"
    commands.mkdir()
    (folder / "topology.conf").write_text(TOPOLOGY)
    (folder / "slurm.conf").write_text(SLURM)
    (commands / "sacct.py").write_text(SACCT)
    (commands / "sacct.py.json").write_text(json.dumps(accounting()))
    (commands / "squeue.txt").write_text(SQUEUE)
    (commands / "jobs.json").write_text(json.dumps(kubernetes_jobs()))
    (commands / "pods.json").write_text(json.dumps(kubernetes_pods()))
    (commands / "topo.txt").write_text(matrix(8, lambda a, b: "NV12", nics=2))
    scripts = {
        "sacct": f'exec {sys.executable} "{commands}/sacct.py" "$@"',
        "squeue": f'cat "{commands}/squeue.txt"',
        "kubectl": f'cat "{commands}/$2.json"',
        "nvidia-smi": f'[ "$*" = "topo -m" ] && cat "{commands}/topo.txt"',
    }
    for name, line in scripts.items():
        script = commands / name
        script.write_text(f"#!/bin/sh\n{line}\n")
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return commands
