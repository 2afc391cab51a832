"""Random straight-line programs under random compositions of transformations.

Each is executed three times in float64: compiled by XLA through functrans, by the reference
interpreter, and by JAX; and by the reference after each pass. Decisions (select, clamp, round) compare
with odd constants only, so that a rounding error never decides which side is taken.

`pytest -m heavy` runs many more of them, with another seed each time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import functrans as ft
import functrans.lax as flax
from functrans.ir import check, equal, parse, show
from tests.unit.test_passes_random import SETTINGS, try_all

Shape = tuple[int, ...]
Values = list[Any]

TOLERANCE = 1e-9  # relative to the largest number of a result: programs amplify roundings


@dataclass(frozen=True)
class Library:
    """functrans or JAX: transformations and operations."""

    api: Any
    lax: Any


OURS, THEIRS = Library(ft, flax), Library(jax, jax.lax)


@dataclass(frozen=True)
class Step:
    """One operation: values `operands` of the environment -> one more value of shape `shape`."""

    text: str
    operands: tuple[int, ...]
    run: Callable[..., Any]  # (library, *operands) -> value
    shape: Shape

    def __repr__(self) -> str:
        return f"{self.text}({', '.join(f'v{i}' for i in self.operands)}): {self.shape}"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # how hypothesis shows it
        printer.text(repr(self))


@dataclass(frozen=True)
class Steps:
    """A straight-line program; its results are the last value and the first step's."""

    inputs: tuple[Shape, ...]
    steps: tuple[Step, ...]

    def __call__(self, library: Library, xs: Sequence[Any]) -> Values:
        values = list(xs)
        for step in self.steps:
            values.append(step.run(library, *[values[i] for i in step.operands]))
        return [values[-1], values[len(self.inputs)]] if self.steps else values


# --- operations -----------------------------------------------------------------------------------

UNARY: dict[str, Callable[[Any, Any], Any]] = {
    "sin": lambda lax, x: lax.sin(x),
    "cos": lambda lax, x: lax.cos(x),
    "tanh": lambda lax, x: lax.tanh(x),
    "logistic": lambda lax, x: lax.logistic(x),
    "exp(tanh)": lambda lax, x: lax.exp(lax.tanh(x)),
    "expm1(sin)": lambda lax, x: lax.expm1(lax.sin(x)),
    "neg": lambda lax, x: lax.neg(x),
    "square": lambda lax, x: lax.square(lax.tanh(x)),
    "integer_pow": lambda lax, x: lax.integer_pow(lax.sin(x), 3),
    "rsqrt": lambda lax, x: lax.rsqrt(lax.add(lax.square(x), lax.full_like(x, 1.5))),
    "sqrt": lambda lax, x: lax.sqrt(lax.add(lax.square(x), lax.full_like(x, 0.5))),
    "log1p": lambda lax, x: lax.log1p(lax.square(x)),
    "clamp": lambda lax, x: lax.clamp(np.float64(-0.7123), x, np.float64(0.9321)),
    "max": lambda lax, x: lax.max(x, lax.full_like(x, 0.2137)),
    "round": lambda lax, x: lax.mul(x, lax.round(lax.mul(x, lax.full_like(x, 3.1415)))),
    "integers": lambda lax, x: lax.mul(
        lax.convert_element_type(
            lax.convert_element_type(lax.clamp(np.float64(-50.123), x, np.float64(50.321)), "int32"),
            "float64",
        ),
        lax.cos(x),
    ),
    "stop_gradient": lambda lax, x: lax.add(lax.stop_gradient(x), lax.sin(x)),
}

BINARY: dict[str, Callable[[Any, Any, Any], Any]] = {
    "add": lambda lax, x, y: lax.add(x, y),
    "sub": lambda lax, x, y: lax.sub(x, y),
    "mul": lambda lax, x, y: lax.mul(lax.sin(x), y),
    "div": lambda lax, x, y: lax.div(x, lax.add(lax.square(y), lax.full_like(y, 1.0))),
    "atan2": lambda lax, x, y: lax.atan2(x, lax.add(lax.square(y), lax.full_like(y, 1.0))),
    "pow": lambda lax, x, y: lax.pow(lax.add(lax.square(x), lax.full_like(x, 1.0)), lax.tanh(y)),
    "select": lambda lax, x, y: lax.select(lax.gt(x, lax.full_like(x, 0.1234)), y, lax.cos(x)),
}


def op_unary(draw: Any, shapes: Sequence[Shape]) -> Step:
    i = draw(index(shapes))
    name = draw(st.sampled_from(sorted(UNARY)))
    return Step(name, (i,), lambda L, x: UNARY[name](L.lax, x), shapes[i])


