"""What XLA:CPU is told in another way gives what NumPy gives, whichever way it is lowered."""

import jax
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from functrans.primitives.reductions import folds as reduction
from tests.support.closeness import assert_close
from tests.support.matrices import alternately
from tests.support.versions import NEWER, NEWEST

LONG = 17_000  # float32 elements of a row: above the limit of backends/cpu.py
KINDS = {
    "sum": (reduction.reduce_sum, np.sum),
    "prod": (reduction.reduce_prod, np.prod),
    "max": (reduction.reduce_max, np.max),
    "min": (reduction.reduce_min, np.min),
}
SHAPES = [
    ((2, LONG), (0,)),
    ((37, LONG), (0,)),
    ((1, 5, 7, LONG), (1, 2)),
    ((3, 19, 2, LONG), (1,)),
    ((3, 1, 4, LONG), (0, 2)),
    ((3, 2, 4, LONG), (0, 2)),
    ((1, LONG), (0,)),
    ((0, LONG), (0,)),
    ((1400, 3), (1,)),  # below 4,096 elements of a row XLA:CPU has no library for them
    ((6, 50, 16), (1,)),
    ((5, 820), (0,)),
    ((2, 3, 240, 3), (0, 1)),
    ((250, 17), (1,)),
]


def folded(kind: str, axes: tuple[int, ...]):
    return ft.jit(lambda x: KINDS[kind][0](x, axes=axes))


@pytest.mark.parametrize("dtype", alternately(["float32", "float64", "float16", "int32"]))
@pytest.mark.parametrize("kind", KINDS)
def test_rows(kind, dtype):
    """Long ones and short ones, in one program."""
    shapes = [s for s in SHAPES if s[0][0] or kind in ("sum", "prod")]
    rows = [np.random.default_rng(0).uniform(0.8, 1.2, shape).astype(dtype) for shape, _ in shapes]

    def fold(rows):
        return [KINDS[kind][0](x, axes=axes) for x, (_, axes) in zip(rows, shapes, strict=True)]

    with jax.enable_x64(True):
        made = ft.jit(fold)(rows)
    for x, found, (_, axes) in zip(rows, map(np.asarray, made), shapes, strict=True):
        wanted = KINDS[kind][1](x.astype(np.float64), axis=axes)
        assert found.dtype == x.dtype
        np.testing.assert_allclose(found, wanted, rtol=4e-3 if dtype == "float16" else 1e-5)


@pytest.mark.parametrize("dtype", alternately(["float32", "float64"]))
@pytest.mark.parametrize("out", ["", "i", "j"])
@pytest.mark.parametrize("shape", [(1100, 1001), (1024, 1100)])
def test_large_matrices_read_against_their_layout(shape, out, dtype):
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=s).astype(dtype) for s in (shape, shape[::-1]))
    with jax.enable_x64(True):
        f = ft.jit(lambda x, y: ft.numpy.einsum(f"ij,ji->{out}", x, y))
        assert "stablehlo.while" in f.lower(x, y).as_text()
        found = np.asarray(f(x, y))
    wanted = np.einsum(f"ij,ji->{out}", x.astype(np.float64), y.astype(np.float64))
    assert found.dtype == dtype
    error = np.abs(found - wanted).max() / np.sqrt(x.size)
    assert error < (3e-6 if dtype == "float32" else 1e-13)


SMALL_PRODUCTS = {
    "points turned": ("ij,jk->ik", (50, 3), (3, 3)),
    "stacks": ("bij,bjk->bik", (9, 4, 4), (9, 4, 4)),
    "a stack behind": ("ijb,jkb->ikb", (4, 6, 9), (6, 2, 9)),
    "stacks of sevens": ("bij,bjk->bik", (9, 7, 7), (9, 7, 7)),
    "two axes kept": ("aij,jk->kai", (2, 3, 5), (5, 30)),
}
OTHER_PRODUCTS = {
    "long sums": ("ij,jk->ik", (50, 7), (7, 3)),
    "stacks with long sums": ("bij,bjk->bik", (9, 8, 8), (9, 8, 8)),
    "a vector": ("ij,j->i", (50, 3), (3,)),
    "two sums": ("aij,ija->a", (5, 2, 2), (2, 2, 5)),
    "one term": ("ij,jk->ik", (50, 1), (1, 3)),
}


