"""`scipy.spatial.transform`: rotations and what lies between them, against JAX's."""

from __future__ import annotations

import itertools
import os
import re

import jax
import jax.scipy.spatial.transform as theirs
import numpy as np
import pytest
from scipy.spatial.transform import Rotation as scipys

import functrans as ft
import functrans.numpy as jnp
import functrans.scipy.spatial.transform as ours
from functrans import errors
from functrans.scipy.spatial.transform import Rotation, Slerp
from tests.support.closeness import assert_close

RNG = np.random.default_rng(0)
DTYPES = ["float32", "float64"]
# forward of the dtype, and through angles: an inverse function loses some digits
CLOSE = {"float32": 3e-6, "float64": 1e-12}

# What rotations are made of, and how.
MAKERS = {
    "from_quat": ((4,), lambda m, x: m.Rotation.from_quat(x)),
    "from_matrix": ((3, 3), lambda m, x: m.Rotation.from_matrix(x)),
    "from_rotvec": ((3,), lambda m, x: m.Rotation.from_rotvec(x)),
    "from_rotvec, degrees": ((3,), lambda m, x: m.Rotation.from_rotvec(50 * x, degrees=True)),
    "from_mrp": ((3,), lambda m, x: m.Rotation.from_mrp(x)),
    "from_euler": ((3,), lambda m, x: m.Rotation.from_euler("zxy", x)),
    "from_euler, degrees": ((2,), lambda m, x: m.Rotation.from_euler("YX", 50 * x, degrees=True)),
    "from_euler, one": ((1,), lambda m, x: m.Rotation.from_euler("y", x)),
}
VECTOR = RNG.normal(size=3).astype("float32")

# What is asked of them.
METHODS = {
    "quat": lambda m, r: r.quat,
    "single": lambda m, r: r.single,
    "as_quat": lambda m, r: r.as_quat(),
    "as_quat, canonical": lambda m, r: r.as_quat(canonical=True),
    "as_quat, scalar first": lambda m, r: r.as_quat(True, scalar_first=True),
    "as_matrix": lambda m, r: r.as_matrix(),
    "as_rotvec": lambda m, r: r.as_rotvec(),
    "as_rotvec, degrees": lambda m, r: r.as_rotvec(degrees=True),
    "as_mrp": lambda m, r: r.as_mrp(),
    "as_euler": lambda m, r: r.as_euler("xzy"),
    "as_euler, degrees": lambda m, r: r.as_euler("XYX", degrees=True),
    "magnitude": lambda m, r: r.magnitude(),
    "inv": lambda m, r: r.inv(),
    "apply": lambda m, r: r.apply(VECTOR),
    "apply, inverse": lambda m, r: r.apply(VECTOR, inverse=True),
    "mul": lambda m, r: r * m.Rotation.from_rotvec(VECTOR) * r,
}
OF_STACKS = {
    "len": lambda m, r: len(r),
    "item": lambda m, r: r[1],
    "slice": lambda m, r: r[-2:],
    "rows": lambda m, r: r[np.array([1, 0, 1])],
    "concatenate": lambda m, r: m.Rotation.concatenate([r, r[:1]]),
    "mean": lambda m, r: r.mean().as_matrix(),
    "weighted mean": lambda m, r: r.mean(np.arange(len(r))).as_matrix(),
}
SEQUENCES = ["".join(s) for s in itertools.product("xyz", repeat=3) if s[0] != s[1] != s[2]]
SEQUENCES += [s.upper() for s in SEQUENCES]


def orthogonal(x):
    """Rotation matrices near any, of which each way of reading one is met."""
    q, r = np.linalg.qr(x)
    q = q * np.sign(np.diagonal(r, axis1=-2, axis2=-1))[..., None, :]
    return q * np.sign(np.linalg.det(q))[..., None, None]


def operands(dtype, lead=(5,)):
    made = {}
    for name, (core, _) in MAKERS.items():
        x = np.random.default_rng(1).normal(size=(*lead, *core))
        made[name] = (orthogonal(x) if core == (3, 3) else x).astype(dtype)
    return made


def stack_of(module, given):
    """The rotations of all makers."""
    return module.Rotation.concatenate([made(module, given[k]) for k, (_, made) in MAKERS.items()])