def op_binary(draw: Any, shapes: Sequence[Shape]) -> Step:
    i = draw(index(shapes))
    j = draw(st.sampled_from([k for k, s in enumerate(shapes) if s == shapes[i]]))
    name = draw(st.sampled_from(sorted(BINARY)))
    return Step(name, (i, j), lambda L, x, y: BINARY[name](L.lax, x, y), shapes[i])


def op_reduce(draw: Any, shapes: Sequence[Shape]) -> Step | None:
    i = draw(index(shapes))
    n = len(shapes[i])
    axes = tuple(draw(st.lists(st.integers(0, n - 1), unique=True))) if n else ()
    name = draw(st.sampled_from(["reduce_sum", "reduce_max", "reduce_prod"]))
    if name == "reduce_max" and len(set(shapes[i])) < 2:
        name = "reduce_sum"
    shape = tuple(s for k, s in enumerate(shapes[i]) if k not in axes)
    return Step(f"{name}{axes}", (i,), lambda L, x: getattr(L.lax, name)(x, axes=axes), shape)


def op_cumulative(draw: Any, shapes: Sequence[Shape]) -> Step | None:
    i = draw(index(shapes))
    if not shapes[i]:
        return None
    axis = draw(st.integers(0, len(shapes[i]) - 1))
    name, reverse = draw(st.sampled_from(["cumsum", "cumprod"])), draw(st.booleans())
    return Step(
        f"{name}[{axis}, {reverse}]",
        (i,),
        lambda L, x: getattr(L.lax, name)(x, axis=axis, reverse=reverse),
        shapes[i],
    )


def op_broadcast(draw: Any, shapes: Sequence[Shape]) -> Step | None:
    i = draw(index(shapes))
    old = shapes[i]
    if len(old) > 2:
        return None
    axis, size = draw(st.integers(0, len(old))), draw(st.integers(1, 3))
    shape = (*old[:axis], size, *old[axis:])
    kept = tuple(k for k in range(len(shape)) if k != axis)
    return Step(
        f"broadcast[{shape}, {kept}]", (i,), lambda L, x: L.lax.broadcast_in_dim(x, shape, kept), shape
    )


def op_layout(draw: Any, shapes: Sequence[Shape]) -> Step:
    i = draw(index(shapes))
    old = shapes[i]
    order = tuple(draw(st.permutations(range(len(old)))))
    shape = tuple(old[k] for k in order)
    kind = draw(st.sampled_from(["transpose", "reshape", "flatten", "rev"]))
    if kind == "transpose":
        return Step(f"transpose{order}", (i,), lambda L, x: L.lax.transpose(x, order), shape)
    if kind == "rev":
        return Step(f"rev{order[:1]}", (i,), lambda L, x: L.lax.rev(x, order[:1]), old)
    if kind == "flatten":
        shape = (int(np.prod(old)),)
    return Step(f"reshape{shape}", (i,), lambda L, x: L.lax.reshape(x, shape), shape)


def op_slice(draw: Any, shapes: Sequence[Shape]) -> Step:
    i = draw(index(shapes))
    start = tuple(draw(st.integers(0, n - 1)) for n in shapes[i])
    limit = tuple(draw(st.integers(a + 1, n)) for a, n in zip(start, shapes[i], strict=True))
    size = tuple(b - a for a, b in zip(start, limit, strict=True))
    if draw(st.booleans()):
        where = tuple(a + draw(st.integers(-1, 1)) for a in start)
        return Step(
            f"dynamic_slice[{where}, {size}]", (i,), lambda L, x: L.lax.dynamic_slice(x, where, size), size
        )
    return Step(f"slice[{start}, {limit}]", (i,), lambda L, x: L.lax.slice(x, start, limit), size)


def op_update(draw: Any, shapes: Sequence[Shape]) -> Step | None:
    i, j = draw(index(shapes)), draw(index(shapes))
    big, small = shapes[i], shapes[j]
    if len(big) != len(small) or any(m > n for m, n in zip(small, big, strict=True)):
        return None
    where = tuple(draw(st.integers(0, 2)) for _ in big)
    return Step(
        f"dynamic_update_slice{where}", (i, j), lambda L, x, y: L.lax.dynamic_update_slice(x, y, where), big
    )


