"""What functrans shows of JAX's without having it: names, modules, and that they work in both.

One row for each function that people meet: its value, gradient, batch and jitted form under ours
equal JAX's. What takes functions is given ours as well.
"""

import array
import functools
import importlib
import warnings
from types import SimpleNamespace

import jax
import jax.experimental.checkify
import jax.experimental.multihost_utils
import jax.experimental.ode
import jax.experimental.rnn
import jax.experimental.sparse
import jax.extend.random
import jax.numpy as jnp
import numpy as np
import pytest

import functrans as ft
import functrans.experimental.checkify as checkify  # noqa: F401  (read by the table)
import functrans.numpy as fnp
from functrans.experimental import ode
from tests.support.tables import TABLES, functions
from tests.support.versions import NEWEST

X = jnp.array([0.5, -1.0, 2.0])
MATRIX = jax.experimental.sparse.BCOO(
    (jnp.array([2.0, 1, 3, 4]), jnp.array([[0, 1], [1, 0], [1, 2], [2, 2]])), shape=(3, 3)
)
NOT_BATCHED = ("linear_call",)  # by JAX
TIMES = jnp.linspace(0.0, 1.0, 4)


def close(found, wanted):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6), found, wanted)


CALLS = functions(TABLES / "jax_inside.txt", "handed on", "lib, n, x", globals())


def checked(lib, n):
    def f(x):
        lib.experimental.checkify.check((x < 10).all(), "too large: {}", x)
        return (x * n.sin(x)).sum()

    return lib.experimental.checkify.checkify(f)


def weights():
    size = jax.experimental.rnn.get_num_params_in_lstm(3, 3, 1, False)
    return jax.experimental.rnn.unpack_lstm_weights(jnp.arange(float(size)) / size, 3, 3, 1, False)


def one_device():
    return jax.NamedSharding(jax.make_mesh((1,), ("i",)), jax.P("i"))


def added(lib, n, x):
    ref = lib.new_ref(jnp.zeros(()))
    ref[...] += (x * x).sum()
    return lib.freeze(ref)


CONTEXT = ft.make_user_context(1.0)


def within(lib, n):
    with CONTEXT(3.0):
        return lambda x: n.sin(x * CONTEXT.value).sum()


def shown(lib, x):
    lib.debug.inspect_array_sharding(x, callback=lambda sharding: None)
    return 2.0


@pytest.mark.parametrize("name", CALLS)
def test_handed_on_functions(name):
    ours, theirs = functools.partial(CALLS[name], ft, fnp), functools.partial(CALLS[name], jax, jnp)
    many = jnp.stack([X, X * X])
    value_and_slope = jax.jit(jax.value_and_grad(theirs))
    value, slope = value_and_slope(X)
    close(ours(X), value)
    close(ft.grad(ours)(X), slope)
    close(ft.jit(ft.value_and_grad(ours))(X), (value, slope))
    close(jax.jit(jax.grad(ours))(X), slope)
    if name not in NOT_BATCHED:
        close(ft.vmap(ours)(many), np.stack([value_and_slope(x)[0] for x in many]))


@pytest.mark.parametrize("name", ["zeros_like", "ones_like", "full_like", "empty_like"])
def test_what_is_made_like_an_array_is_where_that_is(name):
    f = functools.partial(getattr(fnp, name), **({"fill_value": 2.0} if name == "full_like" else {}))
    x = jax.device_put(X, one_device())
    assert f(x).sharding == x.sharding
    assert f(jax.ShapeDtypeStruct(X.shape, X.dtype, sharding=x.sharding)).sharding == x.sharding
    assert not f(jnp.asarray(X)).committed


def test_functions_of_ours_are_given_to_jax_s():
    solved = ode.odeint(ft.jit(lambda y, t: -y), X, TIMES)
    close(solved[-1], X * np.exp(-1.0))
    sharded = ft.experimental.multihost_utils.process_allgather(ft.jit(fnp.sin)(X))
    close(sharded.ravel(), np.sin(X))
    keep = ft.checkpoint_policies.save_only_these_names("kept")
    f = jax.checkpoint(ft.jit(lambda x: fnp.sin(x).sum()), policy=keep)
    close(ft.grad(f)(X), jnp.cos(X))


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["export", "ffi", "experimental.sparse.linalg", "experimental.pallas.ops.tpu", "stages"]
)
def test_modules_are_loaded_once(name):
    ours = importlib.import_module(f"functrans.{name}")
    assert ours is importlib.import_module(f"jax.{name}")
    assert ours.__spec__.name == f"jax.{name}"
    assert "sparse" in dir(ft.experimental)


