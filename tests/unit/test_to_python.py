"""Programs as NumPy source: it parses, runs on NumPy alone, and gives the reference's numbers."""

import ast
import functools
import keyword
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from functrans import errors, lax, random
from functrans.backends import reference
from functrans.inspect.python_source.writer import to_python
from functrans.ir.program import Program
from functrans.passes.rewrite import children_first
from functrans.primitives.base import PRIMITIVES, Primitive
from functrans.trace import bind, stage, typeof
from tests.matrix.cases import CASES
from tests.matrix.cases.case import Case
from tests.matrix.primitive_rows import EVERY_DTYPE, Row, apply, by_primitive, is_wide
from tests.support.closeness import assert_close, plain
from tests.support.wide import each

pytestmark = pytest.mark.smoke

MODULES = {"numpy", "ml_dtypes", "scipy", "base64", "math"}


def written(text: str) -> Callable[..., Any]:
    """The function that a file defines last; the file may import no more than it is allowed."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            assert {alias.name.partition(".")[0] for alias in node.names} <= MODULES
        assert not isinstance(node, ast.ImportFrom)
    scope: dict[str, Any] = {}
    exec(compile(tree, "<written>", "exec"), scope)
    return scope[tree.body[-1].name]  # type: ignore[attr-defined]


def agrees(program: Program, args: Any, tolerance: float | None = None, **kwargs: Any) -> str:
    """The program's source, after it has run on the same arguments beside the reference."""
    leaves = jax.tree_util.tree_leaves((args, kwargs))
    text = to_python(program)
    expected = [plain(y) for y in reference.run(program, leaves)]
    args, kwargs = jax.tree_util.tree_map(plain, (tuple(args), kwargs))
    kwargs = {f"{k}_2" if keyword.iskeyword(k) else k: v for k, v in kwargs.items()}
    made = jax.tree_util.tree_leaves(written(text)(*args, **kwargs))
    assert_close([np.asarray(y) for y in made], expected, tolerance)
    return text


# --- every primitive ------------------------------------------------------------------------------

THROUGH_JAX = "partitionable"  # bits of generators that run through jax.random


def check(case: Case, dtype: str) -> None:
    with jax.enable_x64(is_wide(case, dtype)):
        operands = case.make(case.rng(), dtype)
        program = stage(apply(case), [typeof(x) for x in operands], "f")
        if THROUGH_JAX in case.label:
            with pytest.raises(errors.NotSupported, match=r"ft\.interpret"):
                to_python(program)
            return
        agrees(program, operands)


@by_primitive([(case, case.dtypes[0]) for case in CASES])
def test_case(rows: Sequence[Row]):
    each(rows, lambda row: check(*row))


@pytest.mark.sweep
@by_primitive(EVERY_DTYPE)
def test_case_at_every_dtype(rows: Sequence[Row]):
    each(rows, lambda row: check(*row))


# --- programs -------------------------------------------------------------------------------------


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape) + sum(shape)).normal(size=shape).astype(np.float32)