def op_pad(draw: Any, shapes: Sequence[Shape]) -> Step:
    i = draw(index(shapes))
    config = tuple(
        (draw(st.integers(-1 if n > 1 else 0, 1)), draw(st.integers(0, 1)), draw(st.integers(0, 1)))
        for n in shapes[i]
    )
    shape = tuple(a + b + n + (n - 1) * c for (a, b, c), n in zip(config, shapes[i], strict=True))
    return Step(f"pad{config}", (i,), lambda L, x: L.lax.pad(x, np.float64(0.25), config), shape)


def op_concatenate(draw: Any, shapes: Sequence[Shape]) -> Step | None:
    i = draw(index(shapes))
    if not shapes[i]:
        return None
    axis = draw(st.integers(0, len(shapes[i]) - 1))

    def rest(s: Shape) -> Shape:
        return (*s[:axis], 0, *s[axis + 1 :])

    fitting = [k for k, s in enumerate(shapes) if len(s) == len(shapes[i]) and rest(s) == rest(shapes[i])]
    j = draw(st.sampled_from(fitting))
    size = shapes[i][axis] + shapes[j][axis]
    shape = (*shapes[i][:axis], size, *shapes[i][axis + 1 :])
    return Step(f"concatenate[{axis}]", (i, j), lambda L, x, y: L.lax.concatenate([x, y], axis), shape)


def op_dot(draw: Any, shapes: Sequence[Shape]) -> Step | None:
    i, j = draw(index(shapes)), draw(index(shapes))
    x, y = shapes[i], shapes[j]
    pairs = [(a, b) for a in range(len(x)) for b in range(len(y)) if x[a] == y[b]]
    chosen: list[tuple[int, int]] = []
    for a, b in draw(st.permutations(pairs))[: draw(st.integers(0, 2))]:
        if all(a != c and b != d for c, d in chosen):
            chosen.append((a, b))
    n_batch = draw(st.integers(0, len(chosen)))
    batch, summed = chosen[:n_batch], chosen[n_batch:]
    numbers = (
        (tuple(a for a, _ in summed), tuple(b for _, b in summed)),
        (tuple(a for a, _ in batch), tuple(b for _, b in batch)),
    )
    shape = (
        *[x[a] for a, _ in batch],
        *[n for a, n in enumerate(x) if a not in [c for c, _ in chosen]],
        *[n for b, n in enumerate(y) if b not in [d for _, d in chosen]],
    )
    if len(shape) > 3:
        return None
    return Step(f"dot_general{numbers}", (i, j), lambda L, x, y: L.lax.dot_general(x, y, numbers), shape)


def op_jit(draw: Any, shapes: Sequence[Shape]) -> Step:
    """A nested jitted program, of arguments or closing over them."""
    operands = tuple(draw(st.lists(index(shapes), min_size=1, max_size=2)))
    inner = draw(programs(tuple(shapes[i] for i in operands), 1, 3, SIMPLE))
    shape = inner.steps[-1].shape
    if draw(st.booleans()):
        return Step(
            f"jit{inner.steps}", operands, lambda L, *xs: L.api.jit(lambda *ys: inner(L, ys)[0])(*xs), shape
        )
    return Step(
        f"jit, closed over {inner.steps}",
        operands,
        lambda L, *xs: L.api.jit(lambda: inner(L, xs)[0])(),
        shape,
    )


def index(values: Sequence[Any]) -> Any:
    return st.integers(0, len(values) - 1)


SIMPLE = [
    op_unary,
    op_binary,
    op_binary,
    op_reduce,
    op_cumulative,
    op_broadcast,
    op_layout,
    op_slice,
    op_update,
    op_pad,
    op_concatenate,
    op_dot,
]
EVERY = [*SIMPLE, op_jit]


@st.composite
def programs(draw: Any, inputs: tuple[Shape, ...], low: int, high: int, operations: list) -> Steps:
    """A program of `low` to `high` operations, of results with few elements."""
    shapes = list(inputs)
    steps: list[Step] = []
    for operation in draw(st.lists(st.sampled_from(operations), min_size=low, max_size=high)):
        step = operation(draw, shapes)
        if step is None or int(np.prod(step.shape)) > 60:
            step = op_unary(draw, shapes)
        steps.append(step)
        shapes.append(step.shape)
    return Steps(inputs, tuple(steps))


inputs = st.sampled_from([((3,), (3,)), ((2, 3), (3,)), ((), (2,)), ((2, 3), (3, 2)), ((1, 3), (2,))])


# --- compositions: lists of arrays to lists of arrays, again --------------------------------------

Function = Callable[[Values], Values]


def total(L: Library, ys: Values) -> Any:
    parts = [L.lax.reduce_sum(L.lax.sin(y), axes=tuple(range(y.ndim))) for y in ys]
    result = parts[0]
    for part in parts[1:]:
        result = L.lax.add(result, part)
    return result