@pytest.mark.parametrize("dtype", alternately(["float32", "float64"]))
@pytest.mark.parametrize("name", [*SMALL_PRODUCTS, *OTHER_PRODUCTS])
def test_products_of_small_matrices(name, dtype):
    spec, *shapes = (SMALL_PRODUCTS | OTHER_PRODUCTS)[name]
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=s).astype(dtype) for s in shapes)
    with jax.enable_x64(True):
        f = ft.jit(lambda x, y: jnp.einsum(spec, x, y))
        found = np.asarray(f(x, y))
        product = "stablehlo.dot_general" in f.lower(x, y).as_text()
    assert product == (name in OTHER_PRODUCTS)
    assert found.dtype == dtype
    wanted = np.einsum(spec, x.astype(np.float64), y.astype(np.float64))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 if dtype == "float32" else 1e-14)
    x.flat[0], x.flat[7], y.flat[1] = np.nan, np.inf, 0
    with np.errstate(invalid="ignore"), jax.enable_x64(True):
        assert_close(f(x, y), np.einsum(spec, x, y), 1e-5)


@pytest.mark.parametrize("in_axis", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("examples", [8, 9], ids=["few", "many"])
def test_a_stack_of_many_is_mapped_row_by_row(in_axis, axis, examples):
    """Where the numbers of one example are stacked, all examples' first numbers come first."""
    rng = np.random.default_rng(0)
    sizes = (examples, 5, 6) if in_axis == 0 else (5, examples, 6)
    x = rng.normal(size=sizes[: 2 + (axis != 0)]).astype("float32")

    def stacked(np_):
        return lambda x: np_.stack([np_.sin(x[0]), np_.cos(x[1]), x[2]], axis)

    f = ft.jit(ft.vmap(stacked(jnp), in_axis, in_axis))
    wanted = np.stack([stacked(np)(a) for a in np.moveaxis(x, in_axis, 0)], in_axis)
    np.testing.assert_allclose(f(x), wanted, rtol=1e-6)
    (made,) = [e for e in f.program(x).equations if e.primitive.name == "concatenate"]
    first = axis == 0 and examples == 9
    assert made.params["dimension"] == (0 if first else made.outputs[0].type.ndim - 1)


CONVOLUTIONS = {  # examples, side, features, kernel, features made, strides, padding, dilation
    "same": (9, 14, 3, (3, 3), 8, (2, 2), "SAME", (1, 1)),
    "uneven": (16, 11, 4, (3, 3), 8, (1, 2), ((0, 2), (1, 0)), (2, 1)),
    "oblong": (8, 12, 4, (5, 3), 8, (1, 1), "VALID", (1, 1)),
    "cut off": (12, 9, 2, (2, 2), 9, (3, 3), ((-1, 2), (0, -1)), (1, 1)),
    "of many terms": (64, 14, 16, (3, 3), 32, (2, 2), "SAME", (1, 1)),  # nine products, not 49 shifted arrays
}


@pytest.mark.parametrize("dtype", alternately(["float32", "float64"]))
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_gradients_of_a_kernel_example_by_example(name, dtype):
    n, side, features, kernel, made, strides, padding, dilation = CONVOLUTIONS[name]
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, side, side, features)).astype(dtype)
    k = rng.normal(size=(*kernel, features, made)).astype(dtype)

    def conv(x, k):
        return ft.lax.conv_general_dilated(
            x[None], k, strides, padding, rhs_dilation=dilation, dimension_numbers=("NHWC", "HWIO", "NHWC")
        )[0]

    f = ft.vmap(lambda x, d: ft.vjp(lambda k: conv(x, k), k)[1](d)[0])
    with jax.enable_x64(True):
        d = rng.normal(size=(n, *ft.eval_shape(conv, x[0], k).shape)).astype(dtype)
        ours = ft.jit(f)
        text = ours.lower(x, d).as_text()
        assert "stablehlo.convolution" not in text
        assert name != "of many terms" or text.count("stablehlo.dot_general") == 9
        found, (wanted,) = ours(x, d), ft.interpret(ft.make_ir(f)(x, d), x, d)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    tolerance = 1e-5 if dtype == "float32" else 1e-13
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * np.abs(wanted).max())


