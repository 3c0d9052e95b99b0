"""What is replayed: logs, clusters, loads and windows, as cells in sections."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from attn_sched.errors import InputError

WINDOWS = 20  # a cell, where the log has room for so many side by side
LONG_JOBS = 1024
LONG_WINDOWS = 8  # of so many jobs: as many jobs as 32 windows of 256
LOADS = (0.75, 0.95, 1.05)
CLUSTERS = ("dgx64", "eth64")
DGX256 = Path(__file__).with_name("dgx256.yaml")

MAIN, LONG, TRACES, SIZES, VALIDATION = "main", "long", "traces", "sizes", "validation"


@dataclass(frozen=True)
class Log:
    """A job log and what is taken of it."""

    key: str  # on the page
    family: str  # logs of one family are parts of one data set
    path: str  # below the folder of traces
    jobs: int = 256  # that a window counts
    whole: bool = False  # all of it is test: nobody trains on it
    clock: str | None = None  # calendar time of its first job, where the file does not say it


@dataclass(frozen=True)
class Cell:
    """A log on a cluster at a load."""

    section: str
    log: Log
    cluster: str  # a preset's name, or the path of a YAML file
    load: float
    jobs: int  # that a window counts
    most: int  # windows
    part: str = "test"

    @property
    def cluster_name(self) -> str:
        """On the page."""
        return Path(self.cluster).stem

    @property
    def name(self) -> str:
        """On the page; no two cells of a plan have the same."""
        size = "" if self.jobs == self.log.jobs else f" ({self.jobs:,}-job windows)"
        part = "" if self.part == "test" else f" [{self.part}]"
        return f"{self.log.key} on {self.cluster_name} at {self.load:g}{size}{part}"

    @property
    def place(self) -> str:
        """Log and cluster."""
        return f"{self.log.key} on {self.cluster_name}"


@dataclass(frozen=True)
class Section:
    """Cells that are reported together."""

    key: str
    title: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Plan:
    """All sections; the first is the one that verdicts are about, ``validation`` the one the best rule is chosen on."""

    sections: tuple[Section, ...]
    validation: tuple[Cell, ...]

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Of all sections, those for validation last."""
        return (*(cell for section in self.sections for cell in section.cells), *self.validation)

    @property
    def logs(self) -> tuple[Log, ...]:
        """Each once."""
        return tuple(dict.fromkeys(cell.log for cell in self.cells))

    def section(self, key: str) -> tuple[Cell, ...]:
        """The cells of a section; none where the plan lacks it."""
        return next((section.cells for section in self.sections if section.key == key), ())

    def limited(self, windows: int | None, only: Sequence[str]) -> Plan:
        """With at most so many windows a cell, and only the sections and cells whose name contains one of ``only``.

        The validation cells are those of the logs and clusters that are left in the first section, or all if none is.

        Raises:
            InputError: nothing is left.
        """

        def cut(cells: Iterable[Cell]) -> tuple[Cell, ...]:
            return tuple(cell if windows is None else replace(cell, most=min(cell.most, windows)) for cell in cells)

        def wanted(cell: Cell) -> bool:
            return not only or any(text in f"{cell.section}: {cell.name}" for text in only)

        sections = [replace(part, cells=cut(filter(wanted, part.cells))) for part in self.sections]
        sections = [section for section in sections if section.cells]
        if not sections:
            known = "; ".join(cell.name for cell in self.cells[:3])
            raise InputError(f"no cell is called {' or '.join(only)}", field="only", expected=f"part of {known}; ...")
        places = {cell.place for section in sections if section.key == MAIN for cell in section.cells}
        validation = tuple(cell for cell in self.validation if not places or cell.place in places)
        return Plan(tuple(sections), cut(validation))


def grid(
    section: str,
    logs: Iterable[Log],
    clusters: Iterable[str],
    loads: Iterable[float],
    *,
    jobs: int | None = None,
    most: int = WINDOWS,
) -> tuple[Cell, ...]:
    """A cell for each log, cluster and load; windows count as many jobs as is said of the log, unless ``jobs`` is."""
    return tuple(
        Cell(section, log, cluster, load, jobs or log.jobs, most)
        for cluster in clusters
        for log in logs
        for load in loads
    )


PHILLY_1 = Log("philly-vc/1", "philly-vc", "philly-vc/trace1.csv", 128, clock="2017-08-18T21:20:18")
PHILLY_3 = Log("philly-vc/3", "philly-vc", "philly-vc/trace3.csv", 128, clock="2017-09-18T16:23:59")
PHILLY_PASSED = Log("philly-passed", "philly-passed", "philly-passed/philly_sep_oct.csv")
HELIOS = Log("helios-venus-gpu", "helios-venus-gpu", "helios-venus-gpu/helios_trace_mar18_jun30.csv")
PAI = Log("alibaba-pai-2020", "alibaba-pai-2020", "alibaba-pai-2020/alibaba_trace_sub_day00_31.csv")
OPENB = Log("alibaba-openb-2023", "openb", "alibaba-openb-2023/openb_pod_list_default.csv", whole=True)
HPC2N = Log("hpc2n", "hpc2n", "swf-hpc/hpc2n.swf", whole=True)
KALOS = Log("acme-kalos", "kalos", "acme-kalos/trace_kalos.csv", 128, whole=True)
HELIOS_2VC = Log("helios-venus-2vc", "helios-2vc", "helios-venus-2vc/cluster_log.csv", 128, whole=True)

SEEN = (PHILLY_1, PHILLY_3, PHILLY_PASSED, HELIOS, PAI)  # training has seen their earlier parts
LARGE = (PHILLY_PASSED, HELIOS, PAI)

PLAN = Plan(
    sections=(
        Section(MAIN, "Test periods of the logs that were trained on", grid(MAIN, SEEN, CLUSTERS, LOADS)),
        Section(
            LONG,
            f"Windows of {LONG_JOBS:,} jobs",
            grid(LONG, LARGE, CLUSTERS, LOADS, jobs=LONG_JOBS, most=LONG_WINDOWS),
        ),
        Section(
            TRACES,
            "Logs that training has not seen",
            (
                *grid(TRACES, (OPENB, HPC2N), CLUSTERS, (0.75, 0.95)),
                *grid(TRACES, (HELIOS_2VC,), (str(DGX256),), (0.75, 0.95)),
                *grid(TRACES, (KALOS,), ("pod1024",), (0.75, 0.95)),
            ),
        ),
        Section(
            SIZES,
            "Clusters that training has not seen",
            (
                *grid(SIZES, LARGE, ("testbed32", str(DGX256)), (0.75, 0.95)),
                # As many GPUs take more jobs to fill.
                *grid(SIZES, (HELIOS, PAI), ("pod1024",), (0.95,), jobs=LONG_JOBS, most=LONG_WINDOWS),
                *grid(SIZES, (HELIOS,), ("helios-venus",), (0.95,), jobs=LONG_JOBS, most=LONG_WINDOWS),
            ),
        ),
    ),
    validation=tuple(replace(cell, part="validation") for cell in grid(VALIDATION, SEEN, CLUSTERS, LOADS)),
)