def test_what_jax_adds_is_here(monkeypatch):
    monkeypatch.setattr(jax.numpy, "newest", lambda x: jnp.sin(x) * 2, raising=False)
    assert "newest" in dir(fnp)
    try:
        close(ft.grad(lambda x: fnp.newest(x).sum())(X), 2 * jnp.cos(X))
    finally:
        del fnp.newest


def test_deprecated_names_are_as_jax_treats_them(monkeypatch):
    monkeypatch.setattr(jax.numpy, "__getattr__", deprecations, raising=False)
    for _ in range(2):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            assert fnp.old is jnp.sin
        (warning,) = said
        assert warning.category is DeprecationWarning
        assert warning.filename == __file__
    with pytest.raises(AttributeError, match=r"^gone: write new$"):
        fnp.gone  # noqa: B018


def deprecations(name):
    if name == "old":
        warnings.warn("old: write new", DeprecationWarning, stacklevel=2)
        return jnp.sin
    if name == "gone":
        raise AttributeError("gone: write new")
    raise AttributeError(f"module 'jax.numpy' has no attribute {name!r}")


def test_misspelt_names():
    with pytest.raises(AttributeError, match=r"'functrans.numpy' has no attribute 'sine'.* 'sin'"):
        fnp.sine  # noqa: B018
    with pytest.raises(AttributeError, match=r"attribute 'chekify'\. Did you mean 'checkify'"):
        ft.experimental.chekify  # noqa: B018
    with pytest.raises(AttributeError, match=r"has no attribute '_private'$"):
        ft.lax._private  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'reshart'"):
        exec("from functrans import reshart")
    with pytest.raises(ModuleNotFoundError, match=r"'functrans\.experimental\.odee'"):
        importlib.import_module("functrans.experimental.odee")
    with pytest.raises(ModuleNotFoundError, match=r"'functrans\._src'"):
        importlib.import_module("functrans._src")


# --- what JAX takes for an array ------------------------------------------------------------------


class Holder:
    """What says of itself that it is an array."""

    def __init__(self, value):
        self.value = value

    def __jax_array__(self):
        return self.value


UNARY = "sin sum ravel median cumsum argmax linalg.norm round asarray sort zeros_like clip"


def function_of(name):
    found = fnp
    for part in name.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("name", UNARY.split())
def test_functions_of_what_holds_an_array(name):
    f = function_of(name)
    close(f(Holder(X)), f(X))
    held = ft.make_ir(lambda x: (f(Holder(x)), f(Holder(X))))(X)
    close(ft.interpret(held, X), [f(X), f(X)])


class Wide:
    """An array of another library, with 64-bit integers."""

    def __array__(self, dtype=None, copy=None):
        return np.array([2**40, 3])


def test_masked_arrays_and_buffers_as_jax_takes_them():
    masked = np.ma.masked_array([1.0, 2.0], mask=[False, True])
    buffer = array.array("f", [1.0, 2.0])
    for make in (fnp.array, jnp.array):
        close(make(masked), np.array([1.0, 2.0], "f"))
        close(make(buffer), np.array([1.0, 2.0], "f"))
        close(make([buffer, memoryview(buffer)]), np.array([[1.0, 2.0]] * 2, "f"))
        assert make(buffer, dtype="float16").dtype == "float16"
    close(fnp.asarray(buffer), jnp.asarray(buffer))
    close(fnp.array(Wide(), "float32"), jnp.array(Wide(), "float32"))
    close(fnp.array([Wide(), Wide()], "float32"), jnp.array([Wide(), Wide()], "float32"))
    for values in (Wide(), buffer):
        close(ft.jit(lambda x, y=values: x.at[1:].set(y))(X), X.at[1:].set(values))
    for library in (fnp, jnp):
        with pytest.raises(ValueError, match="masked"):
            library.asarray(masked)
        with pytest.raises(ValueError, match="masked"):
            library.sin(masked)
        with pytest.raises(TypeError):
            library.sin(buffer)


