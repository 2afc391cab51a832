"""Lowering of programs to StableHLO, in the module that JAX is building."""

from __future__ import annotations

import inspect
import itertools
import operator
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import jax
import numpy as np
from jax._src import config as _config
from jax.interpreters import mlir

from functrans import passes
from functrans.backends import convolutions, cpu, kernel_calls, uncontracted
from functrans.ir.program import Equation, Literal, Program, results_by_age
from functrans.ir.source import Source, line_of
from functrans.ir.types import ArrayType, dtype_class, is_key_dtype
from functrans.mlir import func as func_dialect
from functrans.mlir import hlo, ir
from functrans.passes.machines import LARGE
from functrans.primitives.calls.callback import calls_of
from functrans.primitives.distributed.sharding import automatic_axes
from functrans.primitives.random.bits import word_type
from functrans.primitives.shape.moving import Moving
from functrans.tracer import aval_of

_source = operator.attrgetter("source")
_type = operator.attrgetter("type")
_TAKES_CONTEXT = "ctx" in inspect.signature(mlir.aval_to_ir_type).parameters


def _is_rewritten(e: Equation) -> bool:
    """Return whether passes may rewrite a single operation; for others they need not be loaded."""
    return e.primitive.holds_programs or any([v.type.size >= LARGE for v in e.outputs])


