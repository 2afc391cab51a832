"""Programs as StableHLO, and their execution by XLA through `jax.jit`.

One JAX primitive, `functrans`, stands for a whole Program; its lowering rule emits the equations.
So dispatch, donation, shardings, ahead-of-time compilation, the persistent cache and every platform
are JAX's own. This file and `interop/` are the only ones that touch JAX's internals.
"""

from __future__ import annotations

import inspect
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import Primitive as JaxPrimitive
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import func as func_dialect
from jax.extend.mlir.dialects import stablehlo as hlo
from jax.interpreters import mlir

from functrans.backends import cpu
from functrans.ir.program import Equation, Literal, Program
from functrans.ir.source import Source, line_of
from functrans.ir.types import ArrayType, dtype_class

# --- the JAX primitive that a program becomes -----------------------------------------------------

_program_p = JaxPrimitive("functrans")
_program_p.multiple_results = True


def abstract(t: ArrayType) -> Any:
    """The JAX abstract value of a type."""
    return jax.core.ShapedArray(t.shape, t.dtype, weak_type=t.weak_type)


def run_program(program: Program, args: Sequence[Any]) -> list[Any]:
    """Apply a program to JAX values: called while `jax.jit` traces, it adds one equation there."""
    return _program_p.bind(*program.values, *args, program=program)


@_program_p.def_abstract_eval
def _abstract_eval(*avals: Any, program: Program) -> list[Any]:
    return [abstract(t) for t in program.out_types]


@_program_p.def_impl
def _impl(*args: Any, program: Program) -> list[Any]:
    return executable(program)(*args)


def executable(program: Program) -> Callable[..., list[Any]]:
    """The program as a compiled function of concrete arrays, constants first; made once."""
    made = program.cache.get("executable")
    if made is None:
        made = jax.jit(lambda *args: _program_p.bind(*args, program=program))
        program.cache["executable"] = made
    return made


def _lower_rule(jax_ctx: Any, *operands: Any, program: Program) -> Any:
    lowering = Lowering(jax_ctx)
    outs = lowering.emit(program, operands)
    lowering.emit_called()
    return outs


mlir.register_lowering(_program_p, _lower_rule)


# --- lowering -------------------------------------------------------------------------------------

_source = operator.attrgetter("source")
_TAKES_CONTEXT = "ctx" in inspect.signature(mlir.aval_to_ir_type).parameters