def test_types_in_place_of_arrays():
    for given in (jnp.float32, np.dtype("int8"), float, "float32", 1.0, np.int16(2), X):
        assert ft.lax.dtype(given) == jax.lax.dtype(given)
    assert ft.jit(lambda x: ft.lax.dtype(x) == "float32")(X)
    of_this = SimpleNamespace(shape=(3,), dtype=np.dtype("float32"))
    for given in (jax.ShapeDtypeStruct((3,), jnp.float32), of_this):
        close(ft.linear_transpose(lambda x: 2 * x, given)(X), (2 * X,))
        assert ft.eval_shape(lambda x: x[:, None] * x, given).shape == (3, 3)
        assert ft.make_ir(lambda x: x)(given).in_types == ft.make_ir(lambda x: x)(X).in_types
    with pytest.raises(TypeError, match="not an array"):
        ft.jit(lambda x: x)(of_this)


def test_linear_functions_of_integers_and_with_results_that_nobody_reads():
    for n, library in ((fnp, ft), (jnp, jax), (jnp, ft)):
        rows = library.linear_transpose(
            lambda x, y, n=n: n.cumsum(x)[::2] + 3 * y, *[np.arange(3), np.arange(2)]
        )
        assert [y.tolist() for y in rows(np.arange(2))] == [[1, 1, 1], [0, 3]]
        f = library.jit(lambda x: (2 * x, x > 0))
        assert float(library.linear_transpose(lambda x, f=f: f(x)[0], 1.0)(1.0)[0]) == 2.0


@pytest.mark.smoke
def test_what_reads_a_file_reads_it_again(tmp_path):
    path = str(tmp_path / "numbers.npy")
    for numbers in (np.arange(3.0), np.arange(4.0)):
        np.save(path, numbers)
        assert fnp.load(path).shape == numbers.shape
        assert ft.jit(lambda x: x * fnp.load(path))(1.0).shape == numbers.shape


@pytest.mark.smoke
def test_lists_of_sizes_and_numbers_of_axes_stay_python_s():
    """A list is as good as a tuple, and traced once; a layout is numbers, not arrays."""
    image, kernel, layout = jnp.ones((1, 5, 5, 2)), jnp.ones((3, 3, 2, 4)), ("NHWC", "HWIO", "NHWC")
    numbers = ft.lax.conv_dimension_numbers(image.shape, kernel.shape, layout)
    assert numbers == jax.lax.conv_dimension_numbers(image.shape, kernel.shape, layout)
    assert {type(n) for n in numbers.lhs_spec} == {int}

    def convolved(x, k):
        return ft.lax.conv_general_dilated(x, k, [1, 1], [(1, 1), (1, 1)], dimension_numbers=numbers)

    assert convolved(image, kernel).shape == (1, 5, 5, 4)
    program = ft.make_ir(convolved)(image, kernel)
    assert [e.primitive.name for e in program.equations] == ["conv_general_dilated"]


@pytest.mark.smoke
def test_folds_of_windows_begin_where_they_are_told():
    def folded(lib, n, start):
        return lambda x: lib.lax.reduce_window(x, start, lambda a, b: n.add(a, b), (2,), (1,), "SAME")

    for start in (0.0, 1.0):
        close(ft.jit(folded(ft, fnp, start))(X), jax.jit(folded(jax, jnp, start))(X))


@pytest.mark.smoke
def test_jax_knows_its_own_functions_by_our_names():
    """A fold of what is weakly typed by lax.add itself is weak, as by JAX."""
    weak = jnp.full(3, 1.5)
    assert weak.weak_type
    for f in (lambda lib: lib.lax.add, lambda lib: lambda a, b: a + b):
        made, theirs = (lib.lax.reduce_window(weak, 0.0, f(lib), (2,), (1,), "VALID") for lib in (ft, jax))
        assert made.weak_type == theirs.weak_type
    program = ft.make_ir(lambda x: ft.lax.reduce(x, 0.0, ft.lax.add, (0,)))(X)
    assert [e.primitive.name for e in program.equations] == ["reduce_sum"]