def compared(found, wanted, dtype):
    for name in wanted:
        # degrees are 57 times as far off
        limit = CLOSE[dtype] * (60 if "degrees" in name else 1)
        assert_close(found[name], wanted[name], limit, name)


@pytest.mark.parametrize("dtype", DTYPES)
def test_all_methods_of_stacks_of_all_makers(dtype):
    def every(module):
        def run(given):
            r = stack_of(module, given)
            return {name: f(module, r) for name, f in (METHODS | OF_STACKS).items()}

        return run

    with jax.enable_x64(dtype == "float64"):
        given = operands(dtype)
        compared(ft.jit(every(ours))(given), jax.jit(every(theirs))(given), dtype)
        nested = Rotation(stack_of(ours, given).quat.reshape(2, -1, 4))  # of two axes: as of one
        flat = ft.jit(every(ours))(given)
        for name, f in METHODS.items():
            rows = [y for y in jax.tree.leaves(f(ours, nested)) if not isinstance(y, bool)]
            wanted = [y for y in jax.tree.leaves(flat[name]) if y.ndim]
            rows = [y.reshape(-1, *y.shape[2:]) for y in rows]
            assert_close(rows, wanted, CLOSE[dtype] * 60, name)


def test_all_methods_of_single_rotations():
    def every(library, module):
        def run(given):
            made = {k: MAKERS[k][1](module, x) for k, x in given.items()}
            quats = library.numpy.stack([r.quat for r in made.values()])
            made = {f"{k}, single": r.single for k, r in made.items()}

            def of_one(q):
                return {k: f(module, module.Rotation(q)) for k, f in METHODS.items()}

            return made | library.vmap(of_one)(quats)

        return run

    given = operands("float32", ())
    found, wanted = [
        jit(every(library, module))(given)
        for jit, library, module in ((ft.jit, ft, ours), (jax.jit, jax, theirs))
    ]
    compared(found, wanted, "float32")
    r = Rotation(found["quat"][0])
    for name, f in METHODS.items():  # at top level, one by one
        if name != "single":
            limit = CLOSE["float32"] * 60
            assert_close(f(ours, r), jax.tree.map(lambda y: y[0], found[name]), limit, name)


def test_gradients():
    """Of the sum of the sines of all numbers, with respect to what the rotations were made of."""
    names = ["as_quat, canonical", "as_matrix", "as_rotvec", "as_mrp", "as_euler", "magnitude",
             "inv", "apply", "mul", "mean", "rows"]  # fmt: skip

    def total(library, module):
        def of(given):
            r = stack_of(module, given)
            found = [(METHODS | OF_STACKS)[n](module, r) for n in names]
            return sum(library.numpy.sin(y).sum() for y in library.tree.leaves(found))

        return library.grad(of)

    with jax.enable_x64(True):
        given = operands("float64")
        found, wanted = ft.jit(total(ft, ours))(given), jax.jit(total(jax, theirs))(given)
    for name in wanted:
        assert_close(found[name], wanted[name], 1e-8, name)


def every_sequence(module, sequences):
    def run(angles, quat):
        r = module.Rotation.from_quat(quat)
        return {
            seq: (module.Rotation.from_euler(seq, angles).as_matrix(), r.as_euler(seq))
            for seq in sequences
        }

    return run


@pytest.mark.parametrize(
    ("dtype", "sequences"),
    [
        ("float32", SEQUENCES[::7]),
        ("float64", SEQUENCES[1::7]),
        pytest.param("float64", SEQUENCES, marks=pytest.mark.heavy),
    ],
    ids=["float32", "float64", "all"],
)
def test_sequences_of_axes(dtype, sequences):
    with jax.enable_x64(dtype == "float64"):
        args = [RNG.normal(size=(6, n)).astype(dtype) for n in (3, 4)]
        found = ft.jit(every_sequence(ours, sequences))(*args)
        compared(found, jax.jit(every_sequence(theirs, sequences))(*args), dtype)


def test_all_sequences_of_axes_against_scipy():
    """Whose conventions are JAX's, and who compiles nothing."""
    assert len(set(SEQUENCES)) == 24
    with jax.enable_x64(True):
        angles, quat = RNG.normal(size=(6, 3)), RNG.normal(size=(6, 4))
        found = ft.jit(every_sequence(ours, SEQUENCES))(angles, quat)
    for seq, (matrix, read) in found.items():
        np.testing.assert_allclose(matrix, scipys.from_euler(seq, angles).as_matrix(), atol=1e-12)
        np.testing.assert_allclose(read, scipys.from_quat(quat).as_euler(seq), atol=1e-12)


