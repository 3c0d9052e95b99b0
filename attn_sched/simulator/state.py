"""The state of a batch of clusters, and the handle by which compiled kernels reach the arrays of one of them.

``Batch`` owns the arrays, most with a leading batch dimension. ``World`` is one cluster of it: in Python an object with
numpy views as attributes, in a kernel a single address: that of a table of pointers and shapes. ``w.jf`` in a kernel is
then one load, and a call passes one number; passing some thirty arrays by value instead made calls the engine's largest
cost (16 us a job, against less than 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.core import cgutils
from numba.extending import NativeValue, intrinsic, models, overload_attribute, register_model, typeof_impl, unbox

from attn_sched.simulator import layout as at


@dataclass(frozen=True)
class Field:
    """One array of a cluster: 1-D, or 2-D with ``columns`` (0: as many as the array has)."""

    dtype: Any
    columns: int | None = None
    shared: bool = False  # one for all clusters of a batch


# All integers are 64 bits wide: a kernel is compiled once for each mix of argument types it is called with.
F8, I8, U8 = np.float64, np.int64, np.uint64

FIELDS: dict[str, Field] = {
    "loff": Field(I8, shared=True),  # [L + 2] vertices of level l are loff[l] .. loff[l + 1] - 1
    "ti": Field(I8, at.TI_COLUMNS, shared=True),  # [V, :]
    "tf": Field(F8, at.TF_COLUMNS, shared=True),  # [V, :]
    "cap": Field(I8, 0, shared=True),  # [T, V] GPUs of each type below a vertex
    "cf": Field(F8, shared=True),  # [CF_COLUMNS]
    "ci": Field(I8, shared=True),  # [CI_COLUMNS]
    "changes": Field(F8, 3, shared=True),  # [X, 3] time, vertex, +1 up / -1 down: nodes that fail and return
    "jf": Field(F8, at.JF_COLUMNS),  # [J, :]
    "ji": Field(I8, at.JI_COLUMNS),  # [J, :]
    "free": Field(I8, 0),  # [T, V] free GPUs of each type below a vertex
    "lk": Field(I8, 2),  # [V, :]
    "en": Field(I8, at.EN_COLUMNS),  # [E, :]
    "hp": Field(I8),  # [2 J] class heaps: jobs within their patience, then jobs past it
    "cl": Field(I8, 4),  # [C, :]
    "fi": Field(I8, at.FI_COLUMNS),  # [F, :]
    "ff": Field(F8, at.P_COLUMNS),  # [F, :]
    "fh": Field(I8),  # [N + 1] finish heap of running jobs
    "th": Field(I8),  # [J] timer heap of waiting jobs; preemptive rules: live jobs in their last order
    "uf": Field(F8, at.UF_COLUMNS),  # [U, :]
    "ui": Field(I8, 4),  # [U, :]
    "sf": Field(F8),  # [SF_COLUMNS]
    "si": Field(I8),  # [SI_COLUMNS]
    "rng": Field(U8),  # [1] state of the kernel's own stream, for random placement
    "sgi": Field(I8, 3),  # [S, 3] placement segments: job, island, GPUs
    "sgf": Field(F8, 2),  # [S, 2] their start and end
    "pk": Field(I8, 2),  # [I + 2, 2] the placement being built: island, GPUs
    "gp": Field(
        I8, 2
    ),  # [I + 2, 2] a GPU agent's picks so far, of which N_PICKS count: pk is overwritten between its answers
    "wj": Field(I8),  # [K] the jobs a learned policy was last shown, in arrival order; -1 pads
    "sv": Field(I8, 4),  # [V, 4] scratch per vertex: GPUs counted, touched list, stamp, active jobs
    "pf": Field(F8),  # [P_COLUMNS] the path of the placement being weighed
    "vf": Field(F8),  # [V] scratch per vertex: progressive filling, node work
    "sj": Field(I8),  # [N + 1] scratch per running job
    "sjf": Field(F8, 2),  # [N + 1, 2]
    "down": Field(I8),  # [I] how many failures hold an island down
    "cq": Field(I8),  # [C] jobs with a cancel time, by that time
}
_PER_FIELD = 3  # address, rows, columns
ROW_BYTES = 8 * _PER_FIELD * len(FIELDS)


class Batch:
    """Owner of all arrays of B clusters; ``world(b)`` is the handle of one."""

    def __init__(self, size: int, arrays: dict[str, np.ndarray]) -> None:
        self.size = size
        self.arrays: dict[str, np.ndarray] = {}
        self.table = np.zeros((size, _PER_FIELD * len(FIELDS)), dtype=np.int64)
        missing = set(FIELDS) ^ set(arrays)
        if missing:
            raise ValueError(f"arrays and fields differ in {sorted(missing)}")
        for name, array in arrays.items():
            self.set(name, array)

    def set(self, name: str, array: np.ndarray) -> None:
        """Put an array in place of the one there was; handles made before must be made again."""
        field = FIELDS[name]
        array = np.ascontiguousarray(array, dtype=field.dtype)
        whole = array if field.shared else array[0]
        if whole.ndim != (1 if field.columns is None else 2) or (field.columns and whole.shape[1] != field.columns):
            raise ValueError(f"{name} has shape {array.shape}")
        self.arrays[name] = array
        at_column = _PER_FIELD * list(FIELDS).index(name)
        for b in range(self.size):
            part = array if field.shared else array[b]
            row = self.table[b, at_column : at_column + _PER_FIELD]
            row[0] = part.ctypes.data
            row[1 : 1 + part.ndim] = part.shape

    def put(self, b: int, other: Batch) -> None:
        """Give cluster ``b`` the contents of ``other``, a batch of one with the same cluster, rule and options.

        Arrays grow where they must, and rows past ``other``'s own are padding. Not the random stream, which runs on.
        """
        for name, field in FIELDS.items():
            if field.shared or name == "rng":
                continue
            whole, part = self.arrays[name], other.arrays[name][0]
            padding = -1 if name == "cq" else 0
            if part.shape[0] > whole.shape[1]:
                if name == "hp":
                    raise ValueError("jobs in class heaps cannot move to longer ones")
                longer = np.full((self.size, *part.shape), padding, whole.dtype)
                longer[:, : whole.shape[1]] = whole
                self.set(name, longer)
                whole = self.arrays[name]
            whole[b, : len(part)] = part
            whole[b, len(part) :] = padding

    @property
    def address(self) -> int:
        """Where the tables stand, one row of ``ROW_BYTES`` per cluster; for ``world_at`` in kernels."""
        return int(self.table.ctypes.data)

    def world(self, b: int) -> World:
        """Handle of cluster ``b``."""
        return World(self, b)


class World:
    """One cluster of a batch: ``w.jf``, ``w.si`` and so on are its arrays, writable, in Python as in kernels."""

    def __init__(self, batch: Batch, b: int) -> None:
        self._batch = batch  # keeps the memory alive
        self.address = batch.address + b * ROW_BYTES
        for name, field in FIELDS.items():
            setattr(self, name, batch.arrays[name] if field.shared else batch.arrays[name][b])

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


class WorldType(types.Type):
    """numba's view of ``World``."""

    def __init__(self) -> None:
        super().__init__(name="World")


