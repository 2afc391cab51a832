"""Loops that XLA:CPU compiles into one kernel: the call that says so, and what is done where XLA
cannot compile it.

XLA's emitter of kernels has gaps. When a compilation fails, each kernel that was in it is compiled
alone (`refuse`); those that fail are refused from then on, in this process and, where JAX keeps
compilations in a folder, by those that come after it. Inside someone else's `jax.jit`, whose
compilation we do not see fail, each is tried before it is put there.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from functrans.flags import flags
from functrans.ir.program import Program
from functrans.ir.source import location
from functrans.mlir import hlo, ir
from functrans.passes import kernels

_SAYS_SO = {"xla_cpu_small_call": "true", "inlineable": "false"}
_FILE = "functrans_refused_kernels.txt"
_log = logging.getLogger("functrans")
_lowered = threading.local()  # .kernels: the programs of those in the last module
_fine: set[str] = set()  # names of kernels that were tried
_read: set[Path] = set()


def start(compile_alone: Callable[[Program], Any]) -> Callable[[Program], bool] | None:
    """A module begins -> what is asked of each kernel before it is put there, if anything is."""
    _lowered.kernels = []
    folder = _folder()
    if folder is not None and folder not in _read:
        _read.add(folder)
        if (folder / _FILE).exists():
            kernels.refuse(*[line.split()[0] for line in (folder / _FILE).open()])
    return (lambda program: can_be(program, compile_alone)) if _is_someone_elses() else None


def may_be_used(jax_ctx: Any) -> bool:
    """Is it for this process's CPU alone? What is exported runs elsewhere, and what is divided
    among devices has operations of theirs in it."""
    module = jax_ctx.module_context
    devices = getattr(module.axis_context, "num_devices", 1)
    return devices == 1 and not module.lowering_parameters.for_export


def _is_someone_elses() -> bool:
    """Is the function being lowered called by one that is not ours?"""
    function = ir.InsertionPoint.current.block.owner
    return "sym_name" not in function.attributes or function.attributes["sym_name"].value != "main"


def can_be(program: Program, compile_alone: Callable[[Program], Any]) -> bool:
    """Does XLA compile it? Asked once."""
    name = kernels.name_of(program)
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
    """The kernels of the last module of this thread."""
    return getattr(_lowered, "kernels", [])


def refuse(found: Sequence[Program], compile_alone: Callable[[Program], Any]) -> bool:
    """After a failure: was it that of one of these? Then it will not be a kernel again, and the
    compilation may be repeated."""
    return not all([can_be(program, compile_alone) for program in found])


def lowered(program: Program) -> None:
    """A kernel was put into the module."""
    _lowered.kernels.append(program)


def _refuse(program: Program, error: Exception) -> None:
    name, where = kernels.name_of(program), location(program.equations[0].source)
    kernels.refuse(name)
    said = str(error).partition("\n")[0]
    _log.warning(
        "XLA cannot make one kernel of the loop at %s: %s. It runs as in JAX.", where, said
    )
    folder = _folder()
    if folder is not None and folder.is_dir():
        with (folder / _FILE).open("a") as file:
            file.write(f"{name} {where}\n")


def _folder() -> Path | None:
    folder = flags.jax_compilation_cache_dir
    return Path(folder) if folder and "://" not in folder else None


# --- StableHLO ------------------------------------------------------------------------------------


def call(name: Any, results: Sequence[Any], operands: Sequence[Any]) -> Any:
    """The operation that calls a function as a kernel. Behind a barrier, because XLA puts operands
    that it knows into the function instead of reading them; see `first_elements`."""
    if operands:
        kinds = [x.type for x in operands]
        operands = ir.Operation.create("stablehlo.optimization_barrier", kinds, operands).results
    made = ir.Operation.create("func.call", results, operands, {"callee": name})
    made.attributes["mhlo.frontend_attributes"] = ir.DictAttr.get(
        {key: ir.StringAttr.get(value) for key, value in _SAYS_SO.items()}
    )
    return made


def first_types(types: Sequence[Any]) -> list[Any]:
    """The types of `first_elements` of operands of these: one for each element type."""
    kinds = [t.element_type for t in types]
    return [ir.RankedTensorType.get([kinds.count(k)], k) for k in dict.fromkeys(kinds)]


def first_elements(values: Any, made: Any) -> Any:
    """The first element of each value of one element type, as a vector. A kernel gives these so
    that it reads all its operands: XLA ends the process over one that does not."""
    kind, integers = made.element_type, ir.DenseI64ArrayAttr.get
    one, parts = ir.RankedTensorType.get([1], kind), []
    for x in values:
        if x.type.element_type == kind:
            if n := x.type.rank:
                x = hlo.slice(x, integers([0] * n), integers([1] * n), integers([1] * n))
            parts.append(hlo.reshape(one, x))
    return hlo.concatenate(parts, 0) if len(parts) > 1 else parts[0]