HALF = np.sqrt(0.5)
# where the first and the last axis are one: exactly, so that rounding does not choose
LOCKED = {
    "symmetric, 0": ("zxz", [0.0, 0.0, 0.6, 0.8]),
    "symmetric, 0, along": ("ZXZ", [0.0, 0.0, 0.6, 0.8]),
    "symmetric, pi": ("zxz", [0.6, 0.8, 0.0, 0.0]),
    "symmetric, pi, along": ("ZXZ", [0.6, 0.8, 0.0, 0.0]),
    "identity": ("yzy", [0.0, 0.0, 0.0, 1.0]),
    "a quarter": ("xyz", [0.0, HALF, 0.0, HALF]),
    "a quarter, along": ("XYZ", [0.0, HALF, 0.0, HALF]),
    "a quarter back": ("zyx", [0.0, -HALF, 0.0, HALF]),
    "a quarter back, along": ("ZYX", [0.0, -HALF, 0.0, HALF]),
    "odd": ("yxz", [-0.5, 0.5, 0.5, -0.5]),
}


def test_gimbal_lock():
    def every(module):
        def run(quats):
            return {k: module.Rotation(q).as_euler(LOCKED[k][0]) for k, q in quats.items()}

        return run

    def slopes(library, module, k):
        return library.jit(library.jacrev(lambda q: module.Rotation(q).as_euler(LOCKED[k][0])))

    with jax.enable_x64(True):
        quats = {k: np.array(q) for k, (_, q) in LOCKED.items()}
        found, wanted = ft.jit(every(ours))(quats), jax.jit(every(theirs))(quats)
        for k, (seq, _) in LOCKED.items():
            assert_close(found[k], wanted[k], 1e-12, k)
            assert found[k][2] == 0.0
            back = Rotation.from_euler(seq, found[k]).as_matrix()
            assert_close(back, Rotation(quats[k]).as_matrix(), 1e-12, k)
        for k in ("symmetric, pi", "a quarter", "identity"):
            mine, their = slopes(ft, ours, k)(quats[k]), slopes(jax, theirs, k)(quats[k])
            assert np.isfinite(mine).all()  # JAX's are not everywhere
            known = np.isfinite(their)
            np.testing.assert_allclose(mine[known], their[known], atol=1e-9)


@pytest.mark.parametrize("dtype", DTYPES)
def test_small_angles(dtype):
    """To both sides of where the series end; at 0 itself, where JAX's derivatives are NaN."""
    sizes = np.array([1e-15, 1e-9, 1e-4, 9.9e-4, 1.01e-3, 1e-2])

    def both(library, module):
        def there(v):
            return module.Rotation.from_rotvec(v).as_quat()

        def back(q):
            return module.Rotation(q).as_rotvec()

        def run(v):
            q = there(v)
            return q, back(q), library.jacrev(there)(v), library.jacrev(back)(q)

        return library.jit(library.vmap(run))

    with jax.enable_x64(dtype == "float64"):
        v = (sizes[:, None] * np.array([0.6, 0.0, -0.8])).astype(dtype)
        assert_close(both(ft, ours)(v), both(jax, theirs)(v), CLOSE[dtype])
        zero = np.zeros(3, dtype)
        _, _, there, back = both(ft, ours)(zero[None])
        assert np.isnan(both(jax, theirs)(zero[None])[2]).all()
        assert_close(there[0], np.eye(4, 3, dtype=dtype) / 2, 0.0)
        assert_close(back[0], 2 * np.eye(3, 4, dtype=dtype), 0.0)
        one = Rotation.identity().quat
        assert_close(ft.grad(lambda q: Rotation(q).magnitude())(one), jnp.zeros(4), 0.0)
        curve = ft.hessian(lambda v: jnp.sum(Rotation.from_rotvec(v).as_rotvec() ** 2))(zero)
        assert_close(curve, 2 * np.eye(3, dtype=dtype))


