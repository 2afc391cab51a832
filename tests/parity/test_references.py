"""References to memory (`jax.new_ref`) in functions that functrans transforms, against JAX."""

from typing import Any

import jax
import jax.numpy as J
import numpy as np
import pytest

import functrans as ft
from functrans import errors

MINE, JAX = ft, jax
X = J.array([0.5, -1.5, 2.0])
ROWS: list[Any] = []
row = lambda f: ROWS.append(f) or f  # noqa: E731


@row
def read_and_written(m: Any, x: Any) -> Any:
    ref = jax.new_ref(x * 0)
    ref[...] = x * 2
    ref[0] = x[1]
    ref[1:] = ref[:2] * x[2]
    return (ref[...] * x).sum() + ref[2]


@row
def added_to(m: Any, x: Any) -> Any:
    ref = jax.new_ref(J.zeros(3))
    jax.ref.addupdate(ref, 1, x[2])
    jax.ref.addupdate(ref, ..., J.sin(x))
    before = jax.ref.swap(ref, 2, x[0])
    return ref[...].prod() + before


@row
def by_views(m: Any, x: Any) -> Any:
    if m is JAX:  # which refuses views of references under its transformations
        return x[0] * 5 + x[2] * (x[2] + x[0])
    ref = jax.new_ref(x)
    view = ref.at[1:]
    view[1] = view[1] + x[0]
    view.at[0][...] = 5.0
    return (ref[...] * J.array([0, 1, 0])).sum() * x[0] + view[1] * x[2]


@row
def at_traced_places(m: Any, x: Any) -> Any:
    ref = jax.new_ref(J.zeros(3))
    place = (x[0] > 0).astype("int32")
    ref[place] = x[1]
    ref[J.array([2, 0])] = x[:2] ** 2
    return (ref[...] * J.arange(3.0)).sum() + ref[place]


@row
def to_which_gradients_are_added(m: Any, x: Any) -> Any:
    refs, no = [jax.new_ref(x), jax.new_ref(x * 0)], jax.ad.DontWant()
    pullback = m.vjp(lambda x, w: J.sin(x) * w["a"] * w["b"], x, {"a": x[0], "b": x})[1]
    first = pullback.with_refs(refs[0], {"a": jax.ad.GradValue(), "b": no})(x)[1]["a"]
    second = pullback.with_refs(refs[0], {"a": no, "b": refs[1]})(x)
    assert isinstance(second[1]["b"], jax.ad.GradRef)
    return (refs[0][...] * refs[1][...]).sum() + first


@row
def in_scan(m: Any, x: Any) -> Any:
    ref = jax.new_ref(J.zeros(3))

    def step(c: Any, y: Any) -> tuple[Any, Any]:
        ref[...] = ref[...] * c + y
        return c + y, ref[1]

    c, ys = m.lax.scan(step, x[0], x)
    return c * ref[...].sum() + ys.prod()


@row
def in_jaxs_scan(m: Any, x: Any) -> Any:
    return in_scan(JAX, x)


@row
def in_fori_loop(m: Any, x: Any) -> Any:
    ref = jax.new_ref(x)

    def step(i: Any, total: Any) -> Any:
        ref[i] = ref[i] * total
        return total + ref[i]

    return m.lax.fori_loop(0, 3, step, 1.0) + ref[...].prod()


@row
def in_cond(m: Any, x: Any) -> Any:
    ref = jax.new_ref(x)

    def double() -> Any:
        ref[...] *= 2.0
        return ref[0]

    def last() -> Any:
        ref[0] = x[2]
        return x[1]

    y = m.lax.cond(x[0] > 0, double, last)
    z = m.lax.switch((x[0] > 0).astype(int) + 1, [double, last, double])
    return ref[...].prod() + y * z


ten_times = jax.custom_jvp(J.sin)  # by its rule
ten_times.defjvp(lambda primals, tangents: (J.sin(*primals), 10 * J.cos(*primals) * tangents[0]))


@row
def beside_custom_rules(m: Any, x: Any) -> Any:
    ref = jax.new_ref(x)

    def step(c: Any, y: Any) -> tuple[Any, Any]:
        ref[...] = ref[...] * y
        return ten_times(c), ref[0]

    c, ys = m.lax.scan(step, x[0], x)
    z = jax.jit(step)(c, x[1])[0] + m.lax.cond(x[0] > 0, lambda: step(c, x[1])[0], lambda: c)
    return z * ys.sum()


@row
def in_a_jitted_function(m: Any, x: Any) -> Any:
    ref = jax.new_ref(x)

    @m.jit
    def step(y: Any) -> Any:
        ref[...] = ref[...] * y
        return ref[1]

    return step(x[0]) + step(x[1]) * ref[...].sum()


@row
def given_to_a_jitted_function(m: Any, x: Any) -> Any:
    ref = jax.new_ref(x)

    @jax.jit
    def step(ref: Any, y: Any) -> Any:
        ref[0] = ref[1] * y
        return ref[0] + y

    return step(ref, x[2]) * step(ref, x[1]) + ref[...].prod()


