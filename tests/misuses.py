"""A hundred misuses, as people commit them.

Each is a small function of (functrans or jax, its numpy): it says which class of error functrans
raises, and which words the message must hold: what was given, what was expected, what to do. The
line that the message must name is marked `# <-`. `python -m tests.misuses` writes `docs/errors.md`,
where JAX's message for the same misuse stands beside ours.
"""

from __future__ import annotations

import inspect
import re
import textwrap
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import functrans as ft
import functrans.numpy
from functrans import errors

X = np.array([1.0, 2.0, 3.0], np.float32)
M = np.ones((2, 3), np.float32)
DOCUMENT = Path(__file__).parent.parent / "docs" / "errors.md"


class Misuse(NamedTuple):
    run: Callable[[Any, Any], Any]
    error: type[Exception]
    words: tuple[str, ...]
    jax: bool

    @property
    def title(self) -> str:
        return self.run.__name__.replace("_", " ").capitalize()


TABLE: list[Misuse] = []


def misuse(error: type[Exception], *words: str, jax: bool = True) -> Callable[..., Any]:
    """Enter a function into the table. `jax`: is JAX's error of a class that ours derives from?
    False where JAX raises none, or an `AssertionError` or the like."""

    def enter(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        TABLE.append(Misuse(function, error, words, jax))
        return function

    return enter


# --- a value is asked for that is not there yet ---------------------------------------------------


@misuse(errors.AbstractBoolError, "bool[]", "depends on x", "jnp.where", "lax.cond")
def an_if_on_a_traced_value(m, jnp):
    def relu(x):
        return x if x > 0 else 0.0  # <-

    m.jit(relu)(1.0)


@misuse(errors.AbstractBoolError, "bool[]", "lax.while_loop")
def a_while_on_a_traced_value(m, jnp):
    def halve(x):
        while x > 1:  # <-
            x = x / 2
        return x

    m.jit(halve)(8.0)


@misuse(errors.AbstractBoolError, "bool[]", "`&`")
def and_between_traced_values(m, jnp):
    m.jit(lambda x: jnp.where(x > 0 and x < 1, x, 0.0))(0.5)  # <-


@misuse(errors.AbstractBoolError, "bool[]", "jnp.where")
def an_assert_on_a_traced_value(m, jnp):
    def f(x):
        assert x.all(), "not zero"  # <-
        return x

    m.jit(f)(X)


@misuse(errors.AbstractValueError, "f32[]", "float()", "astype")
def float_of_a_traced_value(m, jnp):
    m.jit(lambda x: float(x) * 2)(1.0)  # <-


@misuse(errors.AbstractValueError, "f32[]", "int()", "static")
def int_of_a_traced_value_for_a_shape(m, jnp):
    m.jit(lambda x: jnp.zeros(int(x)))(3.0)  # <-


@misuse(errors.AbstractIndexError, "i32[]", "lax.fori_loop", "static")
def range_of_a_traced_value(m, jnp):
    def power(x, n):
        y = 1.0
        for _ in range(n):  # <-
            y = y * x
        return y

    m.jit(power)(2.0, 3)


@misuse(errors.AbstractIndexError, "i32[]", "jnp.asarray")
def a_list_indexed_by_a_traced_value(m, jnp):
    sizes = [1.0, 2.0, 3.0]
    m.jit(lambda i: sizes[i])(1)  # <-


@misuse(errors.AbstractArrayError, "f32[3]", "depends on x", "functrans.numpy")
def a_numpy_function_of_a_traced_array(m, jnp):
    m.jit(lambda x: np.exp(x))(X)  # <-


@misuse(errors.AbstractArrayError, "f32[3]", "derivative", "stop_gradient")
def a_numpy_function_under_grad(m, jnp):
    m.grad(lambda x: np.sum(np.sin(x)))(X)  # <-


@misuse(errors.AbstractValueError, "f32[]", "return it")
def item_of_a_traced_value(m, jnp):
    m.jit(lambda x: {"loss": x.sum().item()})(X)  # <-


@misuse(errors.AbstractValueError, "f32[3]", "debug.callback")
def a_traced_value_is_pickled(m, jnp):
    import pickle

    m.jit(lambda x: pickle.dumps(x) and x)(X)  # <-


@misuse(errors.NotSupported, "f32[]", "hashed", "static")
def a_traced_value_as_a_key_of_a_dict(m, jnp):
    names = {0.0: "zero"}
    m.jit(lambda x: names.get(x, "other") and x)(1.0)  # <-


# --- data that decide about shapes ----------------------------------------------------------------


@misuse(errors.NonConcreteMask, "bool[3]", "jnp.where")
def a_boolean_mask_under_jit(m, jnp):
    m.jit(lambda x: x[x > 1].sum())(X)  # <-


@misuse(errors.AbstractValueError, "size=")
def nonzero_under_jit(m, jnp):
    m.jit(lambda x: jnp.nonzero(x))(X)  # <-


@misuse(errors.AbstractValueError, "size=")
def unique_under_jit(m, jnp):
    m.jit(lambda x: jnp.unique(x))(X)  # <-


@misuse(errors.AbstractIndexError, "i32[]", "static")
def a_shape_that_is_an_argument(m, jnp):
    m.jit(lambda n: jnp.zeros((n, 2)))(3)  # <-


@misuse(errors.AbstractValueError, "i32[]", "static", "lax.iota")
def arange_up_to_an_argument(m, jnp):
    m.jit(lambda n: jnp.arange(n))(3)  # <-


@misuse(errors.InvalidIndex, "slice", "lax.dynamic_slice")
def a_slice_up_to_an_argument(m, jnp):
    m.jit(lambda x, n: x[:n])(X, 2)  # <-


# --- Python and NumPy habits ----------------------------------------------------------------------


@misuse(errors.NotSupported, "f32[3]", "x = x.at[i].set(y)")
def assignment_to_an_element(m, jnp):
    def f(x):
        x[0] = 1.0  # <-
        return x

    m.jit(f)(X)


@misuse(errors.NotAnArray, "list", "position 0", "jnp.asarray")
def a_list_where_an_array_is_needed(m, jnp):
    jnp.sum([1.0, 2.0, 3.0])  # <-


@misuse(errors.TypeMismatch, "no axes")
def len_of_a_traced_scalar(m, jnp):
    m.jit(lambda x: len(x))(1.0)  # <-


@misuse(errors.TypeMismatch, "no axes")
def unpacking_a_traced_scalar(m, jnp):
    def f(x):
        a, b = x.sum()  # <-
        return a + b

    m.jit(f)(X)


@misuse(errors.NotAnArray, "'relu'", "static_argnums")
def a_string_given_to_jit(m, jnp):
    m.jit(lambda x, kind: x)(X, "relu")  # <-


@misuse(errors.NotAnArray, "'adam'", "args[0]['name']")
def a_string_in_a_pytree_of_parameters(m, jnp):
    m.grad(lambda p: (p["w"] ** 2).sum())({"w": X, "name": "adam"})  # <-


@misuse(errors.NotAnArray, "generator", "list(")
def a_generator_given_to_jit(m, jnp):
    m.jit(lambda xs: sum(xs))(x for x in (1.0, 2.0))  # <-


@misuse(errors.NotAnArray, "None", "add")
def none_where_an_array_is_needed(m, jnp):
    m.jit(lambda x, bias: jnp.add(x, bias))(X, None)  # <-


@misuse(errors.NotAnArray, "jit takes a function", "jit(f)(x)")
def jit_of_a_result(m, jnp):
    m.jit(jnp.sin(X))  # <-


@misuse(errors.TypeMismatch, "'flaot32'", "float32")
def a_misspelt_dtype(m, jnp):
    jnp.zeros(3, dtype="flaot32")  # <-


@misuse(errors.TypeMismatch, "4", "dtype", "one tuple")
def sizes_that_are_not_in_a_tuple(m, jnp):
    jnp.ones(3, 4)  # <-


@misuse(errors.TypeMismatch, "(-1,)", "negative")
def a_negative_size(m, jnp):
    jnp.zeros(len(X) - 4)  # <-


@misuse(errors.TypeMismatch, "2.5", "//")
def a_size_that_is_a_float(m, jnp):
    jnp.tile(X, (len(X) - 0.5,))  # <-


@misuse(errors.InvalidArgument, "different lengths", "Pad")
def an_array_of_rows_of_different_lengths(m, jnp):
    jnp.array([[1.0, 2.0], [3.0]])  # <-


@misuse(errors.TypeMismatch, "one argument or three", "where(mask, x, y)")
def where_with_one_choice(m, jnp):
    m.jit(lambda x: jnp.where(x > 0, x))(X)  # <-


@misuse(errors.TypeMismatch, "sequence of arrays", "[x, y]")
def concatenate_of_one_number(m, jnp):
    jnp.concatenate(1.0)  # <-


@misuse(errors.TypeMismatch, "called", "x.at[i].set(y)")
def at_with_round_brackets(m, jnp):
    m.jit(lambda x: x.at(0).set(1.0))(X)  # <-


@misuse(errors.UnknownUpdate, "'subtact'", "subtract")
def a_misspelt_update(m, jnp):
    m.jit(lambda x: x.at[0].subtact(1.0))(X)  # <-


@misuse(errors.InvalidArgument, "(2,)", "scalar")
def an_update_of_another_size(m, jnp):
    m.jit(lambda x: x.at[0].set(jnp.ones(2)))(X)  # <-


@misuse(errors.InvalidArgument, "'gpu'", "devices('gpu')[0]")
def a_device_by_its_name(m, jnp):
    m.device_put(X, "gpu")  # <-


# --- leaked tracers -------------------------------------------------------------------------------


@misuse(errors.LeakedTracer, "f32[3]", "return", "made at")
def a_traced_value_kept_in_a_list(m, jnp):
    kept = []
    m.jit(lambda x: kept.append(x * 2))(X)
    kept[0] + 1  # <-


@misuse(errors.LeakedTracer, "f32[]", "return")
def a_traced_value_kept_in_an_attribute(m, jnp):
    class Counter:
        total = 0.0

    @m.jit
    def count(x):
        Counter.total = Counter.total + x.sum()  # <-
        return x

    count(X)
    count(M)  # the total is a tracer of the first call


@misuse(errors.LeakedTracer, "f32[]", "ended", jax=False)  # TracerBoolConversionError
def a_leaked_value_as_a_condition(m, jnp):
    kept = []
    m.grad(lambda x: (kept.append(m.jit(lambda y: kept.append(y) or y)(x)), x)[1])(1.0)
    if kept[0]:  # <-
        pass


@misuse(errors.DeletedArray, "f32[3]", "donate", "x = step(x)")
def a_donated_buffer_used_again(m, jnp):
    step = m.jit(lambda x: x + 1, donate_argnums=0)
    x = jnp.asarray(X)
    step(x)
    step(x)  # <-


# --- shapes ---------------------------------------------------------------------------------------


@misuse(errors.ShapeMismatch, "f32[3]", "f32[4]", "x[:, None]")
def shapes_that_do_not_broadcast(m, jnp):
    m.jit(lambda x: x + jnp.ones(4))(X)  # <-


@misuse(errors.TypeMismatch, "f32[3]", "f32[4,2]", "equal sizes")
def a_wrong_shape_inside_vmap(m, jnp):
    w = np.ones((4, 2), np.float32)
    m.vmap(lambda x: x @ w)(np.ones((8, 3), np.float32))  # <-


@misuse(errors.TypeMismatch, "f32[2,3]", "axis 1", "axis 0")
def matrices_that_do_not_fit(m, jnp):
    m.jit(lambda x: x @ x)(M)  # <-


@misuse(errors.TypeMismatch, "f32[2,3]", "6", "(4, 2)", "-1")
def reshape_to_another_size(m, jnp):
    m.jit(lambda x: x.reshape(4, 2))(M)  # <-


@misuse(errors.TypeMismatch, "f32[2,3]", "f32[2,2]", "axis 0")
def concatenate_of_shapes_that_differ(m, jnp):
    jnp.concatenate([M, M[:, :2]])  # <-


@misuse(errors.InvalidArgument, "axis 2", "dimension 2")
def an_axis_out_of_range(m, jnp):
    jnp.sum(M, axis=2)  # <-


@misuse(errors.InvalidArgument, "einsum", "(2, 3)", "'ijk'", "One letter per axis")
def einsum_with_too_many_letters(m, jnp):
    jnp.einsum("ijk,kl->il", M, M)  # <-


@misuse(errors.TypeMismatch, "(-1, -1)", "One size may be -1")
def reshape_with_two_unknown_sizes(m, jnp):
    m.jit(lambda x: x.reshape(-1, -1))(M)  # <-


@misuse(errors.InvalidArgument, "einsum", "'k'", "did not appear")
def einsum_with_a_letter_from_nowhere(m, jnp):
    jnp.einsum("ij->k", M)  # <-


@misuse(errors.UnknownPadding, "'SAMEE'", "'SAME'")
def a_misspelt_padding(m, jnp):
    m.lax.conv(np.ones((1, 2, 4, 4)), np.ones((2, 2, 2, 2)), (1, 1), "SAMEE")  # <-


@misuse(errors.InvalidArgument, "einsum", "'j'", "3", "2", "equal sizes")
def einsum_whose_sizes_differ(m, jnp):
    jnp.einsum("ij,jk->ik", M, M)  # <-


@misuse(errors.InvalidIndex, "1-dimensional", "2 were indexed")
def too_many_indices(m, jnp):
    m.jit(lambda x: x[0, 0])(X)  # <-


# --- grad and its relatives -----------------------------------------------------------------------


@misuse(errors.NonScalarLoss, "f32[3]", "jnp.sum", "jacrev")
def gradient_of_a_vector(m, jnp):
    m.grad(lambda x: x**2)(X)  # <-


@misuse(errors.NonScalarLoss, "tuple", "has_aux=True")
def gradient_of_a_loss_and_metrics(m, jnp):
    m.grad(lambda x: (x.sum(), {"mean": x.mean()}))(X)  # <-


@misuse(errors.NonDifferentiable, "i32[]", "astype(float)", "allow_int=True")
def gradient_by_an_integer(m, jnp):
    m.grad(lambda x: x**2)(3)  # <-


@misuse(errors.MissingArgument, "argnums=1", "1 positional")
def argnums_beyond_the_arguments(m, jnp):
    m.grad(lambda x, y=1.0: x * y, argnums=1)(2.0)  # <-


@misuse(errors.TypeMismatch, "f32[3]", "i32[3]", "tangent")
def a_tangent_of_another_dtype(m, jnp):
    m.jvp(jnp.sin, (X,), (np.ones(3, np.int32),))  # <-


@misuse(errors.InvalidArgument, "cotangent", "f32[3]", "f32[]")
def a_cotangent_of_another_shape(m, jnp):
    _, pullback = m.vjp(jnp.sin, X)
    pullback(1.0)  # <-


@misuse(errors.RuleMismatch, "bwd", "2", "1")
def a_bwd_rule_with_too_few_cotangents(m, jnp):
    @m.custom_vjp
    def f(x, y):
        return x * y

    f.defvjp(lambda x, y: (x * y, (x, y)), lambda res, g: (g * res[1],))
    m.grad(f)(1.0, 2.0)


@misuse(errors.RuleMismatch, "fwd", "pair")
def a_fwd_rule_without_residuals(m, jnp):
    @m.custom_vjp
    def f(x):
        return x * x

    f.defvjp(lambda x: x * x, lambda res, g: (g,))
    m.grad(f)(1.0)


@misuse(errors.MissingCustomRule, "defvjp")
def a_custom_vjp_without_rules(m, jnp):
    f = m.custom_vjp(lambda x: x * x)
    f(1.0)  # <-


@misuse(errors.MissingArgument, "argnums=0", "by position")
def gradient_by_a_keyword(m, jnp):
    m.grad(lambda x: x**2)(x=1.0)  # <-


@misuse(errors.NotAnArray, "has_aux=True", "f32[]", "loss, aux")
def has_aux_without_aux(m, jnp):
    m.value_and_grad(lambda x: x.sum(), has_aux=True)(X)  # <-


@misuse(errors.NonDifferentiable, "i32[3]", "astype(float)")
def jacobian_by_integers(m, jnp):
    m.jacfwd(lambda x: x**2)(jnp.arange(3))  # <-


@misuse(errors.TypeMismatch, "(*,)", "(*, *)", "(dx, dy)")
def a_tangent_too_many(m, jnp):
    m.jvp(jnp.sin, (X,), (X, X))  # <-


@misuse(errors.InvalidArgument, "(*, *)", "one cotangent")
def a_cotangent_too_few(m, jnp):
    _, pullback = m.vjp(lambda x: (x, x), 1.0)
    pullback(1.0)  # <-


@misuse(errors.RuleMismatch, "fwd", "(*args)", "takes 1 positional argument but 2 were given")
def a_fwd_rule_of_too_few_arguments(m, jnp):
    f = m.custom_vjp(lambda x, y: x * y)

    def fwd(x):
        return x, None

    f.defvjp(fwd, lambda res, g: (g, g))
    m.grad(f)(1.0, 2.0)


@misuse(errors.InvalidArgument, "nondiff_argnums=2", "1 (y)", jax=False)  # IndexError, at the call
def nondiff_argnums_beyond_the_arguments(m, jnp):
    f = m.custom_vjp(lambda x, y: x * y, nondiff_argnums=(2,))  # <-
    f.defvjp(lambda x, y: (x, None), lambda n, res, g: (g, g))
    m.grad(f)(1.0, 2.0)


@misuse(errors.NotAnArray, "'dots_saveable'", "checkpoint_policies.dots_saveable")
def a_checkpoint_policy_by_its_name(m, jnp):
    m.grad(m.checkpoint(lambda x: jnp.sin(x).sum(), policy="dots_saveable"))(X)  # <-


# --- vmap and named axes --------------------------------------------------------------------------


@misuse(errors.InvalidArgument, "in_axes=(0,)", "2 positional", "None")
def in_axes_for_too_few_arguments(m, jnp):
    m.vmap(lambda x, y: x + y, in_axes=(0,))(X, X)  # <-


@misuse(errors.InvalidArgument, "in_axes", "prefix", "'b'")
def in_axes_of_another_tree(m, jnp):
    m.vmap(lambda p: p["w"], in_axes=({"b": 0},))({"w": M})  # <-


@misuse(errors.BatchSizeMismatch, "args[0]", "size 3", "args[1]", "size 2")
def batches_of_different_sizes(m, jnp):
    m.vmap(lambda x, y: x + y)(X, X[:2])  # <-


@misuse(errors.UnboundAxis, "'batch'", "axis_name")
def a_collective_without_its_axis(m, jnp):
    m.vmap(lambda x: x - m.lax.pmean(x, "batch"))(X)  # <-


# --- control flow ---------------------------------------------------------------------------------


@misuse(errors.TypeMismatch, "carry", "i32[]", "f32[]")
def a_scan_whose_carry_changes_its_dtype(m, jnp):
    m.lax.scan(lambda c, x: (c + x, None), jnp.int32(0), X)  # <-


@misuse(errors.TypeMismatch, "carry", "structure")
def a_scan_whose_carry_changes_its_tree(m, jnp):
    m.lax.scan(lambda c, x: ((c[0] + x,), None), (0.0, 0.0), X)  # <-


@misuse(errors.TypeMismatch, "pair", "(carry, y)")
def a_scan_that_returns_the_carry_alone(m, jnp):
    m.lax.scan(lambda c, x: c + x, 0.0, X)  # <-


@misuse(errors.TypeMismatch, "branch", "f32[3]", "f32[]")
def branches_of_cond_that_differ(m, jnp):
    m.lax.cond(True, lambda x: x, lambda x: x.sum(), jnp.asarray(X))  # <-


@misuse(errors.TypeMismatch, "bool[3]", ".all()")
def a_while_loop_whose_condition_is_an_array(m, jnp):
    m.lax.while_loop(lambda x: x < 3, lambda x: x + 1, jnp.asarray(X))  # <-


@misuse(errors.TypeMismatch, "takes 1 positional argument but 2 were given", "f(carry, x)")
def a_scan_of_a_function_of_the_carry_alone(m, jnp):
    m.lax.scan(lambda c: (c, c), 0.0, X)  # <-


@misuse(errors.TypeMismatch, "fori_loop", "body_fun(i, carry)")
def a_fori_loop_of_a_function_of_the_carry_alone(m, jnp):
    m.lax.fori_loop(0, 3, lambda x: x + 1, 0.0)  # <-


@misuse(errors.TypeMismatch, "carry has the structure *,", "returned (*, *)")
def a_fori_loop_that_returns_the_counter_too(m, jnp):
    m.jit(lambda n: m.lax.fori_loop(0, n, lambda i, x: (i + 1, x), 0.0))(3)  # <-


@misuse(errors.AbstractIndexError, "i32[]", "lax.fori_loop", "static")
def a_scan_of_a_traced_length(m, jnp):
    m.jit(lambda n: m.lax.scan(lambda c, _: (c, None), 0.0, None, length=n))(3)  # <-


@misuse(errors.TypeMismatch, "(*,)", "in no tuple")
def a_while_loop_whose_condition_is_a_tuple(m, jnp):
    m.lax.while_loop(lambda x: (x < 3,), lambda x: x + 1, 0)  # <-


@misuse(errors.TypeMismatch, "i32[]", "x != 0")
def a_while_loop_whose_condition_is_a_number(m, jnp):
    m.lax.while_loop(lambda x: x, lambda x: x - 1, 3)  # <-


@misuse(errors.TypeMismatch, "(*,)", "{'a': *}")
def branches_of_cond_of_different_trees(m, jnp):
    m.lax.cond(True, lambda x: (x,), lambda x: {"a": x}, X)  # <-


@misuse(errors.TypeMismatch, "takes 0 positional arguments but 1 was given", "*operands")
def operands_for_branches_without_arguments(m, jnp):
    m.lax.cond(True, lambda: 1.0, lambda: 2.0, X)  # <-


# --- jit, static arguments, random numbers --------------------------------------------------------


@misuse(errors.UnhashableStatic, "argument 1", "[3, 3]", "tuple")
def a_static_list(m, jnp):
    m.jit(lambda x, shape: x, static_argnums=1)(X, [3, 3])  # <-


@misuse(errors.UnhashableStatic, "Model", "__hash__", "argument 0")
def jit_of_a_method_of_an_unhashable_object(m, jnp):
    class Model:
        __hash__ = None

        @partial(m.jit, static_argnums=0)
        def __call__(self, x):
            return x

    Model()(X)  # <-


@misuse(errors.InvalidArgument, "static_argnums=2", "0 (x), 1 (n)")
def static_argnums_beyond_the_arguments(m, jnp):
    m.jit(lambda x, n: x**n, static_argnums=2)  # <-


@misuse(errors.InvalidArgument, "static_argnames='m'", "1 (n)")
def a_static_argument_that_there_is_not(m, jnp):
    m.jit(lambda x, n: x**n, static_argnames="m")  # <-


@misuse(errors.TypeMismatch, "positions", "static_argnames")
def static_argnums_by_name(m, jnp):
    m.jit(lambda x, n: x**n, static_argnums=("n",))  # <-


@misuse(errors.UnhashableStatic, "traced", "static in the function around")
def a_traced_value_for_a_static_argument(m, jnp):
    power = m.jit(lambda x, n: x**n, static_argnums=1)
    m.jit(lambda x, n: power(x, n))(X, 2)  # <-


@misuse(errors.NotAnArray, "'text'", "result['name']")
def a_string_returned_from_jit(m, jnp):
    def f(x):  # <-
        return {"x": x, "name": "text"}

    m.jit(f)(X)


@misuse(errors.TypeMismatch, "key", "random.key(")
def random_numbers_without_a_key(m, jnp):
    m.random.normal((3,))  # <-


@misuse(errors.TypeMismatch, "key", "random.key(")
def a_seed_instead_of_a_key(m, jnp):
    m.random.uniform(0, (3,))  # <-


@misuse(errors.TypeMismatch, "key<fry>[]", "The key comes first")
def a_shape_before_the_key(m, jnp):
    m.random.normal((3,), m.random.key(0))  # <-


@misuse(errors.InvalidArgument, "(2,)", "vmap")
def several_keys_for_one_draw(m, jnp):
    m.random.normal(m.random.split(m.random.key(0)), (3,))  # <-


@misuse(errors.TypeMismatch, "2.5", "split(key, 3)")
def a_number_of_keys_that_is_a_float(m, jnp):
    m.random.split(m.random.key(0), 2.5)  # <-


@misuse(errors.TypeMismatch, "key", "key_data")
def arithmetic_with_a_key(m, jnp):
    m.jit(lambda key: key + 1)(m.random.key(0))  # <-


# --- the document ---------------------------------------------------------------------------------


def caught(run: Callable[[Any, Any], Any], library: Any) -> Exception | None:
    """The error of a misuse with functrans or jax."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            run(library, library.numpy)
        except Exception as error:
            return error
    return None


def marked_line(function: Callable[..., Any]) -> int | None:
    lines, first = inspect.getsourcelines(function)
    return next((first + i for i, line in enumerate(lines) if "# <-" in line), None)


def shown(error: Exception | None) -> str:
    """An error as the document has it: without directories, numbers of lines and addresses."""
    if error is None:
        return "(no error)"
    text = f"{type(error).__name__}: {error}"
    text = re.sub(r"(?:/[\w.\-]+)+/(\w+\.py)", r"\1", text)
    text = re.sub(r"\.py:\d+(:\d+)?", ".py", text)
    text = re.sub(r"0x[0-9a-f]{6,}", "0x...", text)
    lines = text.rstrip().split("\n")
    return "\n".join(
        part
        for line in lines
        for part in (
            textwrap.wrap(line, 100, subsequent_indent=re.match(r" *", line).group())
            if len(line) > 100 and not set(line) <= {" ", "^"} else [line]
        )
    )  # fmt: skip


def source_of(run: Callable[..., Any]) -> str:
    lines = inspect.getsource(run).split("\n")
    start = next(i for i, line in enumerate(lines) if line.startswith("def "))
    return "\n".join(lines[start:]).rstrip()


def section(row: Misuse) -> str:
    return "\n".join([
        f"## {row.title}", "",
        "```py", source_of(row.run), "```", "",
        "functrans:", "", "```text", shown(caught(row.run, ft)), "```", "",
        f"JAX {jax.__version__}:", "", "```text", shown(caught(row.run, jax)), "```", "",
    ])  # fmt: skip


HEAD = """# Misuses, and what they are told

Each function is run with `m, jnp = functrans, functrans.numpy` and with `m, jnp = jax, jax.numpy`;
`X` is `f32[3]`, `M` is `f32[2,3]`. Below it stand the two messages, long lines folded; paths and
numbers of lines are left out. Made by `python -m tests.misuses`, from `tests/misuses.py`; a test
holds its functions and our messages to what they are now.
"""


def document() -> str:
    return "\n".join([HEAD, *[section(row) for row in TABLE]])


if __name__ == "__main__":
    DOCUMENT.parent.mkdir(exist_ok=True)
    DOCUMENT.write_text(document())