def test_integers_lists_and_numbers():
    def every(module, array):
        r = module.Rotation
        return [
            r.from_quat(array([1, 2, 3, 4])),
            r.from_matrix(array([[0, -1, 0], [1, 0, 0], [0, 0, 1]])),
            r.from_rotvec(array([1, 0, 2])),
            r.from_mrp(array([[1, 0, 2], [0, 0, 0]])),
            r.from_euler("y", 90, degrees=True),
            r.from_euler("xy", array([1, 2])),
            r.identity(),
            r.identity(dtype="float16") * r.from_quat(array([1, 2, 3, 4])).inv(),
            r.identity(dtype=int).apply(array([1, 2, 3])),
            r.from_quat(array([1, 1, 1, 1])).apply(array([[1, 2, 3], [0, 1, 0]])),
        ]

    wanted = jax.jit(lambda: every(theirs, np.array))()
    for found in (every(ours, list), ft.jit(lambda: every(ours, np.array))()):
        assert_close(found, wanted)
        assert not any(x.weak_type for x in jax.tree.leaves(found))


def test_flags_may_be_traced():
    def every(module):
        def run(x, yes):
            r = module.Rotation.from_rotvec(x, yes) * module.Rotation.from_euler("xyz", x, yes)
            return r.apply(x, inverse=yes), r.as_rotvec(yes), r.as_euler("zxz", yes)

        return run

    x = RNG.normal(size=(4, 3)).astype("float32")
    for yes in (True, np.array([True, False, True, False])):
        assert_close(ft.jit(every(ours))(x, yes), jax.jit(every(theirs))(x, yes), 3e-5)


def test_shapes_that_fit_each_other():
    def both(module):
        def run(q, v):
            r = module.Rotation.from_quat(q)
            return r.apply(v), r * module.Rotation.from_rotvec(v)

        return run

    q, v = RNG.normal(size=(2, 1, 4)).astype("float32"), RNG.normal(size=(3, 3)).astype("float32")
    found = ft.jit(both(ours))(q, v)
    assert [x.shape for x in jax.tree.leaves(found)] == [(2, 3, 3), (2, 3, 4)]
    assert_close(found, jax.jit(both(theirs))(q, v))


def test_transformations_of_rotations():
    """They are pytrees: arguments, results, carries, what is differentiated."""
    q = RNG.normal(size=(4, 4)).astype("float32")
    r = Rotation.from_quat(q)
    assert jax.tree.structure(r) == jax.tree.structure(Rotation(0))
    assert isinstance(ft.jit(Rotation.inv)(r), Rotation)
    assert_close(ft.vmap(lambda r, v: r.apply(v), (0, None))(r, VECTOR), r.apply(VECTOR))
    assert_close(ft.vmap(Rotation.from_quat)(q), r)
    slope = ft.grad(lambda r: r.apply(VECTOR)[..., 0].sum())(r)
    wanted = jax.grad(lambda r: r.apply(VECTOR)[..., 0].sum())(theirs.Rotation(r.quat))
    assert isinstance(slope, Rotation)
    assert_close(slope, wanted)

    def turns(library, module):
        def step(carry, part):
            carry = carry * module.Rotation.from_rotvec(part)
            return carry, carry.as_rotvec()

        return lambda parts: library.lax.scan(step, module.Rotation.identity(), parts)

    parts = RNG.normal(size=(6, 3)).astype("float32")
    assert_close(ft.jit(turns(ft, ours))(parts), jax.jit(turns(jax, theirs))(parts))
    pushed = ft.jit(lambda x: ft.jvp(turns(ft, ours), (x,), (x,)))(parts)
    assert_close(pushed, jax.jit(lambda x: jax.jvp(turns(jax, theirs), (x,), (x,)))(parts), 1e-4)


def test_truth_is_that_of_jax_and_true_of_a_single_one():
    stack = Rotation.identity(2)
    assert stack
    assert not stack[:0]
    assert theirs.Rotation(stack.quat)
    assert not theirs.Rotation(stack[:0].quat)
    assert Rotation.identity()