@row
def in_a_gradient(m: Any, x: Any) -> Any:
    ref = jax.new_ref(x)
    g = m.grad(lambda y: (y * ref[...]).sum())(x)
    ref[...] = ref[...] * g
    h = m.grad(lambda y: read_and_written(m, y * ref[0]))(x)
    return (g * h * ref[...]).sum()


@row
def in_a_map(m: Any, x: Any) -> Any:
    ref = jax.new_ref(x)
    return m.vmap(lambda y: read_and_written(m, y * ref[...]))(J.stack([x, 2 * x])).sum()


@row
def in_a_checkpoint(m: Any, x: Any) -> Any:
    ref = jax.new_ref(x * 2)

    @m.checkpoint
    def body(y: Any) -> Any:
        inner = jax.new_ref(y)
        inner[1] = J.sin(y[0])
        return (inner[...] * ref[...]).sum()

    return body(x)


@row
def in_jaxs_gradient(m: Any, x: Any) -> Any:
    return in_a_gradient(JAX, x) + in_a_map(JAX, x)


NOT_REVERSED = (in_a_gradient, in_a_checkpoint, in_jaxs_gradient)  # JAX's own rules fail


def same(mine: Any, theirs: Any) -> None:
    np.testing.assert_allclose(mine, theirs, rtol=2e-6)


@pytest.mark.parametrize("function", ROWS)
def test_inside(function: Any):
    has_slope = function not in NOT_REVERSED
    xs = np.stack([X, X[::-1], -X])

    def every(m: Any, f: Any) -> Any:
        def run(x: Any, xs: Any) -> Any:
            batch = m.vmap(f)(xs) if m is ft else J.stack([f(x) for x in xs])
            return f(x), batch, *((m.grad(f)(x), m.jvp(f, (x,), (x,))[1]) if has_slope else ())

        return run

    def mine(x: Any) -> Any:
        return function(MINE, x)

    want = jax.jit(every(jax, jax.jit(lambda x: function(JAX, x))))(X, xs)
    ways = [ft.jit(every(ft, mine))]
    if function in (read_and_written, in_scan, in_cond):
        ways.append(every(ft, mine))
    for way in ways:
        jax.tree.map(same, way(X, xs), want)
    for found in ft.interpret(ft.make_ir(mine)(X), X):
        same(found, want[0])
    if has_slope:
        same(jax.grad(ft.jit(mine))(X), want[2])


# --- made outside ---------------------------------------------------------------------------------


def adding(ref: Any, x: Any) -> Any:
    old = ref[0]
    ref[...] += x
    ref[0] = ref[0] * old
    return ref[...].sum() * x


def after(jit: Any, close: bool) -> tuple[Any, Any, Any]:
    """The results of two calls, and what stands at the reference then."""
    ref = jax.new_ref(X)
    f = jit(lambda x: adding(ref, x)) if close else jit(adding)
    args = () if close else (ref,)
    first = f(*args, X)
    ref[1] = 7.0
    return first, f(*args, 2 * X), ref[...]


@pytest.mark.parametrize("close", [True, False], ids=["closed over", "an argument"])
def test_a_jitted_function_uses_a_reference_made_outside(close: bool):
    for mine, theirs in zip(after(ft.jit, close), after(jax.jit, close), strict=True):
        same(mine, theirs)


def unjitted(m: Any) -> list[Any]:
    """What transformations and loops do to references that were made outside of them."""
    ref = jax.new_ref(X)

    def read(x: Any) -> Any:
        return (x * ref[...]).sum() * ref[(x[0] > 0).astype(int)]

    def step(c: Any, y: Any) -> tuple[Any, Any]:
        ref[...] += y
        return c + y, ref[0]

    def noting(x: Any) -> Any:
        ref[...] = jax.lax.stop_gradient(x) * ref[1]
        return x.sum()

    found = [m.grad(read)(X), m.grad(m.jit(read))(X), m.jit(m.grad(read))(X)]
    found += [m.vmap(read)(J.stack([X, -X])), m.jvp(read, (X,), (X,))]
    found += [m.lax.scan(step, 0.0, X), m.jit(lambda x: m.lax.scan(step, 0.0, x))(X), ref[...]]
    found += [m.grad(noting)(X), ref[...], m.grad(lambda x, r: (x * r[...]).sum())(X, ref)]
    found += [m.lax.while_loop(lambda i: i < 3, lambda i: i + ref[i].astype(int) ** 0, 0)]
    return found


def test_transformations_use_a_reference_made_outside():
    jax.tree.map(same, unjitted(ft), unjitted(jax))


def mapped(m: Any, axis: int) -> Any:
    """A reference as an argument of vmap: for each example its own, or one for all to read."""
    ref, common = jax.new_ref(J.moveaxis(J.arange(9.0).reshape(3, 3), 0, axis)), jax.new_ref(X)

    def f(x: Any, own: Any, common: Any) -> Any:
        own[0] = x
        own[...] *= common[...]
        return own[1] + x

    over = (0, axis, None)
    found = m.vmap(f, in_axes=over)(X, ref, common)
    again = m.jit(m.vmap(f, in_axes=over))(X, ref, common)
    return found, again, J.moveaxis(ref[...], axis, 0)