@pytest.mark.parametrize("wide", [False, True])
def test_keys_of_seeds(wide):
    """At top level, of a constant inside jit, and of a traced seed; also beyond 32 bits."""
    with jax.enable_x64(wide):
        for seed in (-1, 2**40 + 3, np.uint32(2**32 - 1)):
            wanted = jax.random.key(seed)
            traced = jnp.asarray(np.int64(seed) if isinstance(seed, int) else seed)
            for made, of_jax in (
                (ft.random.key(seed), wanted),
                (ft.jit(lambda s=seed: ft.random.key(s))(), wanted),
                (ft.jit(ft.random.key)(traced), jax.jit(jax.random.key)(traced)),
            ):
                assert made.dtype == of_jax.dtype
                assert (jax.random.key_data(made) == jax.random.key_data(of_jax)).all()


def test_numbers_beyond_32_bits():
    """JAX takes or refuses them, at top level and while tracing."""
    assert (fnp.roll(X, 2**40) == jnp.roll(X, 2**40)).all()
    fold = lambda key: ft.random.fold_in(key, 2**40)  # noqa: E731
    for f in (fold, ft.jit(fold)):
        with pytest.raises(OverflowError, match="out of bounds for uint32"):
            f(jax.random.key(0))


def of_words(function):
    """A function of `jax.random` as one of a key's words, doubled if they are a key's again."""

    def of_data(words, *given):
        made = function(jax.random.wrap_key_data(words), *given)
        return made if made.dtype == np.uint32 else 2 * jax.random.key_data(made)

    return of_data


UNNAMED = jax.extend.random.define_prng_impl(
    key_shape=(2,),
    seed=lambda seed: 3 * jax.random.key_data(jax.random.key(seed)),
    split=of_words(jax.random.split),
    random_bits=of_words(lambda key, width, shape: jax.random.bits(key, shape, f"uint{width}")),
    fold_in=of_words(jax.random.fold_in),
)


@pytest.mark.parametrize("impl", ["rbg", "unsafe_rbg", UNNAMED])
def test_other_generators(impl):
    """Of `jax.random` the bits, whichever generator makes them; the setting says which."""
    for name in ("threefry2x32", impl, "threefry2x32") if isinstance(impl, str) else ():
        with jax.default_prng_impl(name):
            for make in ("key", "PRNGKey"):
                ours, theirs = (getattr(library.random, make)(0) for library in (ft, jax))
                assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    keys = [library.random.key(1, impl=impl) for library in (ft, jax)]
    for name, argument in (("normal", (9,)), ("split", 3), ("fold_in", 3)):
        made = ft.jit(lambda k, name=name, a=argument: getattr(ft.random, name)(k, a))(keys[0])
        wanted = getattr(jax.random, name)(keys[1], argument)
        if name != "normal":
            made, wanted = map(jax.random.key_data, (made, wanted))
        np.testing.assert_array_equal(made, wanted)


def test_ufuncs_of_jax_are_ufuncs_here():
    for name in dir(jnp):
        theirs, ours = getattr(jnp, name), getattr(fnp, name, None)
        if isinstance(theirs, jnp.ufunc):
            assert isinstance(ours, fnp.ufunc)
            for fact in ("nin", "nout", "nargs", "identity"):
                assert getattr(ours, fact) == getattr(theirs, fact), (name, fact)
    assert not isinstance(fnp.sin, fnp.ufunc)
    shapes = [ft.ShapeDtypeStruct((3,), "float32")] * 2
    for f in (fnp.add, lambda x, y: fnp.maximum.reduce(x)):
        assert len(ft.make_ir(f)(*shapes).equations) == 1


@pytest.mark.parametrize("lib", [fnp, ft.lax])
def test_shapes_stay_integers_of_python(lib):
    def checked(x):
        assert lib.broadcast_shapes(x.shape, (3, 1)) == (3, 4)
        return x

    assert all([type(n) is int for n in lib.broadcast_shapes((2, 1), (3,))])
    for run in (checked, ft.jit(checked), ft.grad(lambda x: checked(x).sum())):
        run(np.ones(4))


@pytest.mark.skipif(not NEWEST, reason="JAX has the type since 0.12")
def test_a_type_alias_is_not_wrapped():
    """`jax.random.Key` is a `NewType`, which can be called but is no function."""
    assert ft.random.Key is jax.random.Key
