"""What the table of `from_jax` lacks stays JAX's: `jax_call`. Its transformations beside JAX's,
text, passes, effects, tools, and what is said where JAX has no rule."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as J
import numpy as np
import pytest
from jax import lax as L
from jax._src.core import NamedAxisEffect
from jax.experimental import io_callback, sparse
from jax.experimental import pallas as pl
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

import functrans as ft
import functrans.numpy as jnp
from functrans import errors, lax
from functrans.interop import from_jax
from functrans.ir.program import Program
from tests.support.closeness import assert_close
from tests.support.wide import each

X = np.linspace(0.1, 1.2, 6, dtype=np.float32).reshape(2, 3)
V = X[0]
SPD = (3 * np.eye(3) + 1).astype(np.float32)


def held(program: Program) -> list[str]:
    """The JAX primitives that stand in a program, calls of it included."""
    found, todo = [], [program]
    while todo:
        p = todo.pop()
        found += [e.params["body"].name for e in p.equations if e.primitive.name == "jax_call"]
        todo += p.children
    return found


# --- primitives of a user's -----------------------------------------------------------------------


def primitive(name: str, function: Callable[..., Any]) -> Primitive:
    """A primitive that computes a function of arrays of one shape, without any other rule."""
    made = Primitive(name)
    made.def_impl(jax.jit(function))
    made.def_abstract_eval(lambda x, *_: jax.core.ShapedArray(x.shape, x.dtype))
    lower = mlir.lower_fun(function, multiple_results=False)
    mlir.register_lowering(made, lambda ctx, *xs: lower(ctx, *xs))  # a function of its own
    return made


def batched(made: Primitive) -> None:
    """A rule for vmap: elementwise."""

    def rule(args: Sequence[Any], dims: Sequence[Any]) -> tuple[Any, int]:
        size = next(x.shape[d] for x, d in zip(args, dims, strict=True) if d is not None)
        front = [batching.bdim_at_front(x, d, size) for x, d in zip(args, dims, strict=True)]
        return made.bind(*front), 0

    batching.primitive_batchers[made] = rule


wave = primitive("wave", J.sin)
slope = primitive("slope", lambda x, dx: J.cos(x) * dx)  # linear in dx
bare = primitive("bare", lambda x: 2 * x)
stuck = primitive("stuck", lambda x: 2 * x)  # linear, but nobody says how it is transposed


def _slope_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    (x, t), (dx, dt) = primals, map(ad.instantiate_zeros, tangents)
    return slope.bind(x, t), slope.bind(x, dt) - wave.bind(x) * t * dx


ad.primitive_jvps[wave] = lambda x, dx: (wave.bind(*x), slope.bind(*x, *dx))
ad.primitive_jvps[slope] = _slope_jvp
ad.primitive_transposes[slope] = lambda ct, x, _: (None, slope.bind(x, ct))
ad.primitive_jvps[stuck] = lambda x, dx: (stuck.bind(*x), stuck.bind(*dx))
batched(wave)
batched(slope)


def waves(x: Any) -> Any:
    return wave.bind(x) * 2 + wave.bind(x)


# --- functions ------------------------------------------------------------------------------------


def _kernel(x: Any, out: Any) -> None:
    out[...] = x[...] * 2 + J.sin(x[...])


def kernel(x: Any) -> Any:
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(_kernel, out_shape=shape, interpret=True)(x)


def by_lapack(x: Any) -> Any:
    """The lower triangle of a Cholesky factor, by a function that jaxlib registers."""
    jax.jit(J.linalg.cholesky).lower(SPD)  # registers them
    made = jax.ffi.ffi_call(
        "lapack_spotrf_ffi",
        (jax.ShapeDtypeStruct(x.shape, x.dtype), jax.ShapeDtypeStruct(x.shape[:-2], np.int32)),
        input_layouts=[(0, 1)],
        output_layouts=[(0, 1), ()],
        vmap_method="sequential",
    )
    return J.tril(made(x, uplo=np.uint8(ord("L")))[0])


MATRIX = sparse.BCOO.fromdense(J.asarray(X * (X > 0.5)))
MESH = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))


def times_vector(data: Any, v: Any) -> Any:
    return sparse.BCOO((data, MATRIX.indices), shape=MATRIX.shape) @ v


def mapped(x: Any) -> Any:
    total = jax.shard_map(lambda v: L.psum(J.sin(v), "i"), mesh=MESH, in_specs=jax.P("i"), out_specs=jax.P())
    return total(x) * x


# function, arguments, the primitives that stay JAX's, words of the MODES for which JAX has no rule
ROWS: dict[str, tuple[Any, tuple, list[str], str]] = {
    "a user's": (waves, (V,), ["wave", "wave"], ""),
    "a user's, without rules": (bare.bind, (V,), ["bare"], "jvp vmap grad"),
    "a user's, without transpose": (stuck.bind, (V,), ["stuck"], "vmap grad"),
    "Pallas": (kernel, (X,), ["pallas_call"], "grad"),
    "ffi": (by_lapack, (SPD,), ["ffi_call"], "jvp grad"),
    "BCOO": (times_vector, (MATRIX.data, V), ["bcoo_dot_general"], "last"),
    "shard_map": (mapped, (V,), ["shard_map"], ""),
}


def total(function: Any) -> Any:
    """The sum of the sines of all that it gives."""
    return lambda *args: sum([J.sin(y).sum() for y in jax.tree.leaves(function(*args))])


def two(args: tuple) -> list[Any]:
    return [J.stack([x, x / 2]) for x in args]


def ones(args: tuple) -> tuple:
    return tuple([J.ones(x.shape, x.dtype) for x in args])


# Of a transformation of ours and the same of JAX's, a function (of results if it is no gradient).
MODES: dict[str, Callable[[Any, Any, tuple], Any]] = {
    "value": lambda t, f, a: f(*a),
    "jit": lambda t, f, a: t.jit(f)(*a),
    "jvp": lambda t, f, a: t.jvp(f, a, ones(a)),
    "vmap": lambda t, f, a: t.jit(t.vmap(f))(*two(a)),
    "vmap along the last axis": lambda t, f, a: t.vmap(f, -1)(*[J.stack([x, x / 2], -1) for x in a]),
    "grad": lambda t, f, a: t.grad(f)(*a),
    "vmap of grad": lambda t, f, a: t.jit(t.vmap(t.grad(f)))(*two(a)),
    "grad twice": lambda t, f, a: t.jit(t.jacfwd(t.grad(f)))(*a),
    "grad back twice": lambda t, f, a: t.jit(t.jacrev(t.grad(f)))(*a),
}


@pytest.mark.rest
@pytest.mark.parametrize("name", ROWS)
def test_transformations_are_those_of_jax(name: str):
    function, args, names, lacks = ROWS[name]
    given = {mode: total(function) if "grad" in mode else function for mode in MODES}
    refused = {mode for mode in MODES if {*lacks.split()} & {*mode.split()}}
    known = [mode for mode in MODES if mode not in refused]
    wanted = jax.jit(lambda args: {mode: MODES[mode](jax, given[mode], args) for mode in known})(args)

    found = ft.jit(lambda args: {mode: MODES[mode](ft, from_jax(given[mode]), args) for mode in known})(args)

    def check(mode: str) -> None:
        run, ours = MODES[mode], from_jax(given[mode])
        if mode in known:
            assert_close(found[mode], wanted[mode], 2e-5, mode)
            if name in ("a user's", "BCOO"):
                assert_close(run(ft, ours, args), wanted[mode], 2e-5, f"un-jitted {mode}")
            return
        with pytest.raises((NotImplementedError, ValueError)):
            run(jax, given[mode], args)
        with pytest.raises(errors.MissingRule, match=f"JAX operation {names[0]} cannot be"):
            run(ft, ours, args)

    program = ft.make_ir(from_jax(function))(*args)
    assert sorted(held(program)) == names
    each(MODES, check)
    assert_close(ft.interpret(program, *args), wanted["value"], 2e-5, "reference")


# --- inside ours ----------------------------------------------------------------------------------


def test_named_axes_are_seen():
    """A JAX operation under a vmap of ours that it speaks of, whether it reads batched values or
    not."""
    counted = primitive("times_size", lambda x: x * L.axis_size("i"))
    counted.def_effectful_abstract_eval(lambda x: (x, {NamedAxisEffect("i")}))
    batching.fancy_primitive_batchers[counted] = lambda axis, args, dims: (args[0] * axis.size, dims[0])

    def sized(x: Any) -> Any:
        return counted.bind(J.ones(())) * counted.bind(x)

    assert_close(ft.vmap(from_jax(sized), axis_name="i")(V), 9 * V)

    def spread(x: Any) -> Any:
        return x + sparse.BCOO.fromdense(L.psum(x, "i") * x, nse=3).todense()

    mine = ft.jit(ft.vmap(from_jax(spread), axis_name="i"))(X)
    assert_close(mine, jax.vmap(spread, axis_name="i")(X), 2e-5)


# --- programs -------------------------------------------------------------------------------------


def test_text_is_read_back():
    program = ft.jit(ft.grad(lambda x: from_jax(waves)(x).sum())).program(V)
    text = ft.ir.show(program)
    assert 'jax_call["slope ' in text
    again = ft.ir.parse(text, program.values)
    assert ft.ir.equal(program, ft.ir.check(again))
    assert_close(ft.interpret(again, V), [3 * np.cos(V)], 2e-5)
    with pytest.raises(errors.CheckError, match=r"JAX's slope was traced for \(f32\[3\], "):
        ft.ir.check(ft.ir.parse(text.replace("f32[3]", "f32[4]")))


def test_text_of_another_process_is_refused():
    text = ft.ir.show(ft.make_ir(from_jax(bare.bind))(V))
    for wrong in ("bare 0-000000", "bare", "other " + text.partition("bare ")[2].partition('"')[0]):
        with pytest.raises(errors.ParseError, match=r"is unknown here(.|\n)*only in the process that wrote"):
            ft.ir.parse(f'program (a: f32[3]) {{ b: f32[3] = jax_call["{wrong}"] a; return b }}')


def test_passes():
    """Equal equations are one, those that nobody reads are none, and nothing is computed ahead."""
    f = from_jax(lambda x: (wave.bind(x) + wave.bind(x), bare.bind(x))[0])
    assert held(ft.jit(f).program(V)) == ["wave"]
    g = from_jax(lambda x: x + bare.bind(J.ones(3)))
    assert held(ft.jit(g).program(V)) == ["bare"]
    h = from_jax(lambda x: L.rng_uniform(0.0, 1.0, (3,)) - L.rng_uniform(0.0, 1.0, (3,)) + x)
    assert np.any(ft.jit(h)(V) != V)


def test_what_jax_lowers_as_a_function_is_that_function():
    """In the program that is lowered: nothing is asked of its rules any more."""
    outer, special = (primitive(name, lambda x: J.sin(x) + 1) for name in ("outer", "special"))
    for p in (outer, special):
        mlir.register_lowering(p, mlir.lower_fun(lambda x: J.sin(x) + 1, multiple_results=False))
    mlir.register_lowering(special, mlir.lower_fun(J.cos, multiple_results=False), platform="cuda")
    f = from_jax(lambda x: outer.bind(x) * special.bind(x))
    assert held(ft.make_ir(f)(V)) == ["outer", "special"]
    assert held(ft.jit(f).program(V)) == ["special"]
    assert_close(ft.jit(f)(V), (np.sin(V) + 1) ** 2)
    loops = from_jax(lambda x: jax.lax.fori_loop(0, 9, lambda i, x: outer.bind(x), x))
    assert [obstacle for _, obstacle, _ in ft.passes.explain(loops)(V).loops] == [None]


# --- effects --------------------------------------------------------------------------------------


def ordered(x: Any, seen: list[float]) -> Any:
    """An ordered call of Python beside a token, which makes all of it one equation of JAX's."""
    L.after_all(L.create_token(x))
    return io_callback(lambda v: (seen.append(float(v)), v)[1], x, x, ordered=True)


