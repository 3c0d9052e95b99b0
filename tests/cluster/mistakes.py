"""Broken cluster files: one a line, since a table is easier to read than to wrap."""
# ruff: noqa: E501

from __future__ import annotations

HEAD = """\
levels: [gpu, node, rack]
links:
  gpu: {bandwidth_GBps: 100, latency_us: 3}
  node: {bandwidth_GBps: 10, latency_us: 5}
  rack: {oversubscription: 2, latency_us: 7}
tree:
"""
FIRST = HEAD.count("\n") + 1  # line of the first group

ROOT = "levels: [gpu, node]\n"
# what is wrong: (text, line the message names, part of the message)
MISTAKES: dict[str, tuple[str, int | None, str]] = {
    "unknown top key": ("levles: [gpu]\ntree: [{gpu: 1}]\n", 1, "did you mean 'levels'"),
    "no tree": ("levels: [gpu]\n", 1, "no 'tree'"),
    "no levels": ("\n\ntree: [{gpu: 1}]\n", 3, "no 'levels'"),
    "levels no list": ("levels: gpu\ntree: [{gpu: 1}]\n", 1, "expected a list of level names"),
    "levels empty": ("levels: []\ntree: [{gpu: 1}]\n", 1, "'levels' is an empty list"),
    "levels from the root": ("levels:\n  - rack\n  - node\n  - gpu\ntree: [{gpu: 1}]\n", 2, "start with gpu"),
    "level twice": ("levels:\n- gpu\n- node\n- node\ntree: [{gpu: 1}]\n", 4, "appears twice"),
    "level named as a key": ("levels:\n- gpu\n- name\ntree: [{gpu: 1}]\n", 3, "cannot name a level"),
    "level ends in a digit": ("levels:\n- gpu\n- l1\ntree: [{gpu: 1}]\n", 3, "name of a level"),
    "level unused": (ROOT + "tree: [{gpu: 3}]\n", 1, "nothing in the tree is of level 'node'"),
    "too many levels": (f"levels: [gpu, {', '.join('abcdefghijklmnopqr')}]\ntree: []\n", 1, "at most 16"),
    "tree empty": (ROOT + "tree: []\n", 2, "'tree' is an empty list"),
    "tree a mapping": (ROOT + "tree: {node: 3}\n", 2, "'tree' is a mapping"),
    "group no mapping": (ROOT + "tree:\n  - 7\n", 3, "entry 1 of 'tree' is '7'"),
    "group without level": (ROOT + "tree:\n  - {gpus: 7}\n", 3, "exactly one of gpu, node"),
    "group of two levels": (ROOT + "tree:\n  - node: 7\n    gpu: 2\n", 3, "'gpu' and 'node'"),
    "unknown group key": (ROOT + "tree:\n  - node: 7\n    gpu_count: 2\n", 4, "unknown key 'gpu_count'"),
    "no count": (ROOT + "tree:\n  - node:\n    gpus: 2\n", 3, "'node' is nothing"),
    "zero nodes": (ROOT + "tree:\n  - gpus: 2\n    node: 0\n", 4, "'node' is '0'"),
    "zero gpus": (ROOT + "tree:\n  - node: 7\n    gpus: 0\n", 4, "a whole number of at least 1"),
    "half a gpu": (ROOT + "tree:\n  - node: 7\n    gpus: 0.5\n", 4, "a whole number of at least 1"),
    "a true gpu": (ROOT + "tree:\n  - node: 7\n    gpus: yes\n", 4, "a whole number of at least 1"),
    "gpus in a list": (ROOT + "tree:\n  - node: 7\n    gpus: [2]\n", 4, "'gpus' is a list"),
    "nothing inside": (ROOT + "tree:\n  - node: 7\n", 3, "neither gpus nor children"),
    "both inside": (ROOT + "tree:\n  - node: 7\n    gpus: 1\n    children: [{gpu: 1}]\n", 3, "both gpus and children"),
    "children empty": (ROOT + "tree:\n  - node: 7\n    children: []\n", 4, "a list of at least one group"),
    "key twice": (ROOT + "tree:\n  - node: 7\n    gpus: 1\n    gpus: 2\n", 5, "appears twice"),
    "key a list": (ROOT + "tree:\n  - [node]: 7\n", 3, "a key is a list"),
    "rack in node": (HEAD + "  - node: 1\n    children:\n      - rack: 1\n        gpus: 2\n", FIRST + 2, "against the order gpu < node < rack"),
    "node in node": (HEAD + "  - node: 1\n    children:\n      - node: 1\n        gpus: 2\n", FIRST + 2, "against the order"),
    "gpu in gpu": (ROOT + "tree:\n  - gpu: 1\n    gpus: 2\n", 4, "GPUs have no 'gpus'"),
    "named gpu": (ROOT + "tree:\n  - gpu: 1\n    name: x\n", 4, "GPUs have no 'name'"),
    "per without room": (ROOT + "tree:\n  - node: 4\n    gpus: 2\n    per: {rack: 2}\n", 5, "no level to group by"),
    "per unknown": (HEAD + "  - node: 4\n    gpus: 2\n    per:\n      row: 2\n", FIRST + 3, "unknown key 'row'"),
    "per zero": (HEAD + "  - node: 4\n    gpus: 2\n    per:\n      rack: 0\n", FIRST + 3, "'rack' is '0'"),
    "per empty": (HEAD + "  - node: 4\n    gpus: 2\n    per: {}\n", FIRST + 2, "a mapping such as {rack: 8}"),
    "links of unknown level": (HEAD + "  - rack: 1\n    links:\n      spine: {latency_us: 2}\n    gpus: 2\n", FIRST + 2, "unknown key 'spine'"),
    "links above": (HEAD + "  - rack: 1\n    children:\n      - node: 1\n        gpus: 2\n        links:\n          rack: {latency_us: 2}\n", FIRST + 5, "one of gpu, node"),
    "links say nothing": (HEAD + "  - rack: 1\n    links:\n      rack: {}\n    gpus: 2\n", FIRST + 2, "says nothing"),
    "links no mapping": (HEAD + "  - rack: 1\n    links:\n      rack: 5\n    gpus: 2\n", FIRST + 2, "'rack' is '5'"),
    "links lack a level": ("links:\n  gpu: {bandwidth_GBps: 1}\n" + ROOT + "tree: [{node: 1, gpus: 1}]\n", 2, "no link for level 'node'"),
    "link lacks capacity": ("links:\n  gpu: {bandwidth_GBps: 1}\n  node: {latency_us: 3}\n" + ROOT + "tree: [{node: 1, gpus: 1}]\n", 3, "no capacity"),
    "negative bandwidth": (HEAD.replace("bandwidth_GBps: 10,", "bandwidth_GBps: -10,") + "  - rack: 1\n    gpus: 2\n", 4, "a number above 0"),
    "zero bandwidth": (HEAD.replace("bandwidth_GBps: 10,", "bandwidth_GBps: 0,") + "  - rack: 1\n    gpus: 2\n", 4, "a number above 0"),
    "bandwidth nan": (HEAD.replace("bandwidth_GBps: 10,", "bandwidth_GBps: .nan,") + "  - rack: 1\n    gpus: 2\n", 4, "a number above 0"),
    "bandwidth text": (HEAD.replace("bandwidth_GBps: 10,", "bandwidth_GBps: fast,") + "  - rack: 1\n    gpus: 2\n", 4, "'fast'"),
    "bandwidth with a unit": (HEAD.replace("bandwidth_GBps: 10,", "bandwidth_GBps: 10 GB/s,") + "  - rack: 1\n    gpus: 2\n", 4, "'10 GB/s'"),
    "negative latency": (HEAD.replace("latency_us: 7", "latency_us: -1") + "  - rack: 1\n    gpus: 2\n", 5, "at least 0"),
    "latency unknown unit": (HEAD.replace("latency_us: 7", "latency_ms: 1") + "  - rack: 1\n    gpus: 2\n", 5, "did you mean 'latency_us'"),
    "zero oversubscription": (HEAD.replace("oversubscription: 2", "oversubscription: 0") + "  - rack: 1\n    gpus: 2\n", 5, "ratio above 0"),
    "both capacities": (HEAD.replace("oversubscription: 2", "oversubscription: 2, bandwidth_GBps: 1") + "  - rack: 1\n    gpus: 2\n", 5, "one of the two"),
    "oversubscribed gpu": (HEAD.replace("bandwidth_GBps: 100", "oversubscription: 2") + "  - rack: 1\n    gpus: 2\n", 3, "a GPU has no links below"),
    "ratio of unlimited": (HEAD.replace("bandwidth_GBps: 10,", "bandwidth_GBps: unlimited,") + "  - {rack: 1, children: [{node: 1, gpus: 2}]}\n", 5, "ratio of unlimited links"),
    "a second name": (HEAD + "  - {rack: 1, name: a, children: [{node: 1, gpus: 2}]}\n  - {rack: 1, name: a, children: [{node: 1, gpus: 2}]}\n", FIRST + 1, "a second vertex named 'a'"),
    "a name made of counts": (HEAD + "  - {rack: 3, children: [{node: 1, gpus: 2}]}\n  - {rack: 1, name: rack2, children: [{node: 1, gpus: 2}]}\n", FIRST + 1, "a second vertex named 'rack2'"),
    "the cluster's name": ("name: node1\n" + ROOT + "tree: [{node: 2, gpus: 1}]\n", None, "'node1' is also that of a vertex"),
    "a name with a slash": (ROOT + "tree:\n  - node: 1\n    name: a/b\n    gpus: 1\n", 4, "expected a name"),
    "a numeric name": (ROOT + "tree:\n  - node: 1\n    name: 12\n    gpus: 1\n", 4, "expected a name"),
    "a type with a bar": (ROOT + "tree:\n  - node: 1\n    gpu_type: A|B\n    gpus: 1\n", 4, "name of a GPU type"),
    "types for some": (ROOT + "tree:\n  - {node: 1, gpus: 1, gpu_type: A}\n  - {node: 1, gpus: 1}\n", 4, "no gpu_type though others do"),
    "types side by side": (ROOT + "tree:\n  - node: 1\n    children:\n      - {gpu: 1, gpu_type: A}\n      - {gpu: 1, gpu_type: B}\n", 3, "different types"),
    "links side by side": (HEAD + "  - rack: 1\n    children:\n      - node: 1\n        children: [{gpu: 1}, {gpu: 1, links: {gpu: {latency_us: 9}}}]\n", FIRST + 2, "different links"),
    "unknown unit": ("unit: nvlink\n" + ROOT + "tree: [{node: 1, gpus: 1}]\n", 1, "one of the levels gpu, node"),
    "too many": (ROOT + "tree:\n  - node: 99999999\n    gpus: 1\n", 3, "more than 500,000 vertices"),
    "too many gpus": (ROOT + "tree:\n  - node: 4000\n    gpus: 99999999\n", None, "GPUs; expected at most"),
    "no YAML": ("levels: [gpu\ntree: x: y\n", 2, "is not valid YAML"),
    "a tab": ("levels: [gpu]\n\ttree: x\n", 2, "is not valid YAML"),
    "an unknown alias": ("levels: [gpu]\ntree: *x\n", 2, "undefined alias"),
    "a cycle": ("levels: [gpu, node]\ntree:\n  - &a {node: 1, children: [*a]}\n", 3, "against the order"),
    "two documents": ("levels: [gpu]\n---\ntree: []\n", 2, "is not valid YAML"),
    "a control character": ("levels: [gpu]\nname: a\x00b\n", 2, "is not valid YAML"),
    "a python object": ("levels: [gpu]\ntree: [{gpu: !!python/object:os.system 1}]\n", 2, "a whole number"),
    "a list": ("- 1\n- 2\n", 1, "the file is a list"),
    "a word": ("hello\n", 1, "the file is 'hello'"),
    "empty": ("", None, "is empty"),
    "comments only": ("# nothing\n", None, "is empty"),
    "too deep": ("[" * 100_000, None, "nested too deep"),
}  # fmt: skip
