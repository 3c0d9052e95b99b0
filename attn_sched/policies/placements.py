"""The built-in queueings and placements; the compiled code is in ``simulator.placement`` and ``simulator.placing``."""

from __future__ import annotations

from attn_sched.policies.registry import PLACEMENTS, QUEUEINGS, Placement, Queueing
from attn_sched.simulator import layout as at

for _queueing in (
    Queueing(
        "strict", "the first job in order blocks the rest until it fits", "Feitelson et al., JSSPP 1997", at.STRICT
    ),
    Queueing("skip", "any job that fits may start", "Feitelson et al., JSSPP 1997", at.SKIP),
    Queueing(
        "commit",
        "the job picked waits until it fits; later arrivals do not replace it",
        "Zhang et al. (RLScheduler), SC 2020",
        at.COMMIT,
    ),
    Queueing(
        "easy", "commit, and jobs that end before the picked one can start are backfilled", "Lifka, JSSPP 1995", at.EASY
    ),
):
    QUEUEINGS.add(_queueing)

for _placement in (
    Placement(
        "topo-best-fit",
        "fewest racks, then nodes, then least left over; may split",
        "this project, after Amaral et al., SC 2017",
        at.TOPO_BEST_FIT,
    ),
    Placement(
        "best-fit",
        "a gang that fits a node goes whole into the fullest with room, never split",
        "Hu et al. (Lucid), ASPLOS 2023",
        at.BEST_FIT,
    ),
    Placement(
        "first-fit", "nodes by number, each as far as it goes", "Johnson et al., SIAM J. Comput. 1974", at.FIRST_FIT
    ),
    Placement("load-balance", "GPU by GPU on the emptiest node: the widest spread", "baseline", at.LOAD_BALANCE),
    Placement("random", "free GPUs drawn at random", "baseline", at.RANDOM),
    Placement(
        "tiresias-skew",
        "consolidates models with skewed tensors, the rest fill fragments",
        "Gu et al. (Tiresias), NSDI 2019, section 3.3",
        at.SKEW,
    ),
    Placement(
        "lwf", "nodes with the least remaining work first", "Wang et al. (LWF), arXiv 2002.10105", at.LEAST_WORKLOAD
    ),
    Placement(
        "contention",
        "least added iteration time over all running jobs",
        "after Rajasekaran et al. (Cassini), NSDI 2024",
        at.LEAST_CONTENTION,
    ),
):
    PLACEMENTS.add(_placement)
