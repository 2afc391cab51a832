"""checkpoint, its policies, and what reverse mode keeps, against JAX's."""

import jax
import jax.ad_checkpoint
import jax.numpy as jax_numpy
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as ft_numpy
from functrans.ad_checkpoint import checkpoint_name, print_saved_residuals, saved_residuals

pytestmark = pytest.mark.smoke

W = jax_numpy.ones((3, 3)) * 0.3
X = jax_numpy.arange(12.0).reshape(4, 3) / 10

POLICIES = {
    "none": lambda p: None,
    "everything": lambda p: p.everything_saveable,
    "nothing": lambda p: p.nothing_saveable,
    "dots": lambda p: p.dots_saveable,
    "dots without batch": lambda p: p.dots_with_no_batch_dims_saveable,
    "names": lambda p: p.save_only_these_names("a"),
    "other names": lambda p: p.save_any_names_but_these("a"),
    "offloaded dots": lambda p: p.offload_dot_with_no_batch_dims("device", "pinned_host"),
    "offloaded names": lambda p: p.save_and_offload_only_these_names(
        names_which_can_be_saved=["b"],
        names_which_can_be_offloaded=["a"],
        offload_src="device",
        offload_dst="pinned_host",
    ),
    "a function": lambda _: lambda primitive, *_, **__: primitive is jax.lax.dot_general_p,
    "both": lambda p: p.save_from_both_policies(p.dots_saveable, p.save_only_these_names("a")),
}


def layers(np_, name, w, x):
    h = np_.tanh(x @ w)
    h = name(np_.sin(h) * 2, "a")
    return (np_.exp(h @ w) ** 2).sum()


def mine(policy, **how):
    chosen = POLICIES[policy](ft.checkpoint_policies)
    return ft.checkpoint(lambda w, x: layers(ft_numpy, checkpoint_name, w, x), policy=chosen, **how)


def theirs(policy):
    return jax.checkpoint(
        lambda w, x: layers(jax_numpy, jax.ad_checkpoint.checkpoint_name, w, x),
        policy=POLICIES[policy](jax.checkpoint_policies),
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_keeps_what_it_names(policy):
    kept = saved_residuals(mine(policy), W, X)
    arguments = [where for _, where in kept if "argument" in where]
    computed = [where.split()[0] for _, where in kept if "argument" not in where]
    want = {
        "none": [],
        "nothing": [],
        "everything": ["cos", "exp", "mul", "one_minus_square", "the"],
        "dots": ["dot_general"] * 2,
        "dots without batch": ["dot_general"] * 2,
        "names": ["the"],
        "offloaded dots": ["dot_general"] * 2,
        "offloaded names": ["the"],
        "other names": [],
        "a function": ["dot_general"] * 2,
        "both": ["dot_general"] * 2 + ["the"],
    }
    assert sorted(computed) == want[policy]
    assert len(arguments) == 2
    got = ft.grad(mine(policy))(W, X)
    np.testing.assert_allclose(got, jax.grad(theirs(policy))(W, X), rtol=1e-4)


def test_the_gradient_computes_again():
    program = ft.make_ir(ft.grad(mine("none")))(W, X)
    ft.ir.check(program)
    assert ft.ir.equal(ft.ir.parse(ft.ir.show(program), program.values), program)
    names = [e.primitive.name for e in program.equations]
    assert names == ["optimization_barrier", "checkpoint"]
    again = [e.primitive.name for e in program.equations[-1].params["program"].equations]
    assert "tanh" in again
    assert "exp" in again
    alone = ft.make_ir(ft.grad(mine("none", prevent_cse=False)))(W, X)
    assert [e.primitive.name for e in alone.equations] == ["checkpoint"]


def test_a_policy_may_have_any_attributes():
    class Nothing:
        mesh = "of the user"

        def __call__(self, primitive, *types, **params):
            return False

    assert ft.jit(ft.grad(ft.checkpoint(lambda x: x**3, policy=Nothing())))(2.0) == 12.0


@pytest.mark.parametrize("policy", ["none", "everything", "dots"])
def test_effects_happen_again_unless_the_policy_keeps_them(policy):
    def seen(ft):
        values = []

        def f(x):
            y = ft.numpy.sin(x)
            ft.debug.callback(lambda v: values.append(float(v)), y)
            return ft.numpy.sin(y)

        g = ft.grad(ft.checkpoint(f, policy=POLICIES[policy](ft.checkpoint_policies)))
        for h in (g, ft.jit(g)):
            h(2.0)
            jax.effects_barrier()
            values.append(0.0)
        return values

    assert seen(ft) == seen(jax)


CONSTANT = jax_numpy.arange(3.0)


def test_saved_residuals_are_named_by_the_users_line(capsys):
    def f(p, x):
        y = ft.jit(lambda v: ft_numpy.sin(v) * p["w"])(x)
        return (y * CONSTANT).sum()

    print_saved_residuals(f, {"w": X[0]}, X[1])
    lines = capsys.readouterr().out.splitlines()
    assert "f32[3] from the argument p['w']" in lines
    assert any("from sin at" in line and "test_checkpoint.py" in line for line in lines)
    assert any("from cos at" in line for line in lines)
    assert any("a constant" in line for line in lines)


def test_decorator_and_static_arguments_that_cannot_be_hashed():
    assert ft.grad(ft.checkpoint(static_argnums=1)(lambda x, n: x * n[0]))(1.0, [2]) == 2.0  # as in JAX