def by_jit(L: Library, f: Function) -> Function:
    return L.api.jit(f)


def by_grad(L: Library, f: Function) -> Function:
    return L.api.grad(lambda xs: total(L, f(xs)))


def by_jvp(L: Library, f: Function) -> Function:
    def run(xs: Values) -> Values:
        ys, dys = L.api.jvp(f, (xs,), ([L.lax.cos(x) for x in xs],))
        return [*ys, *dys]

    return run


def by_vjp(L: Library, f: Function) -> Function:
    def run(xs: Values) -> Values:
        ys, pullback = L.api.vjp(f, xs)
        return [*ys, *pullback([L.lax.cos(y) for y in ys])[0]]

    return run


def by_linearize(L: Library, f: Function) -> Function:
    def run(xs: Values) -> Values:
        ys, push = L.api.linearize(f, xs)
        return [*ys, *push([L.lax.sin(x) for x in xs])]

    return run


def by_vmap(L: Library, f: Function) -> Function:
    """The first argument batched at its last axis, the others not."""

    def run(xs: Values) -> Values:
        x, *rest = xs
        wide = L.lax.broadcast_in_dim(x, (*x.shape, 2), tuple(range(x.ndim)))
        scale = L.lax.broadcast_in_dim(np.array([0.5, 1.25]), wide.shape, (x.ndim,))
        wide = L.lax.mul(wide, scale)
        return L.api.vmap(f, ([x.ndim, *[None] * len(rest)],))([wide, *rest])

    return run


def by_vmap_of_all(L: Library, f: Function) -> Function:
    """Every argument batched at its first axis, the results' batch axis last."""

    def run(xs: Values) -> Values:
        wide = [L.lax.broadcast_in_dim(x, (3, *x.shape), tuple(range(1, x.ndim + 1))) for x in xs]
        scales = np.array([0.5, 1.25, -1.0])
        given = [L.lax.mul(x, L.lax.broadcast_in_dim(scales, x.shape, (0,))) for x in wide]
        return L.api.vmap(f, out_axes=-1)(given)

    return run


COMPOSABLE = {
    "jit": by_jit,
    "grad": by_grad,
    "jvp": by_jvp,
    "vjp": by_vjp,
    "linearize": by_linearize,
    "vmap": by_vmap,
    "vmap of all": by_vmap_of_all,
}


def composed(L: Library, steps: Steps, names: Sequence[str]) -> Function:
    def f(xs: Values) -> Values:
        return steps(L, xs)

    for name in names:
        f = COMPOSABLE[name](L, f)
    return f


# --- the tests ------------------------------------------------------------------------------------


def agree(ours: Sequence[Any], theirs: Sequence[Any], what: str) -> None:
    assert len(ours) == len(theirs)
    for x, y in zip(ours, theirs, strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert (x.shape, x.dtype) == (y.shape, y.dtype), what
        limit = TOLERANCE * max(1.0, float(np.max(np.abs(y), initial=0.0)))
        np.testing.assert_allclose(x, y, rtol=0, atol=limit, err_msg=what)


def compare(steps: Steps, names: Sequence[str]) -> None:
    rng = np.random.default_rng(len(steps.steps))
    with jax.enable_x64(True):
        xs = [rng.normal(size=shape) for shape in steps.inputs]
        theirs = jax.jit(composed(THEIRS, steps, names))(xs)
        f = composed(OURS, steps, names)
        program = ft.make_ir(f)(xs)
        agree(ft.interpret(program, *xs), theirs, "the reference against JAX")
        agree(ft.jit(f)(xs), theirs, "XLA against JAX")
        check(program)
        assert equal(parse(show(program), program.values), program)
        try_all(program, xs, TOLERANCE, compiled=False)


@pytest.mark.parametrize("last", COMPOSABLE)
def test_random_programs(last: str):
    @settings(max_examples=10, derandomize=True, database=None, **SETTINGS)
    @given(
        inputs.flatmap(lambda shapes: programs(shapes, 1, 7, EVERY)),
        st.lists(st.sampled_from(sorted(COMPOSABLE)), max_size=2),
    )
    def run(steps: Steps, names: list[str]) -> None:
        compare(steps, [*names, last])

    run()


@pytest.mark.heavy
@settings(max_examples=1500, **SETTINGS)
@given(
    inputs.flatmap(lambda shapes: programs(shapes, 1, 12, EVERY)),
    st.lists(st.sampled_from(sorted(COMPOSABLE)), max_size=3),
)
def test_many_random_programs(steps: Steps, names: list[str]):
    compare(steps, names)