FORMS = {  # x, kernel (NHWC, HWIO), groups, options; how many of value and gradients stay convolutions
    "depthwise": ((2, 7, 6, 5), (3, 3, 1, 5), 5, {}, 0),
    "with strides": ((2, 8, 7, 4), (3, 2, 1, 4), 4, {"window_strides": (2, 1)}, 0),
    "with holes": ((2, 9, 9, 4), (3, 3, 1, 4), 4, {"rhs_dilation": (2, 1), "padding": ((1, 3), (-1, 2))}, 0),
    "transposed": ((2, 5, 5, 4), (3, 3, 1, 4), 4, {"lhs_dilation": (2, 3), "padding": ((1, 2), (2, 0))}, 0),
    "two results for each feature": ((2, 6, 6, 3), (3, 3, 1, 6), 3, {}, 0),
    "few features for each group": ((2, 6, 6, 8), (3, 3, 2, 12), 4, {}, 0),
    "many features for each group": ((2, 6, 6, 32), (3, 3, 4, 32), 8, {}, 0),
    "many small groups, large kernels": ((1, 9, 9, 3), (8, 8, 1, 3), 3, {}, 3),
    "one feature": ((2, 9, 9, 1), (5, 5, 1, 1), 1, {}, 0),
    "first of a network": ((4, 6, 6, 3), (3, 3, 3, 16), 1, {}, 2),
    "one-dimensional": ((2, 30, 6), (4, 1, 6), 6, {"padding": ((3, 0),)}, 0),
    "three-dimensional": ((1, 4, 5, 4, 3), (2, 2, 2, 1, 3), 3, {}, 0),
    "one element": ((3, 5, 5, 32), (1, 1, 32, 40), 1, {}, 0),
    "one position": ((3, 4, 4, 8), (4, 4, 8, 20), 1, {"padding": "VALID"}, 1),
    "general": ((2, 6, 6, 9), (3, 3, 9, 8), 1, {}, 3),
}


@pytest.mark.parametrize("mapped", alternately([True, False]))
@pytest.mark.parametrize(("name", "channels_first"), [(name, i % 2 == 1) for i, name in enumerate(FORMS)])
def test_convolutions_in_other_forms(name, channels_first, mapped):
    x_shape, k_shape, groups, options, stay = FORMS[name]
    rng = np.random.default_rng(0)
    x, k = rng.normal(size=x_shape), rng.normal(size=k_shape)
    spatial = "DHW"[5 - x.ndim :]
    layout, kernel = f"N{spatial}C", f"{spatial}IO"
    if channels_first:
        x, k = np.moveaxis(x, -1, 1), np.moveaxis(k, [-1, -2], [0, 1])
        layout, kernel = f"NC{spatial}", f"OI{spatial}"
    how = {"window_strides": (1,) * len(spatial), "padding": "SAME", **options}
    how |= {"dimension_numbers": (layout, kernel, layout), "feature_group_count": groups}
    if mapped:
        x, k = np.stack([x, 2 * x + 1]), np.stack([k, k - 1])

    def value_and_gradients(x, k):
        made, pull = ft.vjp(lambda x, k: ft.lax.conv_general_dilated(x, k, **how), x, k)
        return made, *pull(jnp.sin(made))

    f = ft.vmap(value_and_gradients) if mapped else value_and_gradients
    with jax.enable_x64(True):
        found = ft.jit(f)
        for ours, wanted in zip(found(x, k), ft.interpret(ft.make_ir(f)(x, k), x, k), strict=True):
            np.testing.assert_allclose(ours, wanted, rtol=1e-12, atol=1e-12 * np.abs(wanted).max())
        if not mapped:
            assert found.lower(x, k).as_text().count("stablehlo.convolution") == stay


@pytest.mark.parametrize("shape", [(5000, 1), (1000, 9), (3000, 4097)])
@pytest.mark.parametrize("fold", [jax.lax.cumlogsumexp, jax.lax.cumsum])
def test_many_running_sums_are_a_loop_or_a_tree(fold, shape):
    lowered = ft.jit(fold).lower(jax.ShapeDtypeStruct(shape, "float32")).as_text()
    assert "reduce_window" not in lowered
    assert ("while" in lowered) == (fold is jax.lax.cumsum and shape[1] <= 4096)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cummin"])