def rnn(w: Any, xs: Any, h0: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = jnp.tanh(w @ h + x)
        return h, jnp.sum(h**2)

    h, ys = lax.scan(step, h0, xs)
    return jnp.sum(ys) + h[0]


def squares(w: Any, x: Any, y: Any) -> Any:
    return jnp.mean((jnp.tanh(x @ w) - y) ** 2)


def clipped(w: Any, x: Any, y: Any) -> Any:
    g = ft.vmap(ft.grad(squares), (None, 0, 0))(w, x, y)
    norms = jnp.sqrt(jnp.sum(g**2, axis=1))
    return jnp.sum(g * jnp.minimum(1.0, 1.0 / norms)[:, None], axis=0) / len(x)


def keys(seed: Any) -> Any:
    key = random.key(seed)
    one, two = random.split(key)
    both = jnp.stack([one, two])
    picked = jnp.where(seed > 0, both[0], two)
    return random.normal(picked, (3,)), random.permutation(one, 5), random.fold_in(two, 3)


@ft.custom_jvp
def odd(x):
    return jnp.sin(x)


odd.defjvp(lambda primals, tangents: (odd(primals[0]), 2 * tangents[0]))


@ft.custom_vjp
def even(x):
    return jnp.cos(x)


even.defvjp(lambda x: (even(x), x), lambda x, ct: (3 * ct * x,))


@ft.custom_batching.custom_vmap
def mapped(x):
    return x * 2


mapped.def_vmap(lambda size, batched, x: (x * 2, batched[0]))


def gram(w: Any) -> Any:
    return jnp.sum(jnp.tanh(w @ w.T) * 2 + 1)


def custom(x: Any) -> Any:
    return odd(x) + even(x) + mapped(x) + ft.checkpoint(jnp.sin)(x)


def until(x: Any) -> Any:
    return lax.while_loop(lambda v: v < 100.0, lambda v: v * v, x)


def branches(i: Any, x: Any) -> Any:
    chosen = lax.switch(i, [jnp.sin, jnp.cos, lambda t: t * t], x)
    return chosen + lax.cond(x > 1.0, lambda t: t * 2, lambda t: t, x)


def solvers(a: Any, b: Any) -> Any:
    x = lax.custom_linear_solve(lambda v: a @ v, b, lambda _, v: jnp.linalg.solve(a, v))
    root = lax.custom_root(
        lambda r: r * r - 2.0, 1.0, lambda f, r: r - (r * r - 2.0) / (2.0 * r), lambda g, y: y / g(1.0)
    )
    return x, root


def gammas(a: Any, x: Any) -> Any:
    slope = ft.grad(lambda a: jnp.sum(lax.random_gamma_grad(a, x)))(a)
    return lax.igamma(a, x), lax.igammac(a, x), lax.igamma_grad_a(a, x), slope


def gamma_samples(seed: Any, a: Any) -> Any:
    keys = random.split(random.key(seed), 2)
    moved = ft.vmap(ft.grad(lambda a, k: jnp.sum(random.loggamma(k, a, (5,)))), (None, 0))(a, keys)
    return random.dirichlet(keys[0], jnp.stack([a, a + 1])), moved


def odds(x: Any) -> Any:
    folded = lax.reduce_window(x, 0.0, lambda a, b: a + 2 * b, (2, 2), (1, 1), "VALID")
    platform = lax.platform_dependent(x, cpu=jnp.sin, default=jnp.cos)
    return folded, platform, ft.ad_checkpoint.checkpoint_name(x, "x")


def written_down(x: Any) -> Any:
    numbers = {"values": (1.0, 2.0), "shape": (2,), "dtype": np.dtype("float32")}
    return PRIMITIVES["constant"](**numbers) * x


LONG = normal(20, 20)
SAMPLES = (normal(3), normal(4, 3), normal(4))
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple]] = {
    "gradient of a scan": (ft.grad(rnn, (0, 1, 2)), (normal(3, 3), normal(5, 3), normal(3))),
    "per-example norms": (clipped, SAMPLES),
    "keys": (keys, (3,)),
    "custom rules": (custom, (0.5,)),
    "forward through a custom_vjp": (lambda x: ft.jvp(even, (x,), (x,)), (0.5,)),
    "while": (until, (3.0,)),
    "reverse through while": (ft.grad(until), (3.0,)),
    "linear in a while's tangents": (lambda x: ft.linearize(until, x)[1](1.0), (3.0,)),
    "branches": (branches, (2, 3.0)),
    "batched branches": (ft.vmap(ft.grad(branches, 1), (0, 0)), (np.arange(3), normal(3))),
    "solvers": (solvers, (np.eye(3, dtype=np.float32) * 2, normal(3))),
    "gammas": (gammas, (np.float32([0.5, 3.0]), np.float32([1.0, 20.0]))),
    "samples of gamma": (gamma_samples, (3, 0.7)),
    "odds": (odds, (normal(3, 4),)),
    "a long constant": (lambda x: x @ LONG, (normal(20),)),
    "bfloat16": (ft.grad(gram), (normal(2, 3).astype(jnp.bfloat16),)),
    "indexing": (ft.grad(lambda t: jnp.sum(t[np.array([2, 1])] ** 2) + t[0, 1]), (normal(4, 3),)),
    "numbers": (lambda x: (jnp.zeros(3), x, x, 2.0), (1.0,)),
    "a constant in a program": (written_down, (1.0,)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str):
    function, args = PROGRAMS[name]
    agrees(ft.make_ir(function)(*args), args)


# What has no NumPy source: Python, XLA's generator, and what is only written inside a vmap.
NOT_WRITTEN = {
    "debug_callback", "pure_callback", "io_callback", "jax_call", "all_gather",
    "all_to_all", "axis_index", "pmax", "pmin", "ppermute", "psum", "psum_scatter",
}  # fmt: skip
# Other numbers each time; needs a mesh; stands only where a program is lowered.
ELSEWHERE = {"rng_uniform", "sharding_constraint", "one_kernel", "outlined"}


def test_every_primitive_is_written():
    met = {case.primitive for case in CASES}
    for function, args in PROGRAMS.values():
        programs = children_first(ft.make_ir(function)(*args))
        met |= {e.primitive.name for p in programs for e in p.equations}
    assert set(PRIMITIVES) - met - NOT_WRITTEN - ELSEWHERE == set()


def test_random_bits_of_a_generator_are_numpy_s_own():
    program = ft.make_ir(lambda a: lax.rng_uniform(a, 2.0, (5,)))(1.0)
    made = written(to_python(program))(1.0)
    assert made.shape == (5,)
    assert made.dtype == np.float32
    assert np.all((made >= 1) & (made < 2))


class Pair(NamedTuple):
    a: Any
    b: Any


def test_results_stand_in_the_tree_of_the_function():
    x = np.float32(2.0)

    def ran(f: Callable[..., Any], optimized: bool = False) -> Any:
        program = ft.jit(f).program(x) if optimized else ft.make_ir(f)(x)
        return written(to_python(program))(x)

    assert ran(lambda x: x * 2) == 4
    assert ran(lambda x: [x * 2]) == [4]
    assert ran(lambda x: {"w": x * 2, "b": {3: [(x, None), ()]}}) == {"w": 4, "b": {3: [(2, None), ()]}}
    assert ran(lambda x: {"w": x * 2, "b": {}}, optimized=True) == {"w": 4, "b": {}}
    assert ran(lambda x: ()) == ()
    assert ran(lambda x: None) is None
    # of classes that plain Python does not know: the leaves
    assert ran(lambda x: Pair(x, {"w": x * 2})) == (2, 4)
    assert ran(lambda x: {Pair(1, 2): x, Pair(2, 3): x}) == (2, 2)
    # nested programs return their values flat, as they are called
    assert ran(lambda x: ft.jit(lambda y: {"a": y, "b": (y * 2,)}, inline=False)(x)) == {"a": 2, "b": (4,)}
    # an output more than the function returns: a tangent
    moved = ft.make_ir(lambda x: ft.jvp(lambda x: {"a": x * x}, (x,), (x,)))(x)
    assert written(to_python(moved))(x) == ({"a": 4}, {"a": 8})


# --- operations of users' own, whose reference is copied ------------------------------------------

OFFSET = 5.0
TABLE = np.arange(100, dtype=np.float32)


def halved(n, x):
    return x if n == 0 else halved(n - 1, x) / 2


def twice(f):
    @functools.wraps(f)
    def run(x):
        return 2 * f(x)

    return run


@twice
def moved(x):
    return x + OFFSET


times = [(lambda k: lambda x, y=k: x * y)(k) for k in (2.0, 3.0)]


minus, four = lambda x: -1.0, lambda x: 2.0 + 2.0


def recursive(self, x):
    return halved(3, x)


def wrapped(self, x):
    return moved(x).astype(x.dtype)


def defaults(self, x):
    return (times[0](x) + times[1](x)).astype(x.dtype)


def constants(self, x):
    return (minus(x) * x + four(x)).astype(x.dtype)


def hidden(self, x):
    shifted = (lambda OFFSET: OFFSET + 1)(x)
    return (shifted * OFFSET + TABLE[3]).astype(x.dtype)


def branches_of_a_class(self, x):
    for _ in range(2):
        if self.name == "another":
            x = x + 1
    return x * 0 if self.low == 1 == self.high else x


def inherited(self, x):
    return super().reference(x) * 2


class Same(Primitive):
    """Something of each element."""

    low, high = 1, 2

    def abstract_eval(self, x, **params):
        return x

    def lower(self, ctx, x, **params):
        return x

    def __call__(self, x):
        return bind(self, (x,), {})


REFERENCES = [recursive, wrapped, defaults, constants, hidden, branches_of_a_class, inherited]


@pytest.mark.parametrize("reference", REFERENCES)
def test_operations_of_ones_own(reference: Callable[..., Any]):
    name = reference.__name__
    x, operation = normal(3), type(name, (Same,), {"name": name, "reference": reference})()
    try:
        program = stage(lambda x: [operation(x)], [typeof(x)], "f")
        if reference is inherited:
            with pytest.raises(errors.NotSupported, match="inherited"):
                to_python(program)
        else:
            agrees(program, (x,))
    finally:
        del PRIMITIVES[name]


# --- what it looks like ---------------------------------------------------------------------------


def test_readable():
    text = to_python(ft.make_ir(ft.grad(squares))(normal(3), normal(4, 3), normal(4)), "slope")
    line = squares.__code__.co_firstlineno + 1
    shown = "return jnp.mean((jnp.tanh(x @ w) - y) ** 2)"
    assert text.startswith("import numpy as np\n")
    assert "def slope(w, x, y):" in text
    assert "    w = np.asarray(w, np.float32)  # (3,)" in text
    assert "a = x @ w" in text
    assert "np.tanh(a)" in text
    assert text.count(f"# {line}:  {shown}") == 1
    assert text.count(f"# {line}, backward:  {shown}") == 1


def test_an_object_is_called_by_its_class_and_a_partial_by_its_function():
    class Layer:
        def __call__(self, x):
            return jnp.tanh(x)

    def scaled(c, x):
        return c * x

    for fun, name in ((Layer(), "Layer"), (functools.partial(scaled, np.ones(3)), "scaled")):
        assert f"def {name}(" in to_python(ft.make_ir(fun)(normal(3)))