class Lowering:
    """The context passed to a primitive's `lower`: its types, and helpers to emit operations.

    in_types, out_types : operand and result types of the equation being lowered
    platform            : "cpu", "gpu", "tpu", ..., or None when lowering for several at once
    """

    def __init__(self, jax_ctx: Any, compile_alone: Callable[[Program], Any], alone: bool):
        self.jax_ctx = jax_ctx
        self.module_ctx: Any = jax_ctx.module_context
        platforms = jax_ctx.platforms or self.module_ctx.platforms
        known = [{"cuda": "gpu", "rocm": "gpu"}.get(p, p) for p in platforms]
        self.platform: str | None = known[0] if len(known) == 1 else None
        self.on_this_cpu: bool = self.platform == "cpu" and kernel_calls.may_be_used(jax_ctx)
        self._single = alone  # it is a single operation
        self._outermost = True  # the next program is the outermost one
        self.in_main: bool = False  # the operations are those of the outermost program
        self._can_be_kernel = kernel_calls.start(compile_alone) if self.on_this_cpu else None
        self.in_types: Sequence[ArrayType] = ()
        self.out_types: Sequence[ArrayType] = ()
        self._masks: Sequence[Any] = ()  # in a loop without contractions (uncontracted.py)
        self.tokens: Any = jax_ctx.tokens_in  # the tokens that sequence ordered effects
        self._called: list[tuple[Program, Any, Any]] = []  # functions declared without a body yet
        self._calls: dict[Program, Any] = {}
        self._types: dict[ArrayType, Any] = {}
        self._attributes: dict[Any, Any] = {}
        self._starts: dict[Any, Any] = {}  # initial values of reductions in the current function
        self._locations: dict[Source, Any] = {}

    # --- whole programs

    def run_in_the_calling_thread(self, why: Callable[..., Any]) -> None:
        """Have the thread that calls run the program, as XLA:CPU runs those with host callbacks."""
        if not kernel_calls.is_someone_elses():
            self.module_ctx.add_host_callback(why)

    def emit(self, program: Program, operands: Sequence[Any]) -> list[Any]:
        """Emit the operations of a program into the current function."""
        if self.platform == "cpu":
            program = passes.fusion_boundaries.unfused(program, self.on_this_cpu)
        outermost, self._outermost = self._outermost, False
        if not (outermost and self._single) or any(map(_is_rewritten, program.equations)):
            if self.on_this_cpu:
                program = passes.kernels.kernels(program, self._can_be_kernel)
            elif self.platform == "gpu" and outermost:
                alone = kernel_calls.is_for_one_device(self.jax_ctx)
                program = passes.launches.fewer_launches(program, alone)
        env: dict[Any, Any] = dict(zip((*program.constants, *program.inputs), operands, strict=True))
        literals: dict[tuple[Any, ...], Any] = {}
        outer, self._starts = self._starts, {}
        around, self.in_main = self.in_main, outermost

        def filled(v: Literal) -> Any:
            key = (v.value, v.value.__class__, v.type, str(v.value))
            if key not in literals:
                literals[key] = self.full(v.value, v.type)
            return literals[key]

        for source, equations in itertools.groupby(program.equations, _source):
            with self._location(source):  # entered once per run of equations from one source line
                for eqn in equations:
                    primitive, inputs, outputs = eqn.primitive, eqn.inputs, eqn.outputs
                    self.in_types = [*map(_type, inputs)]
                    self.out_types = [*map(_type, outputs)]
                    given = [filled(v) if v.__class__ is Literal else env[v] for v in inputs]
                    params = eqn.params
                    if isinstance(primitive, Moving) and is_key_dtype(self.in_types[0].dtype):
                        self.in_types = [*map(word_type, self.in_types)]
                        self.out_types = [*map(word_type, self.out_types)]
                        params = primitive.under_trailing_axis(self.in_types[0].shape[-1], params)
                    outs = primitive.lower(self, *given, **params)
                    if self._masks and uncontracted.is_of_several(primitive):
                        outs = uncontracted.rounded(self, outs, self.out_types[0], self._masks)
                    if primitive.multiple_results:
                        env.update(zip(outputs, outs, strict=True))
                    else:
                        env[outputs[0]] = outs
        self._starts, self.in_main = outer, around
        return [filled(v) if v.__class__ is Literal else env[v] for v in program.outputs]

    def call(self, program: Program, operands: Sequence[Any]) -> list[Any]:
        """Emit a call of the program as a separate function, emitted once per module. A program
        with ordered effects is inlined; so is one with callbacks, except on CPU and GPU, since
        elsewhere each callback needs its own operation.
        """
        if self._masks:
            return self.emit(program, operands)
        found = self._calls.get(program)
        if found is None:
            found = self._calls[program] = self._callee(program)
        name, results, places = found
        if name is None:
            return self.emit(program, operands)
        made = ir.Operation.create("func.call", results, operands, name).results
        return [*map(made.__getitem__, places)]

    def _callee(self, program: Program) -> tuple[dict[str, Any] | None, list[Any], list[int]]:
        """Return a function's callee (None: inline it), result types, and each result's position."""
        calls = calls_of(program)
        if calls.ordered or (calls.any and self.platform not in ("cpu", "gpu")):
            return None, [], []
        cache, key = self.module_ctx.cached_primitive_lowerings, (Lowering, program)
        ordered, places = results_by_age(program)
        if key not in cache:
            cache[key] = self._declare(ordered)
        return {"callee": cache[key]}, [self.type(t) for t in ordered.out_types], places

    def kernel(self, program: Program, operands: Sequence[Any]) -> list[Any]:
        """Emit a call of the program that XLA:CPU compiles into one kernel."""
        if not self.on_this_cpu:
            return self.call(program, operands)
        kernel_calls.lowered(program)
        if program.marks.uncontracted:
            operands = [*operands, *(self._masks or uncontracted.masks(self, [program]))]
        firsts = kernel_calls.first_types([x.type for x in operands])
        results = [self.type(t) for t in program.out_types]
        name = self._declare(program, firsts)
        made = kernel_calls.call(name, [*results, *firsts], operands)
        return list(made.results)[: len(results)]

    def call_outlined(self, program: Program, operands: Sequence[Any]) -> list[Any]:
        """Emit a call of the program as a separate function that XLA:CPU does not inline."""
        results = [self.type(t) for t in program.out_types]
        return list(kernel_calls.outlined(self._declare(program), results, operands).results)

    def _declare(self, program: Program, firsts: Sequence[Any] = ()) -> Any:
        """Declare a function. `firsts`: types of extra results, the first elements of operands."""
        results = [*[self.type(t) for t in program.out_types], *firsts]
        operands = [self.type(t) for t in uncontracted.operands(program)]
        function, name = self._function(program.name or "call", operands, results)
        self._called.append((program, function, firsts))
        return name

    def _function(self, name: str, operands: Sequence[Any], results: Sequence[Any]) -> tuple[Any, Any]:
        """Declare a function of these types; return it and its name in the module."""
        kind = ir.FunctionType.get(operands, results)
        function = func_dialect.FuncOp(name, kind, ip=self.module_ctx.ip)
        function.attributes["sym_visibility"] = ir.StringAttr.get("private")
        unique = self.module_ctx.symbol_table.insert(function)
        return function, ir.FlatSymbolRefAttr.get(unique.value)

    def emit_called(self) -> None:
        """Emit the bodies of the declared functions; a worklist, so that nesting is not limited."""
        self.tokens = mlir.TokenSet()
        while self._called:
            program, function, firsts = self._called.pop()
            block = function.add_entry_block()
            with ir.InsertionPoint(block):
                n, given = len(program.in_types), [*block.arguments]
                self._masks = given[n:]
                outs = self.emit(program, given[:n])
                outs += [kernel_calls.first_elements(given, kind) for kind in firsts]
                func_dialect.ReturnOp(outs)

    def _location(self, source: Source | None) -> Any:
        if source is None:
            return ir.Location.unknown()
        found = self._locations.get(source)
        if found is None:
            code, _, scope = source
            at = ir.Location.file(code.co_filename, line_of(source), 0)
            name = f"{self.jax_ctx.name_stack}/{scope}{code.co_name}"
            found = self._locations[source] = ir.Location.name(name, at)
        return found

    # --- control flow

    def case(self, index: Any, branches: Sequence[Program], operands: Sequence[Any]) -> list[Any]:
        """Emit a `stablehlo.case` that selects a branch by an int32 scalar, clamped to range."""
        kind = ArrayType((), np.dtype(np.int32))
        last = self.full(len(branches) - 1, kind)
        index = hlo.clamp(self.full(0, kind), index, last)
        tokens = self.tokens
        results = [self.type(t) for t in branches[0].out_types]
        results += [x.type for _, x in tokens.items()]
        made = ir.Operation.create("stablehlo.case", results, [index], None, None, len(branches))
        for region, branch in zip(made.regions, branches, strict=True):
            with ir.InsertionPoint(region.blocks.append()):
                hlo.return_(self._with_tokens(self.emit(branch, operands)))
            self.tokens = tokens
        return self._take_tokens(made.results)

    def loop(
        self,
        test: Callable[[Sequence[Any]], Any],
        body: Callable[[Sequence[Any]], Sequence[Any]],
        carry: Sequence[Any],
        step: Sequence[Program],
    ) -> list[Any]:
        """Emit `while test(carry): carry = body(carry)`; both functions emit operations, those of the
        programs `step`."""
        is_shared = self.on_this_cpu and passes.threads.are_shared(step)

        def testing(xs: Sequence[Any]) -> Sequence[Any]:
            return [kernel_calls.with_threads(test(xs)) if is_shared else test(xs)]

        def stepping(xs: Sequence[Any]) -> Sequence[Any]:
            return self._with_tokens(body(xs))

        outer = self._masks
        self._masks = outer or uncontracted.masks(self, step)
        carry = self._with_tokens(carry)
        kinds = [x.type for x in carry]
        made = ir.Operation.create("stablehlo.while", kinds, carry, None, None, 2)
        for region, emit in zip(made.regions, (testing, stepping), strict=True):
            block = region.blocks.append(*kinds, arg_locs=[ir.Location.unknown()] * len(kinds))
            with ir.InsertionPoint(block):
                hlo.return_(emit(self._take_tokens(block.arguments)))
        self._masks = outer
        return self._take_tokens(made.results)

    def _with_tokens(self, values: Sequence[Any]) -> list[Any]:
        """Return the values followed by the tokens of ordered effects."""
        return [*values, *[x for _, x in self.tokens.items()]]

    def _take_tokens(self, values: Sequence[Any]) -> list[Any]:
        """Remove the trailing tokens from the values, and make them the current tokens."""
        n = len(values) - len(self.tokens)
        effects = [effect for effect, _ in self.tokens.items()]
        self.tokens = mlir.TokenSet(dict(zip(effects, values[n:], strict=True)))
        return list(values[:n])

    def counted_loop(
        self,
        program: Program,
        length: int,
        consts: Sequence[Any],
        state: Sequence[Any],
        arrays: Sequence[Any],
        written: Sequence[Any],
        reverse: bool,
        unroll: int,
    ) -> list[Any]:
        """Emit `for i in range(length): *state, *row = program(*consts, *state, *arrays[i])`, with
        each row written to `written[i]`; return the final state and the written arrays. One turn of
        the emitted loop runs `unroll` steps, and reads and writes their rows at once."""
        c, s, a = len(consts), len(state), len(arrays)
        kind = ArrayType((), np.dtype(np.int32))

        def turn(i: Any, values: Sequence[Any], steps: int) -> list[Any]:
            if reverse:
                i = hlo.subtract(self.full(length - steps, kind), i)
            read = [self._rows(x, i, steps) for x in values[c : c + a]]
            state, made = values[c + a : c + a + s], []
            for j in reversed(range(steps)) if reverse else range(steps):
                outs = self.emit(program, [*values[:c], *state, *[cpu.part(x, 0, j) for x in read]])
                state = outs[:s]
                made.append(outs[s:])
            rows = zip(*reversed(made) if reverse else made, strict=True)
            ends = [self._write(w, row, i) for w, row in zip(values[c + a + s :], rows, strict=True)]
            return [*values[: c + a], *state, *ends]

        unroll = max(1, min(unroll, length))
        turns, values = length // unroll, [*consts, *arrays, *state, *written]
        if turns > 1:
            stop = self.full(turns * unroll, kind)
            direction = hlo.ComparisonDirectionAttr.get("LT")
            ended = self.loop(
                lambda xs: hlo.compare(xs[0], xs[1], direction),
                lambda xs: [hlo.add(xs[0], self.full(unroll, kind)), xs[1], *turn(xs[0], xs[2:], unroll)],
                [self.full(0, kind), stop, *values],
                [program],
            )
            values = ended[2:]
        done = turns * unroll if turns > 1 else 0
        if done < length:
            values = turn(self.full(done, kind), values, length - done)
        return values[c + a :]

    def _rows(self, x: Any, i: Any, n: int) -> Any:
        shape = ir.RankedTensorType(x.type).shape
        zero = self.full(0, ArrayType((), np.dtype(np.int32)))
        return hlo.dynamic_slice(x, [i, *[zero] * (len(shape) - 1)], [n, *shape[1:]])

    def _write(self, x: Any, rows: Sequence[Any], i: Any) -> Any:
        shape = ir.RankedTensorType(x.type).shape
        zero = self.full(0, ArrayType((), np.dtype(np.int32)))
        kind = ir.RankedTensorType.get([1, *shape[1:]], ir.RankedTensorType(x.type).element_type)
        made = [hlo.reshape(kind, row) for row in rows]
        block = made[0] if len(made) == 1 else hlo.concatenate(made, 0)
        return hlo.dynamic_update_slice(x, block, [i, *[zero] * (len(shape) - 1)])

    # --- types and snippets

    def type(self, t: ArrayType) -> Any:
        """Return the MLIR type of an ArrayType."""
        found = self._types.get(t)
        if found is None:
            args = (self.module_ctx, aval_of(t)) if _TAKES_CONTEXT else (aval_of(t),)
            found = self._types[t] = mlir.aval_to_ir_type(*args)
        return found

    def constant(self, array: np.ndarray) -> Any:
        """Emit a constant array."""
        return mlir.ir_constant(np.asarray(array))

    def op(
        self,
        name: str,
        operands: Sequence[Any],
        attributes: dict[str, Any] | None = None,
        type: ArrayType | None = None,
    ) -> Any:
        """Emit one operation by name (`"stablehlo.add"`), by default with the equation's result
        type. Giving the type explicitly is 3 to 10 times faster than the dialect's Python
        functions, which infer it."""
        t = self.out_types[0] if type is None else type
        made = ir.Operation.create(name, [self.type(t)], operands, attributes).result
        is_product = self._masks and name in uncontracted.PRODUCTS
        return uncontracted.rounded(self, made, t, self._masks) if is_product else made

    def quotient(self, primitive: Any, x: Any, y: Any) -> Any:
        """Emit `div` or `rem`. Constants are divided here: XLA ends the process, in JAX 0.10, where it
        divides constant integers by zero."""
        numbers = cpu.constants_of(self.out_types[0].dtype, x, y)
        if numbers is None:
            return self.op(primitive.op_name, [x, y])
        return self.constant(primitive.reference(*numbers))

    def full(self, value: Any, t: ArrayType) -> Any:
        """Emit a constant array filled with one number."""
        kind = dtype_class(t.dtype)
        if kind not in ("float", "int", "uint", "bool"):
            scalar = mlir.ir_constant(np.full((), value, t.dtype))
            return self.op("stablehlo.broadcast_in_dim", [scalar], self.axes(()), t)
        array = self.type(t)
        if kind == "float":
            number: Any = ir.FloatAttr.get(array.element_type, float(value))
        else:
            whole = int(bool(value) if kind == "bool" else value)
            signed = whole - 2**64 if whole >= 2**63 else whole  # IntegerAttr takes an int64
            number = ir.IntegerAttr.get(array.element_type, signed)
        splat = ir.DenseElementsAttr.get_splat(array, number)
        return ir.Operation.create("stablehlo.constant", [array], [], {"value": splat}).result

    def axes(self, axes: Sequence[int], name: str = "broadcast_dimensions") -> dict[str, Any]:
        """Return a list of axes as the attributes of an operation."""
        return {name: ir.DenseI64ArrayAttr.get(axes)}

    def attribute(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return `make()`, cached by `key` for this lowering."""
        found = self._attributes.get(key)
        if found is None:
            found = self._attributes[key] = make()
        return found

    def transposed_copy(self, x: Any, order: Sequence[int]) -> Any:
        """Emit a transpose of x that XLA:CPU does not fuse with what computes a large x, which would
        compute it by columns."""
        kind = ir.RankedTensorType.get([x.type.shape[i] for i in order], x.type.element_type)
        if not self.on_this_cpu or x.owner.__class__ is ir.Block or not cpu.is_copied(kind):
            return hlo.transpose(x, order)
        return self._alone(lambda x: [hlo.transpose(x, order)], tuple(order), [kind], x)[0]

    def reduce(self, op: Any, x: Any, start: Any, axes: Sequence[int]) -> Any:
        """Emit a reduction of x, of the first operand's type, over `axes` with a binary operation
        such as `hlo.AddOp` and the initial value `start`."""
        dtype = self.in_types[0].dtype
        if self.platform == "cpu" and (sizes := cpu.folds_long_rows(self.in_types[0], axes)):
            return cpu.by_halves(op, x, sizes, self.type(self.out_types[0]))
        if self.on_this_cpu:  # between devices, only reductions that XLA knows are possible
            op = cpu.unmatched(op, self.in_types[0], axes)
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

    def with_rows(self, x: Any, y: Any, n: int) -> tuple[Any, Any, list[ArrayType]] | None:
        """Collapse the first n axes of two operands, which are summed, to one; return them and their types.
        Otherwise XLA:CPU may transpose one for each product; of small floats its library asks for that."""
        if self.platform != "cpu" or n < 2 or self.in_types[0].dtype.itemsize < 4:
            return None
        types = [t.update(shape=(prod(t.shape[:n]), *t.shape[n:])) for t in self.in_types]
        x, y = [self.op("stablehlo.reshape", [v], None, t) for v, t in zip((x, y), types, strict=True)]
        return x, y, types

    def crossed(self, x: Any, y: Any, lhs: Sequence[int], rhs: Sequence[int], out: Any) -> Any:
        """Emit a contraction of large matrices x and transposed y in a form that is faster on this
        platform; else return None. See `cpu.crosses`."""
        a, b = self.in_types
        if self.platform != "cpu" or not cpu.crosses(a, lhs, rhs, out):
            return None
        if out == (lhs[1],):
            x, y, self.in_types = y, x, (b, a)
        return self.via_jax(cpu.crossed if out else lambda x, y: cpu.crossed(x, y).sum(), x, y)[0]

    def has_few_terms(self, lhs: Sequence[int], rhs: Sequence[int], out: Sequence[int]) -> bool:
        """Return whether the sum of its terms is faster here than a product."""
        x, y = self.in_types
        return self.platform == "cpu" and passes.fusion_boundaries.has_few_terms(x, y, lhs, rhs, out)

    def faster_convolution(self, x: Any, y: Any, axes: dict[str, Any], precision: Any) -> Any:
        """Emit a convolution in a form that is faster on this platform; else return None."""
        function, alone = convolutions.faster(self, axes, precision)
        if function is None or (alone and not self.on_this_cpu):
            return None
        if not alone:
            return self.via_jax(function, x, y)[0]
        return self.outlined(function, tuple(axes.items()), x, y)[0]

    def has_small_windows(self, sizes: Sequence[int]) -> bool:
        """Return whether summing each element's contributions is faster on this platform than
        scattering to the selected elements of windows of these sizes."""
        return self.platform == "cpu" and cpu.has_small_windows(sizes)

    def outlined(self, function: Callable[..., Any], key: Any, *operands: Any) -> Any:
        """Lower through a JAX function, as a function of its own that XLA:CPU does not inline: its
        operations are not fused with those outside, and not computed again for each reader."""
        results = [self.type(t) for t in self.out_types]
        return self._alone(lambda *xs: self.via_jax(function, *xs), key, results, *operands)

    def _alone(
        self, emit: Callable[..., Sequence[Any]], key: Any, results: Sequence[Any], *operands: Any
    ) -> Any:
        """Emit what XLA:CPU must not inline; calls of one key, types and name share the function."""
        name = getattr(ir.Location.current, "name_str", "")
        kinds = [x.type for x in operands]
        shared = (Lowering, key, *kinds, *results, name)
        cache = self.module_ctx.cached_primitive_lowerings
        if shared not in cache:
            made, cache[shared] = self._function("outlined", kinds, results)
            block = made.add_entry_block()
            with ir.InsertionPoint(block):
                func_dialect.ReturnOp(emit(*block.arguments))
        return kernel_calls.outlined(cache[shared], results, operands).results

    def via_jax(self, function: Callable[..., Any], *operands: Any) -> Any:
        """Lower through a JAX function of the operands, for long lowerings; return a list."""
        stack = f"{self.jax_ctx.name_stack}/"  # name JAX's operations after our equation
        name = getattr(ir.Location.current, "name_str", "").removeprefix(stack)
        named = jax.named_scope(name)(function)
        rule = mlir.lower_fun(lambda *xs: jax.tree.leaves(named(*xs)), multiple_results=True)
        with automatic_axes(), _config._check_vma(False):  # our types have no shardings or varying axes
            context = self.jax_ctx.replace(
                avals_in=[aval_of(t) for t in self.in_types],
                avals_out=[aval_of(t) for t in self.out_types],
                tokens_in=self.tokens,
                tokens_out=None,
            )
            outs = list(rule(context, *operands))
        if context.tokens_out:
            self.tokens = context.tokens_out
        return outs
