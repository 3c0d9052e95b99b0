"""Calibrate the communication model on measured throughputs and score it on model families it was not fitted to.

The measurements (Gavel, ``isolated_throughputs.csv``) give steps/s of 19 configurations of four families on 2, 4 and 8
GPUs of three types, all in one node ("consolidated") and one a node ("unconsolidated"): ``t_iter = n / steps/s``. The
model is the ring all-reduce of ``attn_sched.cluster.communication`` with ``S`` from the catalogue and ``tau`` from the
same file at n = 1.

    python -m benchmarks.calibration THROUGHPUTS [--write docs/calibration.md]

THROUGHPUTS is that file. Without ``--write`` the tables are printed; with it they replace those of the page.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import differential_evolution
from scipy.stats import spearmanr

from attn_sched.cluster.communication import iteration_time, ring_time, slowdown
from attn_sched.files import atomic_write
from attn_sched.jit import njit
from attn_sched.workload.catalogue import BY_NAME, CONFIGS

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"

GPU_TYPES = ("v100", "p100", "k80")
SIZES = (2, 4, 8)
NODE_ALPHA = 5e-6  # s, latency inside a node: too small beside these iterations to be fitted
BOUNDS = (  # of what is fitted; bandwidths and latency as logarithms
    (math.log(1e8), math.log(2e10)),  # NIC, bytes/s
    (math.log(1e-6), math.log(2e-4)),  # NIC latency, s: what a network can have, not what hides other costs
    (0.0, 1.0),  # phi
    *((math.log(5e8), math.log(3e11)),) * len(GPU_TYPES),  # links inside the node, bytes/s
)
PHIS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0)


@dataclass(frozen=True)
class Table:
    """Measurements as columns, one row for each configuration, GPU type and number of GPUs."""

    config: NDArray[np.str_]
    family: NDArray[np.str_]
    gpu: NDArray[np.int64]  # index in GPU_TYPES
    n: NDArray[np.int64]  # GPUs
    tau: NDArray[np.float64]  # s, one GPU
    together: NDArray[np.float64]  # s, measured iteration in one node
    spread: NDArray[np.float64]  # s, measured iteration with one GPU a node
    grad: NDArray[np.float64]  # bytes

    def rows(self, keep: NDArray[np.bool_]) -> Table:
        """Some of the rows."""
        return Table(*(getattr(self, column.name)[keep] for column in fields(self)))

    @property
    def measured(self) -> NDArray[np.float64]:
        """Measured slowdown of the spread placement; below 1 where spreading was faster."""
        return self.spread / self.together


@dataclass(frozen=True)
class Fit:
    """Parameters of the model."""

    nic: float  # bytes/s
    alpha: float  # s
    phi: float
    inside: tuple[float, ...]  # bytes/s, for each of GPU_TYPES


EXAMPLE = Fit(nic=1.17e9, alpha=50e-6, phi=0.5, inside=(12e9,) * 3)  # the links of preset eth64, nothing fitted


def read_measurements(path: Path) -> Table:
    """All configurations measured both ways, from the file."""
    speed: dict[tuple[str, str, int], float] = {}
    with path.open(newline="", encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            speed[row["job_type"], row["gpu_type"], int(row["scale_factor"])] = float(row["steps_per_second"])
    rows = []
    for config in sorted({key[0] for key in speed} & set(BY_NAME)):
        entry = CONFIGS[BY_NAME[config]]
        for gpu, name in enumerate(GPU_TYPES):
            alone = speed.get((config, name, 1), 0.0)
            for n in SIZES:
                together, spread = (
                    speed.get((config, name, n), 0.0),
                    speed.get((config, f"{name}_unconsolidated", n), 0.0),
                )
                if alone > 0 and together > 0 and spread > 0:
                    times = (1 / alone, n / together, n / spread)
                    rows.append((config, entry.network.name, gpu, n, *times, entry.grad_bytes))
    return Table(*(np.array(column) for column in zip(*rows, strict=True)))


@njit
def _times(
    nic: float,
    alpha: float,
    phi: float,
    inside: NDArray[np.float64],  # per row
    n: NDArray[np.int64],
    tau: NDArray[np.float64],
    grad: NDArray[np.float64],
    out: NDArray[np.float64],
) -> None:
    """Predicted iteration in one node, spread, and slowdown, as three rows of ``out``."""
    for i in range(len(n)):
        out[0, i] = iteration_time(tau[i], phi, ring_time(n[i], NODE_ALPHA, inside[i], grad[i]))
        out[1, i] = iteration_time(tau[i], phi, ring_time(n[i], alpha, nic, grad[i]))
        out[2, i] = slowdown(out[1, i], out[0, i])


def predict(fit: Fit, table: Table) -> NDArray[np.float64]:
    """Rows: iteration in one node, iteration spread (s), slowdown."""
    out = np.empty((3, len(table.n)))
    _times(fit.nic, fit.alpha, fit.phi, np.array(fit.inside)[table.gpu], table.n, table.tau, table.grad, out)
    return out


def fit_model(table: Table) -> Fit:
    """Least sum of absolute log errors of both iteration times and of the slowdown.

    The times tie the bandwidths down, which a ratio alone leaves free; the slowdown is what the simulator uses.
    Absolute values, because a handful of rows is off by factors for reasons no network has (see docs).
    """
    target = np.maximum(1.0, table.measured)  # the model cannot go below 1 and should not bend to try

    def unpack(x: Sequence[float]) -> Fit:
        return Fit(math.exp(x[0]), math.exp(x[1]), float(x[2]), tuple(math.exp(v) for v in x[3:]))

    def loss(x: Sequence[float]) -> float:
        together, spread, ratio = predict(unpack(x), table)
        errors = (np.log(together / table.together), np.log(spread / table.spread), np.log(ratio / target))
        return float(sum(np.abs(error).sum() for error in errors))

    found = differential_evolution(loss, BOUNDS, rng=0, maxiter=300, popsize=12, tol=1e-7)
    return unpack(found.x)


@dataclass(frozen=True)
class Score:
    """How well predicted slowdowns match measured ones."""

    count: int
    spearman: float  # nan where all predictions are equal
    error: float  # median |log(predicted / measured)|
    constant: float  # the same for "spreading costs nothing"


def score(predicted: NDArray[np.float64], measured: NDArray[np.float64]) -> Score:
    """Compare slowdowns."""
    varied = np.ptp(predicted) > 1e-9
    rho = float(spearmanr(predicted, measured).statistic) if varied else math.nan
    errors = np.abs(np.log(predicted / measured))
    return Score(len(measured), rho, float(np.median(errors)), float(np.median(np.abs(np.log(measured)))))


@dataclass(frozen=True)
class Result:
    """Everything that is reported."""

    table: Table
    fits: dict[str, Fit]  # held-out family -> fit on the others
    everything: Fit  # fitted on all families
    held_out: NDArray[np.float64]  # predicted slowdown of each row by the fit that has not seen its family


def calibrate(table: Table) -> Result:
    """Leave one family out, for every family."""
    fits: dict[str, Fit] = {}
    held_out = np.empty(len(table.n))
    for family in np.unique(table.family):
        out = table.family == family
        fits[str(family)] = fit_model(table.rows(~out))
        held_out[out] = predict(fits[str(family)], table.rows(out))[2]
    return Result(table, fits, fit_model(table), held_out)


# ---- report ----


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _score_cells(s: Score) -> list[str]:
    rho = "n/a" if math.isnan(s.spearman) else f"{s.spearman:.2f}"
    return [str(s.count), rho, f"{s.error:.3f}", f"{s.constant:.3f}"]


def _fit_cells(fit: Fit) -> list[str]:
    inside = [f"{value / 1e9:.1f}" for value in fit.inside]
    return [f"{fit.nic / 1e9:.2f}", f"{fit.alpha * 1e6:.0f}", f"{fit.phi:.2f}", *inside]


def _scores(result: Result) -> str:
    table, measured, rows = result.table, result.table.measured, []
    for family in result.fits:
        for gpu, name in enumerate(GPU_TYPES):
            keep = (table.family == family) & (table.gpu == gpu)
            rows.append([family, name, *_score_cells(score(result.held_out[keep], measured[keep]))])
        keep = table.family == family
        rows.append([f"**{family}**", "all", *_score_cells(score(result.held_out[keep], measured[keep]))])
    return _markdown(
        ("held-out family", "GPU", "rows", "Spearman", "median abs log error", "same for constant 1"), rows
    )


def _pooled(result: Result) -> str:
    table, measured, rows = result.table, result.table.measured, []
    example = predict(EXAMPLE, table)[2]
    for gpu, name in (*enumerate(GPU_TYPES), (-1, "all")):
        keep = (table.gpu == gpu) | (gpu < 0)
        held, plain = score(result.held_out[keep], measured[keep]), score(example[keep], measured[keep])
        rows.append([name, *_score_cells(held), f"{plain.spearman:.2f}", f"{plain.error:.3f}"])
    head = ("GPU", "rows", "Spearman", "median abs log error", "constant 1", "Spearman, eth64", "error, eth64")
    return _markdown(head, rows)


def _parameters(result: Result) -> str:
    rows = [[f"all but {family}", *_fit_cells(fit)] for family, fit in result.fits.items()]
    rows.append(["all", *_fit_cells(result.everything)])
    head = ("fitted on", "NIC, GB/s", "latency, us", "phi", *(f"inside {name}, GB/s" for name in GPU_TYPES))
    return _markdown(head, rows)


def _overlap(result: Result) -> str:
    table, rows = result.table, []
    for phi in PHIS:
        together, spread, ratio = predict(Fit(EXAMPLE.nic, EXAMPLE.alpha, phi, EXAMPLE.inside), table)
        errors = [
            score(ratio[table.gpu == gpu], table.measured[table.gpu == gpu]).error for gpu in range(len(GPU_TYPES))
        ]
        pooled = score(ratio, table.measured)
        times = np.median(np.abs(np.log(np.concatenate([together / table.together, spread / table.spread]))))
        rows.append(
            [
                f"{phi:.1f}",
                *(f"{e:.3f}" for e in errors),
                f"{pooled.error:.3f}",
                f"{pooled.spearman:.2f}",
                f"{times:.3f}",
            ]
        )
    return _markdown(("phi", *GPU_TYPES, "all", "Spearman, all", "error of iteration times"), rows)


def _misses(result: Result, most: int = 10) -> str:
    table, measured = result.table, result.table.measured
    worst = np.argsort(-np.abs(np.log(result.held_out / measured)), kind="stable")[:most]
    rows = [
        [
            str(table.config[i]),
            GPU_TYPES[table.gpu[i]],
            str(table.n[i]),
            f"{measured[i]:.2f}",
            f"{result.held_out[i]:.2f}",
        ]
        for i in worst
    ]
    return _markdown(("configuration", "GPU", "n", "measured", "predicted"), rows)


def report(result: Result) -> str:
    """All tables, in Markdown."""
    return "\n\n".join(
        [
            "**Held-out families, pooled.** Last two columns: the links of preset `eth64` and phi 0.5, nothing fitted.",
            _pooled(result),
            "**Each held-out family.**",
            _scores(result),
            "**What was fitted.**",
            _parameters(result),
            "**Median absolute log error of the slowdown by phi**, links of `eth64`, nothing fitted.",
            _overlap(result),
            "**The ten worst misses** (held out).",
            _misses(result),
        ]
    )


def main() -> None:
    """Print the tables, or write them into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("throughputs", type=Path, help="isolated_throughputs.csv")
    parser.add_argument("--write", type=Path, help="page whose tables are replaced")
    given = parser.parse_args()
    text = report(calibrate(read_measurements(given.throughputs)))
    if given.write is None:
        print(text)
        return
    before, rest = given.write.read_text(encoding="utf-8").split(BEGIN)
    with atomic_write(given.write) as part:
        part.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.split(END)[1]}", encoding="utf-8")


if __name__ == "__main__":
    main()