def test_running_folds_by_rows(name, axis, reverse):
    x = np.random.default_rng(0).normal(1, 0.01, (131, 67)).astype("float32")
    x[3, 4], x[100, 4], x[5, 6], x[7, 8:10] = np.inf, -np.inf, np.nan, np.inf
    for v in x, (100 * np.nan_to_num(x, posinf=3, neginf=2)).astype("int32"):
        found, wanted = [w.jit(lambda v: getattr(jax.lax, name)(v, axis, reverse))(v) for w in (ft, jax)]
        np.testing.assert_allclose(found, wanted, rtol=3e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_folds_of_special_numbers(kind):
    x = np.array([[0, -0.0], [np.nan, 1], [np.inf, -np.inf], [-np.inf, 3], [-0.0, -0.0]], "float32")
    found = folded(kind, (1,))(np.tile(x, (500, 1)))  # XLA's library would lose NaN
    wanted = np.tile(jax.jit(lambda x: getattr(jax.numpy, kind)(x, 1))(x), 500)
    np.testing.assert_array_equal(found, wanted)
    numbers = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(found)[numbers], np.signbit(wanted)[numbers])
    long = np.ones((7, LONG), np.float32)
    long[3, 5], long[1, 6], long[1, 7], long[6, 7] = np.nan, np.inf, -np.inf, np.nan
    np.testing.assert_array_equal(folded(kind, (0,))(long), KINDS[kind][1](long, 0))


def einsum(spec, **how):
    return lambda *xs: jnp.einsum(spec, *xs, **how)


def row_fold(kind, axis):
    return lambda x: KINDS[kind][0](x, axes=(axis,))


SQUARES = (50, 3), (3, 3)
LOWERED = [  # program, shapes of operands, dtype, an operation of StableHLO, whether it is there
    (row_fold("sum", 0), [(8, LONG)], "float32", "reduce", False),
    (row_fold("sum", 0), [(8, 16_000)], "float32", "reduce", True),
    (row_fold("sum", 1), [(256, 16)], "float32", "subtract", True),  # out of XLA's library
    (row_fold("sum", 1), [(255, 16)], "float32", "subtract", False),
    (row_fold("sum", 1), [(5000, 3)], "int32", "subtract", False),
    (row_fold("sum", 0), [(7, 4096)], "float32", "subtract", True),
    (row_fold("sum", 0), [(8, 4096)], "float32", "subtract", not NEWEST),  # sums over a batch
    (row_fold("max", 1), [(600, 8)], "float32", "minimum", True),
    (row_fold("max", 1), [(600, 9)], "float32", "minimum", False),
    (einsum("ij,ji->"), [(1024, 1000), (1000, 1024)], "float32", "while", False),
    (einsum("ij,ji->"), [(16, 100_000), (100_000, 16)], "float32", "while", False),
    (einsum("ij,jk->ik"), [(1024, 1100), (1100, 1024)], "float32", "while", False),
    (einsum("ij,jk->ik", precision="highest"), SQUARES, "float32", "dot_general", False),
    (einsum("ij,jk->ik", preferred_element_type="float64"), SQUARES, "float32", "dot_general", True),
    *[(jnp.matmul, SQUARES, dtype, "dot_general", True) for dtype in ("float16", "int32", "complex64")],
    *[  # rows of two axes are those of one, unless XLA's library takes the transposed product
        (einsum("bti,btj->ij"), [(4, 8, 16), (4, 8, 32)], dtype, "reshape", dtype == "float32")
        for dtype in ("float32", "float16", "bfloat16")
    ],
]


@pytest.mark.parametrize("row", LOWERED, ids=lambda row: f"{row[1]} {row[2]} {row[3]}")
def test_which_are_told_in_another_way(row):
    f, shapes, dtype, operation, there = row
    with jax.enable_x64(True):
        text = ft.jit(f).lower(*[ft.ShapeDtypeStruct(shape, dtype) for shape in shapes]).as_text()
    assert (f"stablehlo.{operation}" in text) == there