world_type = WorldType()


@typeof_impl.register(World)
def _typeof_world(value: World, context: Any) -> WorldType:
    return world_type


@register_model(WorldType)
class _WorldModel(models.PrimitiveModel):
    def __init__(self, manager: Any, fe_type: types.Type) -> None:
        super().__init__(manager, fe_type, ir.IntType(64))


@unbox(WorldType)
def _unbox_world(kind: types.Type, value: Any, c: Any) -> NativeValue:
    address = c.pyapi.object_getattr_string(value, "address")
    number = c.pyapi.long_as_longlong(address)
    c.pyapi.decref(address)
    return NativeValue(number, is_error=cgutils.is_not_null(c.builder, c.pyapi.err_occurred()))


@intrinsic
def world_at(typing_context: Any, address: types.Type, b: types.Type) -> Any:
    """In a kernel: the handle of cluster ``b`` of the batch whose tables stand at ``address`` (both int64)."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        base, row = (
            context.cast(builder, arg, kind, types.int64) for arg, kind in zip(args, signature.args, strict=True)
        )
        return builder.add(base, builder.mul(row, ir.Constant(ir.IntType(64), ROW_BYTES)))

    return world_type(address, b), build


@intrinsic
def _entry(typing_context: Any, world: types.Type, index: types.Type) -> Any:
    """Entry ``index`` of the table of a world.

    Python changes the table between calls only, and the compiler is told so: it need not load an entry again after a
    store.
    """

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        table = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
        entry = builder.load(builder.gep(table, [context.cast(builder, args[1], signature.args[1], types.int64)]))
        entry.set_metadata("invariant.load", builder.module.add_metadata([]))
        return entry

    return types.int64(world, index), build


@intrinsic
def _pointer(typing_context: Any, address: types.Type) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(address), build


def _expose(name: str, index: int, field: Field) -> None:
    """Make ``w.name`` an array in kernels."""
    dtype = field.dtype
    columns = field.columns
    entry = _PER_FIELD * index

    if columns is None:

        def access(w):  # type: ignore[no-untyped-def]  # numba wants the signature of the lambda
            return lambda w: carray(_pointer(_entry(w, entry)), (_entry(w, entry + 1),), dtype)

    elif columns > 0:

        def access(w):  # type: ignore[no-untyped-def]  # numba wants the signature of the lambda
            return lambda w: carray(_pointer(_entry(w, entry)), (_entry(w, entry + 1), columns), dtype)

    else:

        def access(w):  # type: ignore[no-untyped-def]  # numba wants the signature of the lambda
            return lambda w: carray(_pointer(_entry(w, entry)), (_entry(w, entry + 1), _entry(w, entry + 2)), dtype)

    overload_attribute(WorldType, name)(access)


for _index, (_name, _field) in enumerate(FIELDS.items()):
    _expose(_name, _index, _field)