def noted(x: Any, seen: list[float], ordered: bool) -> Any:
    L.after_all(L.create_token(x))
    jax.debug.callback(lambda v: seen.append(float(np.sum(v))), x, ordered=ordered)
    return J.sin(x)


@pytest.mark.parametrize("ordered", [True, False])
def test_derivatives_have_the_effects_of_jax_s(ordered: bool):
    seen: list[float] = []

    def product(x: Any) -> Any:
        return (noted(x, seen, ordered) * noted(2 * x, seen, ordered)).sum()

    def effects(t: Any, f: Any) -> list[list[float]]:
        found = []
        for run in (t.grad(f), t.jit(t.grad(f)), t.jit(t.hessian(f))):
            run(np.float32([1, 2]))
            jax.effects_barrier()
            found.append(list(seen) if ordered else sorted(seen))
            seen.clear()
        return found

    assert effects(ft, from_jax(product)) == effects(jax, product)
    if not ordered:
        f = from_jax(lambda x: noted(x, seen, False))
        ft.jit(ft.vmap(ft.grad(f)))(V)
        jax.effects_barrier()
        assert sorted(seen) == sorted(V.tolist())


def test_effects_stay_and_keep_their_order():
    seen: list[float] = []
    f = from_jax(lambda x: ordered(x, seen))

    def run(x: Any) -> Any:
        f(x)  # nobody reads it

        def step(c: Any, y: Any) -> Any:
            f(c + y)
            return c + 10, None

        return lax.scan(step, x, jnp.arange(3.0))[0] + f(x)

    assert held(ft.jit(run).program(np.float32(1))) == ["jit"] * 3
    assert float(ft.jit(run)(np.float32(1))) == 32
    jax.effects_barrier()
    assert seen == [1, 1, 12, 23, 1]
    seen.clear()
    f(np.float32(4))
    jax.effects_barrier()
    assert seen == [4]
    with pytest.raises(errors.InvalidArgument, match="repeat its side effect: JAX's jit"):
        ft.profile(run)(np.float32(1))
    with pytest.raises(errors.MissingRule, match=r"jit cannot be batched: .*ordered"):
        ft.vmap(f)(V)