def test_vmap_takes_references():
    want = mapped(jax, 0)
    for axis in (0, 1):  # where JAX's writes elsewhere
        jax.tree.map(same, mapped(ft, axis), want)


def test_an_error_about_mapped_references_names_the_users_function():
    with pytest.raises(ft.errors.BatchSizeMismatch, match="vmap of written: "):
        ft.vmap(written)(jax.new_ref(X), J.arange(X.size + 1.0))


def written(own: Any, x: Any) -> Any:
    own[...] = x
    return x


def test_a_reference_of_ours_and_its_trace_may_be_jaxs():
    def f(x: Any) -> Any:
        ref = jax.new_ref(x)
        return ft.jit(adding)(ref, x).sum() + ref[...].prod()

    want = adding(ref := jax.new_ref(X), X).sum() + ref[...].prod()
    same(jax.jit(f)(X), want)
    same(ft.jit(f)(X), want)


@pytest.mark.parametrize("jit", [lambda f: f, jax.jit, ft.jit], ids=["plain", "jax.jit", "ft.jit"])
@pytest.mark.parametrize("m", [ft, jax], ids=["ft", "jax"])
def test_operations_and_transformations_get_references(m: Any, jit: Any):
    def body(total: Any, each: Any) -> Any:
        x, ref = each
        ref[...] += x
        return total + ref[...], ref[...]

    @m.custom_vjp
    def seen(x: Any, ref: Any) -> Any:
        return x

    def bwd(ref: Any, g: Any) -> Any:
        ref[...] = g
        return g, None

    seen.defvjp(lambda x, ref: (x, ref), bwd)

    ref = jax.new_ref(X)
    total, each = jit(lambda x, ref: m.lax.scan(body, 0.0, (x, ref)))(X, ref)
    same(total, 2 * X.sum())
    same(each, ref[...])
    same(jit(m.vmap(lambda x, ref: body(0.0, (x, ref))[1]))(X, ref), 3 * X)
    for inner in (lambda f: f, m.jit):
        ref[...] = X
        f = inner(lambda x, ref: J.sin(seen(x * 2, ref)).sum())
        same(jit(m.grad(f))(X, ref), 2 * J.cos(X * 2))
        same(ref[...], J.cos(X * 2))


# --- misuse ---------------------------------------------------------------------------------------


def writing(x: Any) -> Any:
    OUTSIDE[...] = x  # the write
    return x.sum()


OUTSIDE: Any = jax.new_ref(X)


@pytest.mark.parametrize(
    "transformed",
    [ft.grad(writing), ft.jit(ft.grad(writing)), lambda x: ft.vmap(writing)(J.stack([x, x]))],
    ids=["grad", "jit of grad", "vmap"],
)
def test_a_traced_value_is_not_written_outside(transformed: Any):
    with pytest.raises(errors.NotSupported) as error:
        transformed(X)
    for part in ("Ref{float32[3]}", "differentiated or mapped", "# the write", "stop_gradient"):
        assert part in str(error.value)
    same(OUTSIDE[...], X)


def test_a_program_alone_holds_no_reference():
    with pytest.raises(errors.OutsideReference, match=r"(?s)Ref\{float32\[3\]\}.*return OUTSIDE"):
        ft.make_ir(lambda x: OUTSIDE[...] * x)(X)  # return OUTSIDE


@pytest.mark.parametrize("transform", [ft.jit, ft.grad, ft.make_ir])
def test_a_reference_is_used_after_its_trace(transform: Any):
    kept = []

    def f(x: Any) -> Any:
        kept.append(jax.new_ref(x))
        return x.sum()

    transform(f)(X)
    with pytest.raises(errors.LeakedTracer, match=r"(?s)Ref\{float32\[3\]\}.*# too late"):
        kept[0][...]  # too late


def test_a_reference_is_no_array():
    with pytest.raises(errors.NotAnArray, match=r"Ref\{float32\[3\]\}"):
        ft.jit(lambda x: ft.numpy.sin(jax.new_ref(x)))(X)
    with pytest.raises(ValueError, match=r"Ref\{float32\[3\]\}(.|\n)*ref\[\.\.\.\]"):  # as in JAX
        ft.jit(lambda x: jax.new_ref(x))(X)
    with pytest.raises(errors.NotAnArray, match=r"ref\[\.\.\.\]"):
        ft.grad(lambda ref: ref[...].sum())(OUTSIDE)


def test_jaxs_message_about_an_argument_tells_where_the_users_function_is():
    with pytest.raises(ValueError, match=r"tracing <lambda> at .*test_references\.py"):
        ft.jit(lambda a, b: a[...])(OUTSIDE, OUTSIDE)
