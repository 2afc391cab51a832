"""Calls that XLA:CPU compiles into one kernel, and the fallback if XLA cannot compile one.

XLA's kernel emitter does not support everything. When a compilation fails, each kernel in it is
compiled alone (`refuse`). Those that fail are refused from then on, in this process and, if JAX has
a compilation cache directory, in later ones. Inside another library's `jax.jit`, where we would not
see the failure, each kernel is compiled once before it is used.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from functrans import passes
from functrans.flags import flags
from functrans.ir.program import Program
from functrans.ir.source import location
from functrans.mlir import hlo, ir

_FILE = "functrans_refused_kernels.txt"
_log = logging.getLogger("functrans")
_lowered = threading.local()  # .kernels: the programs of the kernels in the last module
_fine: set[str] = set()  # names of kernels that are known to compile
_read: set[Path] = set()


def start(compile_alone: Callable[[Program], Any]) -> Callable[[Program], bool] | None:
    """Begin a module; return the check that each kernel in it must pass first, or None."""
    _lowered.kernels = []
    folder = _folder()
    if folder is not None and folder not in _read:
        _read.add(folder)
        if (folder / _FILE).exists():
            passes.kernels.refuse(*[line.split()[0] for line in (folder / _FILE).open()])
    return (lambda program: can_be(program, compile_alone)) if is_someone_elses() else None


def may_be_used(jax_ctx: Any) -> bool:
    """Return whether the module is for one CPU device of this process. Exported modules run
    elsewhere, and partitioned ones contain operations between devices."""
    return is_for_one_device(jax_ctx) and not jax_ctx.module_context.lowering_parameters.for_export


def is_for_one_device(jax_ctx: Any) -> bool:
    """Return whether the module is not partitioned, or is what one device does in a `shard_map`."""
    where = jax_ctx.module_context.axis_context
    mapped = getattr(where, "manual_axes", None)
    return mapped == frozenset(where.mesh.axis_names) if mapped else getattr(where, "num_devices", 1) == 1


def is_someone_elses() -> bool:
    """Return whether the lowered program is inside a function that is not ours."""
    function = ir.InsertionPoint.current.block.owner
    return "sym_name" not in function.attributes or function.attributes["sym_name"].value != "main"


def can_be(program: Program, compile_alone: Callable[[Program], Any]) -> bool:
    """Return whether XLA can compile this kernel; tried once."""
    name = passes.kernels.name_of(program)
    if name not in _fine:
        outer = last()
        try:
            compile_alone(program)
        except RuntimeError as error:
            _refuse(program, error)
            return False
        finally:
            _lowered.kernels = outer
        _fine.add(name)
    return True


def last() -> list[Program]:
    """Return the kernels of the last module lowered in this thread."""
    return getattr(_lowered, "kernels", [])


def refuse(found: Sequence[Program], compile_alone: Callable[[Program], Any]) -> bool:
    """After a failed compilation, return whether one of these kernels caused it. That kernel is
    then refused, so the compilation may be repeated."""
    return not all([can_be(program, compile_alone) for program in found])


def lowered(program: Program) -> None:
    """Record that a kernel was added to the module."""
    _lowered.kernels.append(program)


def _refuse(program: Program, error: Exception) -> None:
    loops = [e for e in program.equations if e.primitive in passes.kernels.LOOPS] or program.equations
    name, where = passes.kernels.name_of(program), location(loops[0].source)
    passes.kernels.refuse(name)
    said = str(error).partition("\n")[0]
    _log.warning("XLA cannot compile the loop at %s to one kernel: %s. It runs as in JAX.", where, said)
    folder = _folder()
    if folder is not None and folder.is_dir():
        with (folder / _FILE).open("a") as file:
            file.write(f"{name} {where}\n")


def _folder() -> Path | None:
    folder = flags.jax_compilation_cache_dir
    return Path(folder) if folder and "://" not in folder else None


# --- StableHLO ------------------------------------------------------------------------------------


def outlined(name: Any, results: Sequence[Any], operands: Sequence[Any], **said: str) -> Any:
    """Emit the call of a function that XLA:CPU does not inline."""
    made = ir.Operation.create("func.call", results, operands, {"callee": name})
    made.attributes["mhlo.frontend_attributes"] = ir.DictAttr.get(
        {key: ir.StringAttr.get(value) for key, value in {"inlineable": "false", **said}.items()}
    )
    return made


def call(name: Any, results: Sequence[Any], operands: Sequence[Any]) -> Any:
    """Emit the call of a function as a kernel. The operands pass through an optimization barrier:
    otherwise XLA would propagate constant operands into the function; see `first_elements`."""
    if operands:
        kinds = [x.type for x in operands]
        operands = list(ir.Operation.create("stablehlo.optimization_barrier", kinds, operands).results)
    return outlined(name, results, operands, xla_cpu_small_call="true")


def with_threads(going: Any) -> Any:
    """Return the condition of a loop such that XLA does not make the loop one kernel: none can read the
    number of the replica, which is less than 2^32 - 1."""
    replica = hlo.replica_id()
    most: Any = ir.DenseElementsAttr.get(memoryview(b"\xff" * 4), type=replica.type)
    there = hlo.compare(replica, hlo.constant(most), hlo.ComparisonDirectionAttr.get("NE"))
    return hlo.and_(going, there)


def first_types(types: Sequence[Any]) -> list[Any]:
    """Return the types of the `first_elements` of operands of these types: one per element type."""
    kinds = [t.element_type for t in types]
    return [ir.RankedTensorType.get([kinds.count(k)], k) for k in dict.fromkeys(kinds)]


def first_elements(values: Any, made: Any) -> Any:
    """Return the first elements of the values with the element type of `made`, as a vector. A
    kernel returns these so that it reads all its operands: XLA aborts the process over an unused
    one."""
    kind = made.element_type
    one, parts = ir.RankedTensorType.get([1], kind), []
    for x in values:
        if x.type.element_type == kind:
            if n := x.type.rank:
                x = hlo.slice(x, [0] * n, [1] * n, [1] * n)
            parts.append(hlo.reshape(one, x))
    return hlo.concatenate(parts, 0) if len(parts) > 1 else parts[0]