def test_more_than_jax():
    """`identity(num)`, single rotations in `concatenate`, indices before the last axis alone."""
    assert_close(Rotation.identity(2).quat, np.array([[0, 0, 0, 1]] * 2, "float32"))
    one = Rotation.from_rotvec(VECTOR)
    assert_close(Rotation.concatenate([one, Rotation.identity(2)])[0], one)
    nested = Rotation.from_quat(RNG.normal(size=(2, 3, 4)).astype("float32"))
    assert_close(nested[..., 0].quat, nested.quat[:, 0])
    assert_close(nested[0, 1].quat, nested.quat[0, 1])


def test_random_rotations():
    """JAX has the name alone. Here: E[R] = 0, E[R_ij R_kl] = 1/3 if (i, j) = (k, l), else 0."""
    with pytest.raises(NotImplementedError):
        theirs.Rotation.random(jax.random.key(0))
    key = ft.random.key(0)
    assert Rotation.random(key).single
    drawn = ft.jit(Rotation.random, static_argnums=1)(key, 4000)
    assert_close(jnp.linalg.norm(drawn.quat, axis=1), np.ones(4000, "float32"))
    flat = drawn.as_matrix().reshape(-1, 9)
    assert abs(flat.mean(0)).max() < 0.05
    assert abs(flat.T @ flat / 4000 - np.eye(9) / 3).max() < 0.05
    with jax.enable_x64(True):
        assert Rotation.random(key, 2).quat.dtype == "float64"


# --- Slerp ----------------------------------------------------------------------------------------

TIMES = [0.0, 1.0, 2.5, 3.0]
TURNS = np.random.default_rng(5).normal(size=(4, 3))
AT = [np.array([-0.5, 0.0, 0.3, 1.0, 2.0, 2.75, 3.0]), 0.7, [0.5, 3.5], 1]


@pytest.mark.parametrize("dtype", DTYPES)
def test_slerp(dtype):
    def every(module, library):
        def made(times, turns):
            return module.Slerp.init(times, module.Rotation.from_rotvec(turns))

        def total(times, turns, at):
            return library.numpy.sin(made(times, turns)(at).as_rotvec()).sum()

        def run(times, turns):
            slerp = made(times, turns)
            slopes = library.grad(total, (0, 1, 2))(times, turns, times[:3] + 0.2)
            return slerp, [slerp(at) for at in AT], slopes

        return library.jit(run)

    with jax.enable_x64(dtype == "float64"):
        args = np.array(TIMES, dtype), TURNS.astype(dtype)
        found, wanted = every(ours, ft)(*args), every(theirs, jax)(*args)
        assert isinstance(found[0], Slerp)
        assert found[0]._fields == wanted[0]._fields
        assert_close(found, wanted, 10 * CLOSE[dtype])


def test_slerp_at_rest_and_mapped():
    turns = Rotation.from_rotvec(TURNS.astype("float32"))
    slerp = Slerp.init(TIMES, turns)
    assert_close(*ft.jit(lambda f, at: (ft.vmap(f)(at), f(at)))(slerp, jnp.array([0.25, 2.0])))
    assert_close(Slerp.init(np.array([2**40, 2**41]), turns[:2]).times, np.float32([2**40, 2**41]))

    def speed(v):  # two rotations that are one: JAX's derivative is NaN
        rest = Rotation.concatenate([Rotation.from_rotvec(v), Rotation.from_rotvec(v)])
        return Slerp.init([0.0, 1.0], rest)(0.5).as_rotvec().sum()

    v = TURNS[0].astype("float32")
    assert_close(ft.jit(ft.grad(speed))(v), np.ones(3, "float32"), 1e-5)


# --- wrong input ----------------------------------------------------------------------------------

