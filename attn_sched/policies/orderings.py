"""The built-in orderings.

Keys: n GPUs, d estimated duration (at least 1 s), w waiting time; smallest first, ties by submission.
"""

from __future__ import annotations

import numpy as np

from attn_sched.policies.registry import ALIASES, ORDERINGS, Alias, Ordering
from attn_sched.simulator import layout as at
from attn_sched.simulator.layout import F8
from attn_sched.workload import Workload


def _d(jobs: Workload) -> F8:
    return np.maximum(jobs.estimate_s, at.MIN_ESTIMATE)


def fifo(jobs: Workload, rng: np.random.Generator) -> F8:
    """Submission time."""
    return jobs.submit_s


def sjf(jobs: Workload, rng: np.random.Generator) -> F8:
    """Estimated duration."""
    return _d(jobs)


def ljf(jobs: Workload, rng: np.random.Generator) -> F8:
    """Longest estimated duration first."""
    return -_d(jobs)


def smallest(jobs: Workload, rng: np.random.Generator) -> F8:
    """Fewest GPUs."""
    return jobs.num_gpus.astype(np.float64)


def largest(jobs: Workload, rng: np.random.Generator) -> F8:
    """Most GPUs first."""
    return -jobs.num_gpus.astype(np.float64)


def saf(jobs: Workload, rng: np.random.Generator) -> F8:
    """Smallest area n d."""
    return jobs.num_gpus * _d(jobs)


def f1(jobs: Workload, rng: np.random.Generator) -> F8:
    """log10(d) n + 870 log10(submit)."""
    return np.log10(_d(jobs)) * jobs.num_gpus + 870.0 * np.log10(np.maximum(jobs.submit_s, 1.0))


def random(jobs: Workload, rng: np.random.Generator) -> F8:
    """A seeded shuffle."""
    return rng.random(len(jobs))


_FEITELSON = "Feitelson et al., JSSPP 1997"
_TANG = "Tang et al., IEEE Cluster 2009"

for _ordering in (
    Ordering("fifo", "earliest submission; the head of the line blocks", _FEITELSON, keys=fifo, queueing=at.STRICT),
    Ordering("sjf", "shortest estimated duration", _FEITELSON, keys=sjf),
    Ordering("ljf", "longest estimated duration", _FEITELSON, keys=ljf),
    Ordering("smallest", "fewest GPUs", "Majumdar et al., SIGMETRICS 1988", keys=smallest),
    Ordering("largest", "most GPUs", "Li and Cheng, IEEE TPDS 1991", keys=largest),
    Ordering("saf", "smallest area n d", "Carastan-Santos et al., CCGrid 2019", keys=saf),
    Ordering("hrrn", "highest response ratio (w + d) / d", "Brinch Hansen, 1971", code=at.HRRN),
    Ordering("wfp3", "highest (w / d)^3 n", _TANG, code=at.WFP3),
    Ordering("unicep", "highest w / (log2(max(n, 2)) d)", _TANG, code=at.UNICEP),
    Ordering("f1", "log10(d) n + 870 log10(submit)", "Carastan-Santos and de Camargo, SC 2017", keys=f1),
    Ordering("user-fair", "the user with the least GPU time so far", "Kay and Lauder, CACM 1988", code=at.USER_FAIR),
    Ordering(
        "ftf", "largest projected finish-time ratio", "Mahajan et al. (Themis), NSDI 2020, section 3", code=at.FTF
    ),
    Ordering(
        "qssf",
        "least GPU time, predicted from the user's jobs that have ended in the replay",
        "Hu et al. (Helios), SC 2021, section 4.2",
        code=at.QSSF,
    ),
    Ordering("random", "a seeded shuffle", "baseline", keys=random),
    Ordering("srtf", "preemptive: shortest remaining duration", "Schrage, Operations Research 1968", preempt=at.SRTF),
    Ordering(
        "srsf", "preemptive: least remaining GPU time", "Gu et al. (Tiresias), NSDI 2019, section 3", preempt=at.SRSF
    ),
    Ordering(
        "tiresias",
        "preemptive: least attained GPU time in three queues (to 3,250, 7,200, above), first come first served in each",
        "Gu et al. (Tiresias), NSDI 2019, section 3.2",
        preempt=at.TIRESIAS,
    ),
    Ordering(
        "themis-like",
        "preemptive: the worst projected finish-time ratio bids first, 20-minute leases",
        "Mahajan et al. (Themis), NSDI 2020, sections 3-5; no partial allocations",
        preempt=at.THEMIS,
    ),
):
    ORDERINGS.add(_ordering)

ALIASES.add(Alias("fifo-skip", "first come first served, any job that fits may start", _FEITELSON, "fifo:skip"))
ALIASES.add(Alias("easy", "first come first served with EASY backfilling", "Lifka, JSSPP 1995", "fifo:easy"))
