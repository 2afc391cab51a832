"""pmap over eight virtual CPU devices, against JAX's.

The cases run in the process that test_on_eight_devices.py starts.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jax_numpy
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as ft_numpy
from tests.support.tables import TABLES, rows

INSIDE = len(jax.devices()) == 8
MINE, JAX = (ft, ft_numpy), (jax, jax_numpy)
X = np.arange(24.0, dtype=np.float32).reshape(4, 3, 2) / 10
W = np.ones((2, 5), np.float32) * 0.1
RING = [(i, (i + 1) % 4) for i in range(4)]


class Case(NamedTuple):
    make: Callable[[Any, Any], Any]  # (library, its numpy) -> function of one slice
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    options: dict[str, Any]

    def both(self):
        return [m.pmap(self.make(m, n), **self.options) for m, n in (MINE, JAX)]


def given(*args, keywords=None, **options):
    return args, keywords or {}, options


def total(m, n):
    return lambda x: m.lax.psum(n.sin(x), "i") * x


def step_of_training(m, n):
    def loss(params, x):
        return (n.tanh(x @ params["w"] + params["b"]) ** 2).mean()

    def step(params, x):
        value, gradient = m.value_and_grad(loss)(params, x)
        gradient = m.lax.pmean(gradient, "i")
        updated = m.tree.map(lambda p, g: p - 0.1 * g, params, gradient)
        return updated, m.lax.pmean(value, "i")

    return step


PARAMS = {"w": W, "b": np.float32(0.5)}
MANY_PARAMS = {"w": np.stack([W] * 4), "b": np.ones(4, np.float32)}
CASES = {
    row.fields[0]: Case(row.function("m, n", globals(), 1), *eval(f"given({row.fields[2]})"))
    for row in rows(TABLES / "devices.txt", "pmap")
}


def same(got, want):
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert (a.dtype, a.weak_type) == (b.dtype, b.weak_type)
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)


def same_layout(got, want):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert a.sharding == b.sharding or a.sharding.is_equivalent_to(b.sharding, a.ndim)
        assert a.sharding.device_set == b.sharding.device_set


if not INSIDE:

    def test_on_one_device():
        for name in ("one device", "in_axes, an int", "a step of training"):
            mine, theirs = CASES[name].both()
            x = X[:1, :1]
            given = (PARAMS, x) if "step" in name else (x,)
            same(mine(*given), theirs(*given))
            same_layout(mine(*given), theirs(*given))

else:

    def loss(f, case):
        """A number that depends on the arrays among the positional arguments."""

        def of(arrays):
            rest = iter(arrays)
            args = [next(rest) if isinstance(x, np.ndarray) else x for x in case.args]
            return sum((y**2).sum() for y in jax.tree.leaves(f(*args, **case.kwargs)))

        return of

    @pytest.mark.parametrize("name", CASES)
    def test_values_and_layout(name):
        case = CASES[name]
        mine, theirs = case.both()
        want = theirs(*case.args, **case.kwargs)
        for _ in range(2):
            got = mine(*case.args, **case.kwargs)
            same(got, want)
            same_layout(got, want)
        if "static" not in name:
            program = ft.make_ir(mine)(*case.args, **case.kwargs)
            ft.ir.check(program)
            found = ft.interpret(program, *jax.tree.leaves((case.args, case.kwargs)))
            for a, b in zip(found, jax.tree.leaves(want), strict=True):
                np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)

    def test_jitted_and_gradients():
        """Of the cases that use the same devices, in one program."""
        f = CASES["static arguments"]
        found = ft.jit(f.both()[0], static_argnums=(0, 2))(*f.args)
        same(found, f.both()[1](*f.args))
        cases = {name: c for name, c in CASES.items() if c.args[0] is X and "devices" not in c.options}
        cases = {name: c for name, c in cases.items() if c.options.get("in_axes") != 1}

        def every(m, which):
            found = {}
            for name, case in cases.items():
                f = case.both()[which]
                arrays = [x for x in case.args if isinstance(x, np.ndarray)]
                slope = None if "differs" in name else m.grad(loss(f, case))(arrays)  # JAX's: of the mean
                found[name] = f(*case.args, **case.kwargs), slope
            return found

        got, want = ft.jit(lambda: every(ft, 0))(), jax.jit(lambda: every(jax, 1))()
        same(got, want)
        same_layout(got, want)

    def test_inside_other_transformations():
        def of(m, n):
            f = m.pmap(lambda x: n.sin(x) * m.lax.psum(x, "i"), axis_name="i")
            g = m.pmap(lambda x: m.lax.psum(x, ("b", "i")), "i")
            xs = n.stack([X, X * 2], axis=1)

            def jitted(xs, w):
                return (
                    m.vmap(f, in_axes=1, out_axes=2)(xs),
                    m.grad(lambda w: m.pmap(lambda x: x * w)(X).sum())(w),
                    m.lax.scan(lambda c, _: (f(c), None), X, None, length=2)[0],
                    m.vmap(g, axis_name="b")(xs[:, :, 0].transpose(1, 0, 2)),
                    m.hessian(lambda w: m.pmap(lambda x: n.sin(x * w))(X).sum())(w),
                )

            return m.vmap(f, in_axes=1)(xs), *m.jit(jitted)(xs, 2.0), m.jvp(f, (X,), (X,))

        got, want = of(*MINE), of(*JAX)
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)
        same_layout(got[:2], want[:2])

    def test_random_keys():
        keys = [jax.random.split(make(0), 4) for make in (jax.random.key, jax.random.PRNGKey)]

        def of(m, n):
            def draw(keys):
                own = [m.random.fold_in(key, m.lax.axis_index("i")) for key in keys]
                return [m.random.normal(key, (3,)) for key in own], m.random.split(own[0]), own[1]

            values, made, old = m.pmap(draw, axis_name="i")(keys)
            return values, m.random.key_data(made), old

        same(of(*MINE), of(*JAX))
        same_layout(of(*MINE), of(*JAX))