@pytest.mark.parametrize(
    ("window", "strides", "padding"),
    [
        ((1, 2, 2, 1), (1, 1, 1, 1), "VALID"),
        ((1, 2, 2, 1), (1, 2, 2, 1), "SAME"),
        ((1, 3, 3, 1), (1, 2, 2, 1), "SAME"),
        ((1, 3, 3, 1), (1, 2, 2, 1), "VALID"),
        ((1, 1, 4, 1), (1, 1, 3, 1), ((0, 0), (0, 0), (2, 3), (0, 0))),
        ((2, 1, 1, 2), (3, 1, 1, 1), "VALID"),
        ((1, 2, 2, 1), (1, 4, 3, 1), "VALID"),
    ],
)
def test_gradients_of_maxima_over_small_windows_are_those_of_the_scatter(window, strides, padding):
    def pooled(x):
        return jax.lax.reduce_window(x, -np.inf, jax.lax.max, window, strides, padding)

    def gradient(x, ct):
        return jax.vjp(pooled, x)[1](ct)[0]

    rng = np.random.default_rng(0)
    x = rng.integers(0, 3, (5, 9, 8, 3)).astype(np.float32)  # windows with several largest
    x[0, 2, 3], x[1, :3, :3], x[2, 4, 4] = np.nan, -np.inf, np.inf
    ct = rng.normal(size=jax.eval_shape(pooled, x).shape).astype(np.float32)
    wanted = jax.jit(gradient)(x, ct)
    lowered = ft.jit(gradient).lower(x, ct)
    assert "select_and_scatter" not in lowered.as_text()
    np.testing.assert_array_equal(lowered.compile()(x, ct), wanted)


@pytest.mark.parametrize("lib", [jnp, jax.numpy], ids=["ours", "JAX's"])
def test_what_is_shifted_is_computed_once(lib):
    def smoothed(x):
        y = 0.2 * jnp.sin(x)
        return x + lib.roll(y, 1, 0) + lib.roll(y, -1, 0) + lib.roll(y, 1, 1) + lib.roll(y, (0, -1), (0, 1))

    def loss(x):
        return jnp.sum(smoothed(x) ** 2)

    def parts(x):
        y = jnp.sin(x) + 1
        return y[:, :50] * y[:, 50:]

    def cheap(x):  # to compute anew what is read
        y = 0.5 * x
        return lib.roll(y, 1, 0) + lib.roll(y, -1, 0)

    x = np.linspace(-1, 1, 10_000, dtype="float32").reshape(100, 100)
    for f, times in ((smoothed, 1), (loss, 1), (parts, 0), (cheap, 0)):
        text = ft.jit(f).lower(x).as_text()
        assert text.count('inlineable = "false"') == times
        if times:
            assert "sine" in text[text.index("func.func private @mul") :]  # what only `y` reads is there too
    for f in (loss, lambda x: jnp.sum(cheap(x) ** 2)):
        assert 'inlineable = "false"' in ft.jit(ft.grad(f)).lower(x).as_text()
    np.testing.assert_allclose(ft.jit(smoothed)(x), jax.jit(smoothed)(x), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(ft.jit(ft.grad(loss))(x), jax.jit(jax.grad(loss))(x), rtol=1e-5, atol=1e-6)


def euler_angles(q, stop=4):
    """Roll and pitch of quaternions, and something of the others that `stop` leaves."""
    w, x, y, z = (q[..., i] if i < stop else 1.0 for i in range(4))
    roll = jnp.arctan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y))
    return roll**2 + jnp.arcsin(0.3 * (w * y - z * x)) * jnp.exp(z * w) + jnp.tanh(x * y) / (1 + w * w)