class Lowering:
    """What a primitive's `lower` is given: types of its operands and results, and common snippets.

    in_types, out_types : of the equation being lowered
    platform            : "cpu", "gpu", "tpu", ..., or None when it is lowered for several at once
    """

    def __init__(self, jax_ctx: Any):
        self.jax_ctx = jax_ctx
        self.module_ctx = jax_ctx.module_context
        platforms = jax_ctx.platforms or self.module_ctx.platforms
        known = [{"cuda": "gpu", "rocm": "gpu"}.get(p, p) for p in platforms]
        self.platform = known[0] if len(known) == 1 else None
        self.in_types: Sequence[ArrayType] = ()
        self.out_types: Sequence[ArrayType] = ()
        self._called: list[tuple[Program, Any]] = []  # declared, body still to be emitted
        self._types: dict[ArrayType, Any] = {}
        self._attributes: dict[Any, Any] = {}
        self._starts: dict[Any, Any] = {}  # of reductions, in the function being emitted
        self._locations: dict[Source, Any] = {}

    # --- whole programs

    def emit(self, program: Program, operands: Sequence[Any]) -> list[Any]:
        """The operations of a program in the function that is being built."""
        env: dict[Any, Any] = dict(
            zip((*program.constants, *program.inputs), operands, strict=True)
        )
        literals: dict[tuple, Any] = {}
        outer, self._starts = self._starts, {}

        def value(v: Any) -> Any:
            if v.__class__ is not Literal:
                return env[v]
            key = (v.value, v.value.__class__, v.type, str(v.value))
            if key not in literals:
                literals[key] = self.full(v.value, v.type)
            return literals[key]

        for source, equations in itertools.groupby(program.equations, _source):
            with self._location(source):  # entered once for a run of equations of one line
                for eqn in equations:
                    self._emit_one(eqn, env, value)
        self._starts = outer
        return [value(v) for v in program.outputs]

    def _emit_one(self, eqn: Equation, env: dict[Any, Any], value: Callable[[Any], Any]) -> None:
        self.in_types = [v.type for v in eqn.inputs]
        self.out_types = [v.type for v in eqn.outputs]
        primitive = eqn.primitive
        outs = primitive.lower(self, *[value(v) for v in eqn.inputs], **eqn.params)
        if primitive.multiple:
            env.update(zip(eqn.outputs, outs, strict=True))
        else:
            env[eqn.outputs[0]] = outs

    def call(self, program: Program, operands: Sequence[Any]) -> list[Any]:
        """A call of the program as a function of its own, emitted once per module."""
        cache = self.module_ctx.cached_primitive_lowerings
        key = (_program_p, program)
        if key not in cache:
            cache[key] = self._declare(program)
        results = [self.type(t) for t in program.out_types]
        return list(func_dialect.CallOp(results, cache[key], operands).results)

    def _declare(self, program: Program) -> Any:
        kind = ir.FunctionType.get(
            [self.type(t) for t in program.in_types], [self.type(t) for t in program.out_types]
        )
        function = func_dialect.FuncOp(program.name or "call", kind, ip=self.module_ctx.ip)
        function.attributes["sym_visibility"] = ir.StringAttr.get("private")
        name = self.module_ctx.symbol_table.insert(function)
        self._called.append((program, function))
        return ir.FlatSymbolRefAttr.get(name.value)

    def emit_called(self) -> None:
        """The bodies of the functions that were called; a list, so that nesting has no limit."""
        while self._called:
            program, function = self._called.pop()
            block = function.add_entry_block()
            with ir.InsertionPoint(block):
                func_dialect.ReturnOp(self.emit(program, block.arguments))

    def _location(self, source: Source | None) -> Any:
        if source is None:
            return ir.Location.unknown()
        found = self._locations.get(source)
        if found is None:
            code = source[0]
            at = ir.Location.file(code.co_filename, line_of(source), 0)
            found = self._locations[source] = ir.Location.name(code.co_name, at)
        return found

    # --- types and snippets

    def type(self, t: ArrayType) -> Any:
        """The MLIR type of a value."""
        found = self._types.get(t)
        if found is None:
            args = (self.module_ctx, abstract(t)) if _TAKES_CONTEXT else (abstract(t),)
            found = self._types[t] = mlir.aval_to_ir_type(*args)
        return found

    def constant(self, array: np.ndarray) -> Any:
        """A constant array."""
        return mlir.ir_constant(np.asarray(array))

    def op(
        self,
        name: str,
        operands: Sequence[Any],
        attributes: dict[str, Any] | None = None,
        type: ArrayType | None = None,
    ) -> Any:
        """One operation by its name (`"stablehlo.add"`), of the equation's result type unless
        another is given. Saying the type, not having it inferred, takes a third to a tenth of the
        time of the functions of the dialect's module."""
        made = self.type(self.out_types[0] if type is None else type)
        return ir.Operation.create(name, [made], operands, attributes).result

    def full(self, value: Any, t: ArrayType) -> Any:
        """An array filled with one number."""
        kind = dtype_class(t.dtype)
        if kind not in ("float", "int", "uint", "bool"):
            scalar = mlir.ir_constant(np.full((), value, t.dtype))
            return self.op("stablehlo.broadcast_in_dim", [scalar], self.axes(()), t)
        array = self.type(t)
        if kind == "float":
            number: Any = ir.FloatAttr.get(array.element_type, float(value))
        else:
            whole = int(bool(value) if kind == "bool" else value)
            signed = whole - 2**64 if whole >= 2**63 else whole  # the attribute takes int64
            number = ir.IntegerAttr.get(array.element_type, signed)
        splat = ir.DenseElementsAttr.get_splat(array, number)
        return ir.Operation.create("stablehlo.constant", [array], [], {"value": splat}).result

    def axes(self, axes: Sequence[int], name: str = "broadcast_dimensions") -> dict[str, Any]:
        """A list of axes as the attribute of an operation."""
        return {name: ir.DenseI64ArrayAttr.get(axes)}

    def attribute(self, key: Any, make: Callable[[], Any]) -> Any:
        """What `make` makes, once for all equations lowered here that ask with the same key."""
        found = self._attributes.get(key)
        if found is None:
            found = self._attributes[key] = make()
        return found

    def transpose(self, x: Any, order: Sequence[int]) -> Any:
        """x with its axes permuted."""
        return hlo.transpose(x, ir.DenseI64ArrayAttr.get(order))

    def reduce(self, op: Any, x: Any, start: Any, axes: Sequence[int]) -> Any:
        """Fold `axes` of x, of the first operand's type, with a binary operation such as
        `hlo.AddOp`, from `start`."""
        dtype = self.in_types[0].dtype
        if self.platform == "cpu" and (sizes := cpu.folds_long_rows(self.in_types[0], axes)):
            return cpu.by_halves(op, x, sizes, self.type(self.out_types[0]))
        scalar = self.type(ArrayType((), dtype))
        key = (start, dtype)
        if key not in self._starts:
            self._starts[key] = self.full(start, ArrayType((), dtype))
        made = ir.Operation.create(
            "stablehlo.reduce",
            [self.type(self.out_types[0])],
            [x, self._starts[key]],
            self.axes(axes, "dimensions"),
            None,
            1,
        )
        block = made.regions[0].blocks.append(scalar, scalar)
        with ir.InsertionPoint(block):
            ir.Operation.create("stablehlo.return", [], [op(*block.arguments).result])
        return made.result

    def via_jax(self, function: Callable[..., Any], *operands: Any) -> Any:
        """Lower through a JAX function of the operands; for operations with long lowerings. Results
        as a list."""
        context = self.jax_ctx.replace(
            avals_in=[abstract(t) for t in self.in_types],
            avals_out=[abstract(t) for t in self.out_types],
        )
        rule = mlir.lower_fun(
            lambda *xs: jax.tree_util.tree_leaves(function(*xs)), multiple_results=True
        )
        return [y for y in rule(context, *operands)]