ONE, STACK = Rotation.identity(), Rotation.identity(3)
WRONG = [
    (lambda: Rotation.from_quat(np.ones(3)), ValueError, r"quat must be of shape \[..., 4\], got"),
    (lambda: Rotation.from_quat(1.0), ValueError, r"\[..., 4\], got ~f32\[\]"),
    (lambda: Rotation.from_quat(np.ones(4) * 1j), TypeError, "real numbers, got c64"),
    (lambda: Rotation.from_quat("x"), TypeError, "from_quat"),
    (lambda: Rotation.from_matrix(np.eye(4)), ValueError, r"\[..., 3, 3\], got f32\[4,4\]"),
    (lambda: Rotation.from_rotvec(np.ones((3, 2))), ValueError, "rotvec must be of shape"),
    (lambda: Rotation.from_mrp(np.ones(4)), ValueError, "mrp must be of shape"),
    (lambda: Rotation.from_euler("xyz", np.ones(2)), ValueError, r"angles must be .*\[..., 3"),
    (lambda: Rotation.from_euler("x", np.ones(2)), ValueError, r"angles must be of shape \[..., 1"),
    (lambda: Rotation.from_euler("xYz", np.ones(3)), ValueError, "unknown sequence of axes 'xYz'"),
    (lambda: Rotation.from_euler("xyw", np.ones(3)), ValueError, "unknown sequence of axes 'xyw'"),
    (lambda: Rotation.from_euler("xxz", np.ones(3)), ValueError, "one axis twice"),
    (lambda: Rotation.from_euler("", np.ones(3)), ValueError, "1 to 3 letters"),
    (lambda: Rotation.from_euler(0, np.ones(3)), TypeError, "seq must be a string, got 0"),
    (lambda: ONE.as_euler("xy"), ValueError, "3 letters"),
    (lambda: ONE.as_euler("XyX"), ValueError, "unknown sequence of axes 'XyX'"),
    (lambda: ONE[0], TypeError, "not subscriptable"),
    (lambda: len(ONE), TypeError, "no length"),
    (lambda: STACK[0, 1], IndexError, "index"),
    (lambda: ONE * 2, TypeError, "takes a Rotation, got 2 of type int"),
    (lambda: STACK * Rotation.identity(2), ValueError, "incompatible shapes"),
    (lambda: STACK.apply(np.ones((2, 3))), ValueError, "Rotation.apply.*incompatible shapes"),
    (lambda: ONE.apply(np.ones(4)), ValueError, "vectors must be of shape"),
    (lambda: Rotation.concatenate([]), ValueError, "at least one rotation"),
    (lambda: Rotation.concatenate([ONE, 3]), TypeError, "takes a Rotation, got 3"),
    (lambda: ONE.mean(), ValueError, r"takes a stack \[n, 4\]"),
    (lambda: STACK.mean(np.ones(2)), ValueError, r"weights must be of shape \(3,\), got \(2,\)"),
    (lambda: STACK.mean(np.ones((3, 1))), ValueError, "weights must be of shape"),
    (lambda: Slerp.init([0, 1], ONE), ValueError, "two or more rotations"),
    (lambda: Slerp.init([0], STACK[:1]), ValueError, "two or more rotations"),
    (lambda: Slerp.init([0, 1], STACK.quat), TypeError, "takes a Rotation"),
    (lambda: Slerp.init([0, 1], STACK), ValueError, r"times must be of shape \(3,\)"),
    (lambda: Slerp.init([0, 2, 1], STACK), ValueError, r"times must increase, got \[0, 2, 1\]"),
    (lambda: Slerp.init([0, 1, 1 + 1e-9], STACK), ValueError, "must increase, got .* in float32"),
    (lambda: Slerp.init(TIMES[:3], STACK)(np.ones((2, 2))), ValueError, "at most one axis"),
]  # fmt: skip


@pytest.mark.parametrize("row", range(len(WRONG)))
def test_wrong_input(row):
    run, kind, words = WRONG[row]
    with pytest.raises(kind, match=words) as caught:
        run()
    assert isinstance(caught.value, errors.FunctransError)
    assert f"{os.path.basename(__file__)}:{run.__code__.co_firstlineno}" in str(caught.value)
    assert re.search(r"^ +\^+$", str(caught.value), re.MULTILINE)


def test_order_of_times_is_seen_wherever_they_are_known():
    def first(times):
        return Slerp.init(times, STACK)(0.5).quat[0]

    backward = np.array([2.0, 1.0, 0.0], "float32")
    with pytest.raises(ValueError, match="must increase"):
        ft.grad(first)(backward)
    with pytest.raises(ValueError, match="must increase"):
        ft.jit(lambda: first([2.0, 1.0, 0.0]))()
    assert ft.jit(first)(backward).shape == ()  # not there


@pytest.mark.parametrize("name", ["Rotation", "Slerp"])
def test_every_public_name_is_there(name):
    mine, their = getattr(ours, name), getattr(theirs, name)
    assert not [n for n in dir(their) if n[0] != "_" and not hasattr(mine, n)]
    assert mine._fields == their._fields