COLUMNS = {  # name -> a function, the shape of its argument, whether the columns of its gradient are joined
    "columns": (euler_angles, (3000, 4), True),
    "rows": (lambda q: euler_angles(jnp.moveaxis(q, 0, -1)), (4, 3000), True),
    "of examples": (ft.vmap(euler_angles), (3000, 4), True),
    "wider": (lambda q: euler_angles(q[..., :4]) + jnp.sum(q[..., 4:] ** 2, -1), (3000, 7), True),
    "one is not read": (lambda q: euler_angles(q, 3), (3000, 4), False),
    "one is read twice": (lambda q: euler_angles(q) + jnp.sum(q[..., 1:3], -1), (3000, 4), False),
    "few operations": (lambda q: q[..., 0] * q[..., 1], (3000, 2), False),
    "small": (euler_angles, (100, 4), False),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_of_gradients_are_joined(name):
    f, shape, joined = COLUMNS[name]
    q = np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")
    gradient = ft.grad(lambda q: jnp.sum(f(q)))
    lowered = ft.jit(gradient).lower(q)
    assert ("stablehlo.concatenate" in lowered.as_text()) == joined
    np.testing.assert_allclose(lowered.compile()(q), gradient(q), rtol=1e-4, atol=1e-5)


ROWS = {  # name -> a product, its operands, whether an operand is copied
    "gradient of weights": (lambda x, y: x.T @ y, (32, 256), (32, 128), True),
    "read transposed": (lambda x, y: jnp.transpose(x.T @ y) + 1, (32, 128), (32, 256), True),
    "of stacked rows": (lambda x, y: jnp.einsum("bti,btjk->ijk", x, y), (4, 8, 256), (4, 8, 2, 64), True),
    "mixed axes": (lambda x, y: jnp.einsum("kab,kc->acb", x, y), (64, 2, 32), (64, 256), True),
    "small": (lambda x, y: x.T @ y, (32, 128), (32, 128), False),
    "wide": (lambda x, y: x.T @ y, (32, 256), (32, 256), False),
    "rows of another size": (lambda x, y: x.T @ y, (64, 300), (64, 100), False),
    "integers": (lambda x, y: (x.astype(int).T @ y.astype(int)).astype(x.dtype), (32, 256), (32, 128), False),
    "batched": (lambda x, y: jnp.einsum("bki,bkj->bij", x, y), (2, 32, 256), (2, 32, 128), False),
    "a vector": (lambda x, y: y @ x, (4096, 256), (4096,), False),
    "with a precision": (lambda x, y: jnp.matmul(x.T, y, precision="high"), (32, 256), (32, 128), False),
}


@pytest.mark.parametrize("name", ROWS)
def test_products_that_sum_over_rows(name):
    f, *shapes, copied = ROWS[name]
    rng = np.random.default_rng(0)
    operands = [rng.normal(size=shape).astype("float32") for shape in shapes]
    lowered = ft.jit(f).lower(*operands)
    assert ('inlineable = "false"' in lowered.as_text()) == copied
    found = lowered.compile()(*operands)
    np.testing.assert_allclose(found, f(*[x.astype("float64") for x in operands]), rtol=1e-4, atol=1e-4)


ORDERS = {  # layout, features, a transformation, how many operands are copied
    "kernel gradient": ("NHWC", 32, lambda L, f: L.grad(f), 1),  # not of the small cotangent
    "channels first": ("NCHW", 32, lambda L, f: f, 0),  # there XLA arranges what is around, too
    "in a loop": ("NCHW", 32, lambda L, f: lambda k, x: L.lax.map(lambda x: f(k, x), x[None])[0], 1),
    "in order": ("NHWC", 32, lambda L, f: f, 0),
}


@pytest.mark.parametrize("name", ORDERS)
def test_operands_of_convolutions_in_another_order(name):
    layout, features, transform, copies = ORDERS[name]
    rng = np.random.default_rng(0)
    shape = {"N": 32, "H": 12, "W": 12, "C": features}
    x = rng.normal(size=[shape[n] for n in layout]).astype("float32")
    kernel = rng.normal(size=(3, 3, features, 4)).astype("float32") / 9

    def f(kernel, x, numpy=jnp, lax=ft.lax):
        y = numpy.tanh(x) * 2  # the operand is computed
        y = lax.conv_general_dilated(y, kernel, (1, 1), "SAME", dimension_numbers=(layout, "HWIO", "NHWC"))
        return numpy.sum(numpy.sin(y))

    lowered = ft.jit(transform(ft, f)).lower(kernel, x)
    assert lowered.as_text().count('inlineable = "false"') == copies
    peer = jax.jit(transform(jax, lambda *xs: f(*xs, jax.numpy, jax.lax)))
    np.testing.assert_allclose(lowered.compile()(kernel, x), peer(kernel, x), rtol=2e-4, atol=2e-4)


def test_a_shift_by_a_number_is_slices_and_by_an_array_is_not():
    def primitives(shift):
        program = ft.jit(lambda x, n: jnp.roll(x, shift(n))).program(np.ones(5, "float32"), 1)
        return {e.primitive.name for e in program.equations}

    for number in (2, np.int64(2), (2,)):
        assert primitives(lambda n, number=number: number) == {"slice", "concatenate"}
    assert "dynamic_slice" in primitives(lambda n: n)


@pytest.mark.smoke
def test_keys_of_keys_compile():
    """XLA of JAX 0.11 took minutes where it fused one unrolled hash into the next."""

    def total(key):
        _, key = jax.random.split(key)
        keys = jax.random.split(jax.random.fold_in(key, 1), 3)
        return sum(jax.random.uniform(k, (5, 4)).sum() for k in keys)

    key = jax.random.key(1)
    np.testing.assert_allclose(ft.jit(total)(key), jax.jit(total)(key), rtol=1e-6)
    for keys in (lambda key: jax.random.split(key), lambda key: jax.random.fold_in(key, 1)):
        assert "stablehlo.while" not in ft.jit(keys).lower(key).as_text()
        exported = jax.export.export(jax.jit(ft.jit(keys)))(key)  # where nothing keeps them apart
        assert ("stablehlo.while" in exported.mlir_module()) == NEWER


def test_random_bits_are_hashed_once():
    """XLA:CPU does not repeat the hash in each loop that reads the numbers."""

    def read_often(key, w):
        key, other = jax.random.split(key)
        x = jax.random.uniform(other, (16,))[:, None]
        return key, jax.numpy.tanh(x * w) @ w, jax.numpy.sin(x * w).sum(0), jax.numpy.cumsum(x), (x / w).max()

    args = jax.random.key(1), jax.numpy.arange(1.0, 9.0)
    compiled = ft.jit(read_often).lower(*args).compile()
    assert compiled.as_text().count(" xor(") < 3 * 23  # of a hash: 20 rounds, a key, the two halves
    for ours, theirs in zip(compiled(*args), jax.jit(read_often)(*args), strict=True):
        if jax.dtypes.issubdtype(ours.dtype, jax.dtypes.prng_key):
            ours, theirs = map(jax.random.key_data, (ours, theirs))
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["int32", "uint8"])
@pytest.mark.parametrize("passes", [("default",), ()])
def test_constants_divided_by_zero(passes, dtype):
    """XLA ends the process where it divides such constants, in JAX 0.10."""
    x, zero = jax.numpy.asarray([7, 5], dtype), jax.numpy.zeros(2, dtype)

    def parts(lib, y):
        some, none = lib.asarray(7, dtype), lib.asarray(0, dtype)
        rows = [f(a, b) for f in (lib.floor_divide, lib.remainder) for a, b in ((some, none), (x, zero))]
        return *rows, y // none

    for ours, theirs in zip(
        ft.jit(parts, passes=passes, static_argnums=0)(jnp, x), parts(jax.numpy, x), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("dtype", alternately(["float32", "float64"]))
def test_samples_of_gamma_are_drawn_at_once(dtype):
    """Also those that are rejected, by the normal number (a = 1: 0.7 %) or the uniform one, and boosted."""

    def draw(keys, a):
        one = [jax.random.gamma(keys[0], a), jax.random.loggamma(keys[1], 1 + 0 * a)]
        return [*one, jax.vmap(lambda k: jax.random.gamma(k, a[:60]))(keys)]

    with jax.enable_x64(dtype == "float64"):
        keys = jax.random.split(jax.random.key(0), 2)
        a = np.append(np.geomspace(1e-3, 1e3, 997), [0.0, np.nan, np.inf]).astype(dtype)
        for found, wanted in zip(ft.jit(draw)(keys, a), jax.jit(draw)(keys, a), strict=True):
            np.testing.assert_allclose(found, wanted, 1e-6 if dtype == "float32" else 1e-14)