# --- tools ----------------------------------------------------------------------------------------


def test_tools_show_what_jax_computes(tmp_path):
    f = from_jax(waves)
    assert "f32[3] = wave " in ft.explore(f, tmp_path / "page.html")(V).read_text()
    ft.make_ir(f)(V).draw(tmp_path / "picture.html")
    assert "f32[3] = wave " in (tmp_path / "picture.html").read_text()
    with pytest.raises(errors.NotSupported, match=r"(?s)jax_call runs .*f32\[3\] = wave "):
        ft.to_python(ft.make_ir(f)(V))
    report = ft.compare(f)(V)
    assert report.ok


# --- what is not there ----------------------------------------------------------------------------


def test_an_equation_may_stand_in_no_jaxpr():
    """As it does where JAX's operations are applied to our traced values one by one."""
    assert held(ft.jit(waves).program(V)) == ["wave"]
    for run in (ft.jit(waves), waves):
        assert_close(ft.grad(lambda x, run=run: run(x).sum())(V), 3 * np.cos(V), 2e-5)


def test_what_jax_cannot_do_is_told_with_its_reason_and_the_line():
    f = from_jax(lambda x: stuck.bind(x).sum())  # the line
    for run in (ft.grad(f), ft.jit(ft.grad(f))):
        with pytest.raises(errors.MissingRule) as error:
            run(V)
        told = str(error.value)
        for part in (
            "the JAX operation stuck cannot be transposed: ",
            "Transpose rule (for reverse-mode differentiation) for 'stuck' not implemented",
            "# the line",
            "custom_vjp",
        ):
            assert part in told
    assert isinstance(error.value, NotImplementedError)


def test_what_returns_no_array():
    jitted = jax.jit(lambda x: (x, L.create_token()))
    for f in (lambda x: jitted(x)[0], lambda x: (x, L.create_token(x))[0]):
        with pytest.raises(errors.NotSupported, match=r"create_token .* not arrays(?s:.*)test_opaque"):
            ft.jit(f)(V)


# --- high-level operations of JAX -----------------------------------------------------------------

HIGH_LEVEL = {
    "ldexp": lambda x: J.ldexp(x, np.int32(2)),  # by bits, of which there is no derivative
    "root": lambda x: L.custom_root(
        lambda y: y * y - x, x * 0 + 1, lambda f, y: J.sqrt(x), lambda g, y: y / g(1.0)
    ),
}


@pytest.mark.parametrize("name", HIGH_LEVEL)
def test_operations_inside_jitted_functions_and_loops_keep_their_derivatives(name: str):
    f = HIGH_LEVEL[name]
    slopes = {"ldexp": 4.0, "root": 0.25}
    inside = {
        "jit": lambda x: jax.jit(f)(x),
        "scan": lambda x: L.scan(lambda c, _: (f(x) + 0 * c, None), x, None, length=2)[0],
        "cond": lambda x: L.cond(x > 0, f, J.sin, x),
        "checkpoint": lambda x: jax.checkpoint(f)(x),
    }
    for g in inside.values():
        np.testing.assert_allclose(ft.grad(g)(4.0), slopes[name])
        np.testing.assert_allclose(ft.jit(ft.vmap(jax.grad(g)))(np.float32([4, 4])), [slopes[name]] * 2)


def test_a_policy_knows_the_jax_primitive():
    asked: list[Any] = []

    def gradient(answer: Any) -> None:
        def policy(primitive: Any, *_: Any, **how: Any) -> Any:
            asked.append(primitive)
            return answer

        f = from_jax(jax.checkpoint(waves, policy=policy))
        ft.jit(ft.grad(lambda x: f(x).sum())).program(V)

    gradient(True)
    assert wave in asked
    with pytest.raises(TypeError, match="should be a bool"):
        gradient(None)
