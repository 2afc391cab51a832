"""Misuse, and what the user is told.

Each function of this table does something wrong, with functrans or with JAX. It says which class
of error functrans raises and which words the message holds; the message must also name the line
that is marked `# <-`. JAX is made to do the same: its error must be of a class that ours derives
from, so that `except` clauses go on working. After each error the next call must work.
"""

from __future__ import annotations

import builtins
import inspect
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

import functrans as ft
import functrans.lax
import functrans.numpy
from functrans import errors
from functrans.primitives.base import Primitive
from functrans.trace import state

X = np.array([1.0, 2.0, 3.0], np.float32)
M = np.ones((2, 3), np.float32)
I = np.arange(3, dtype=np.int32)  # noqa: E741


class Misuse(NamedTuple):
    run: Callable[[Any, Any], Any]
    error: type[Exception]
    words: tuple[str, ...]
    jax: bool


TABLE: list[Misuse] = []


def misuse(error: type[Exception], *words: str, jax: bool = True) -> Callable[..., Any]:
    """Enter a function of (functrans or jax, functrans.numpy or jax.numpy) into the table. `jax`:
    does JAX raise an error, too?"""

    def enter(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        TABLE.append(Misuse(function, error, words, jax))
        return function

    return enter


def marked_line(function: Callable[..., Any]) -> int | None:
    lines, first = inspect.getsourcelines(function)
    return next((first + i for i, line in enumerate(lines) if "# <-" in line), None)


def caught(run: Callable[[Any, Any], Any], library: Any, numpy: Any) -> Exception:
    with pytest.raises(Exception) as found:
        run(library, numpy)
    return found.value


# --- shapes and dtypes ----------------------------------------------------------------------------


@misuse(errors.ShapeMismatch, "add", "f32[3]", "f32[4]", "roadcast")
def shapes_that_do_not_broadcast(m, jnp):
    m.jit(lambda x: jnp.add(x, jnp.ones(4)))(X)  # <-


@misuse(errors.ShapeMismatch, "f32[3]", "f32[2,2]", "roadcast")
def shapes_that_do_not_broadcast_by_an_operator(m, jnp):
    def f(x):
        return x * np.ones((2, 2), np.float32)  # <-

    m.grad(f)(X)


@misuse(errors.TypeMismatch, "f32[2,3]", "3", "2")
def matrices_that_do_not_fit(m, jnp):
    def f(x):
        return x @ x  # <-

    m.jit(f)(M)


@misuse(errors.TypeMismatch, "f32[3]")
def dot_of_vectors_of_different_lengths(m, jnp):
    m.vmap(lambda x: jnp.dot(x, jnp.ones(4)))(M)  # <-


@misuse(errors.TypeMismatch, "f32[2,3]", "(4, 2)")
def reshape_to_another_size(m, jnp):
    m.jit(lambda x: x.reshape(4, 2))(M)  # <-


@misuse(errors.TypeMismatch, "concatenate")
def concatenating_what_does_not_fit(m, jnp):
    m.jit(lambda x: jnp.concatenate([x, M], axis=1))(np.ones((3, 3)))  # <-


@misuse(errors.AxisOutOfBounds, "sum", "axis 2", "dimension 2")
def an_axis_out_of_range(m, jnp):
    m.jit(lambda x: jnp.sum(x, axis=2))(M)  # <-


@misuse(errors.TypeMismatch, "f32[3]", "float32")
def bitwise_operation_on_floats(m, jnp):
    m.jit(lambda x: x & 1)(X)  # <-


@misuse(errors.TypeMismatch, "sin", "i32[3]", "int32", "Cast")
def sine_of_integers_in_lax(m, jnp):
    m.jit(lambda x: m.lax.sin(x))(I)  # <-


@misuse(errors.TypeMismatch, "add", "f32[3]", "i32[3]", "Cast")
def dtypes_that_differ_in_lax(m, jnp):
    m.jit(lambda x, i: m.lax.add(x, i))(X, I)  # <-


# --- grad -----------------------------------------------------------------------------------------


@misuse(errors.NonScalarLoss, "scalar", "f32[3]", "jnp.sum")
def loss_that_is_a_vector(m, jnp):
    m.grad(lambda x: jnp.sin(x))(X)  # <-


@misuse(errors.NonScalarLoss, "one scalar", "tuple", "has_aux=True")
def loss_and_something_else(m, jnp):
    m.grad(lambda x: (jnp.sum(x), x))(X)  # <-


@misuse(errors.NonScalarLoss, "returned None", "has_aux")
def loss_that_is_none(m, jnp):
    def f(x):
        jnp.sum(x)

    m.value_and_grad(f)(X)  # <-


@misuse(errors.NonDifferentiable, "i32[3]", "args[0]", "allow_int=True")
def gradient_by_integers(m, jnp):
    m.grad(lambda x: jnp.sum(x) * 1.0)(I)  # <-


@misuse(errors.NonDifferentiable, "bool[]", "allow_int=True")
def gradient_by_a_bool(m, jnp):
    m.grad(lambda x: jnp.where(x, 1.0, 2.0))(True)  # <-


@misuse(errors.NonDifferentiable, "i32[]", "real")
def loss_that_is_an_integer(m, jnp):
    m.grad(lambda x: jnp.sum(x).astype(int))(X)  # <-


@misuse(errors.NonDifferentiable, "c64[]", "holomorphic=True")
def loss_that_is_complex(m, jnp):
    m.grad(lambda x: x * 1.0j)(1.0)  # <-


@misuse(errors.NonDifferentiable, "f32[]", "holomorphic=True")
def holomorphic_gradient_by_a_real(m, jnp):
    m.grad(lambda x: x * 1.0j, holomorphic=True)(1.0)  # <-


@misuse(errors.MissingArgument, "argnums=1", "1 positional")
def argnums_out_of_range(m, jnp):
    m.grad(lambda x: x, argnums=1)(1.0)  # <-


@misuse(errors.NotAnArray, "has_aux", "pair", "(out, aux)")
def aux_that_is_not_there(m, jnp):
    m.grad(lambda x: jnp.sum(x), has_aux=True)(X)  # <-


@misuse(errors.NotAnArray, "grad takes a function", "grad(f)(x)")
def grad_of_a_number(m, jnp):
    m.grad(3.0)  # <-


@misuse(errors.NonDifferentiable, "jacfwd", "i32[3]")
def jacobian_by_integers(m, jnp):
    m.jacfwd(lambda x: x)(I)  # <-


@misuse(errors.NonDifferentiable, "jacrev", "i32[3]")
def backward_jacobian_by_integers(m, jnp):
    m.jacrev(lambda x: x)(I)  # <-


@misuse(errors.NonDifferentiable, "c64[3]", "holomorphic=True")
def backward_jacobian_of_a_complex_result(m, jnp):
    m.jacrev(lambda x: x * 1j)(X)  # <-


# --- jvp, vjp, linearize, linear_transpose --------------------------------------------------------


@misuse(errors.NotAnArray, "primals", "tuple", "jvp(f, (x,), (dx,))")
def primals_that_are_no_tuple(m, jnp):
    m.jvp(jnp.sin, X, X)  # <-


@misuse(errors.TypeMismatch, "i32[3]", "f32[3]", "tangent")
def tangent_of_another_dtype(m, jnp):
    m.jvp(jnp.sin, (X,), (I,))  # <-


@misuse(errors.ShapeMismatch, "f32[3]", "f32[2,3]", "tangent")
def tangent_of_another_shape(m, jnp):
    m.jvp(jnp.sin, (X,), (M,))  # <-


@misuse(errors.TypeMismatch, "structure", "tangents")
def tangents_of_another_structure(m, jnp):
    m.jvp(lambda d: d["a"], ({"a": X},), ({"b": X},))  # <-


@misuse(errors.TypeMismatch, "float0", "i32[3]")
def tangent_of_an_integer(m, jnp):
    m.jvp(lambda x: x, (I,), (I,))  # <-


@misuse(errors.InvalidArgument, "f32[2,3]", "f32[3]", "cotangent")
def cotangent_of_another_shape(m, jnp):
    _, pullback = m.vjp(jnp.sin, X)
    pullback(M)  # <-


@misuse(errors.InvalidArgument, "i32[3]", "f32[3]", "cotangent")
def cotangent_of_another_dtype(m, jnp):
    _, pullback = m.vjp(jnp.sin, X)
    pullback(I)  # <-


@misuse(errors.InvalidArgument, "structure", "cotangent")
def cotangent_of_another_structure(m, jnp):
    _, pullback = m.vjp(lambda x: (x, x), X)
    pullback(X)  # <-


@misuse(errors.ShapeMismatch, "f32[2,3]", "f32[3]")
def tangent_for_linearize_of_another_shape(m, jnp):
    _, f_jvp = m.linearize(jnp.sin, X)
    f_jvp(M)  # <-


@misuse(errors.InvalidArgument, "i32[3]", "f32[3]", "tangent")
def tangent_for_linearize_of_another_dtype(m, jnp):
    _, f_jvp = m.linearize(jnp.sin, X)
    f_jvp(I)  # <-


@misuse(errors.NotLinear, "sin(f32[3])", "not linear", "vjp")
def transpose_of_a_sine(m, jnp):
    m.linear_transpose(lambda x: jnp.sin(x), X)(X)  # <-


@misuse(errors.NotLinear, "mul", "operand 0 and 1 together", jax=False)  # JAX: an `assert`
def transpose_of_a_square(m, jnp):
    m.linear_transpose(lambda x: x * x, X)(X)  # <-


@misuse(errors.NotLinear, "sin(f32[3])", "not linear")
def transpose_of_a_sine_in_a_nested_jit(m, jnp):
    m.linear_transpose(m.jit(lambda x: 2 * jnp.sin(x)), X)(X)  # <-


@misuse(errors.TypeMismatch, "transposed function", "~f32[]", "f32[3]")
def cotangent_for_a_transpose_of_another_shape(m, jnp):
    m.linear_transpose(lambda x: 2 * x, X)(1.0)  # <-


@misuse(errors.TypeMismatch, "transposed function", "(*, *)", "has *")
def cotangent_for_a_transpose_of_another_structure(m, jnp):
    m.linear_transpose(lambda x: 2 * x, X)((X, X))  # <-


@misuse(errors.NonDifferentiable, "bool[]", "linear_transpose")
def transpose_with_booleans(m, jnp):
    m.linear_transpose(lambda x: x, True)(True)  # <-


# --- vmap -----------------------------------------------------------------------------------------


@misuse(errors.InvalidArgument, "axis 1", "args[0]", "f32[3]", "in_axes")
def in_axes_out_of_range(m, jnp):
    m.vmap(jnp.sin, in_axes=1)(X)  # <-


@misuse(errors.InvalidArgument, "in_axes=(0, 0)", "2 entries", "1 positional")
def in_axes_of_another_length(m, jnp):
    m.vmap(jnp.sin, in_axes=(0, 0))(X)  # <-


@misuse(errors.InvalidArgument, "in_axes", "prefix")
def in_axes_of_another_structure(m, jnp):
    m.vmap(lambda d: d["a"], in_axes=({"b": 0},))({"a": X})  # <-


@misuse(errors.NotAnArray, "in_axes", "'0'")
def in_axes_that_are_a_text(m, jnp):
    m.vmap(jnp.sin, in_axes="0")  # <-


@misuse(errors.NotAnArray, "1.5")
def in_axes_that_are_a_float(m, jnp):
    m.vmap(jnp.sin, in_axes=(1.5,))  # <-


@misuse(errors.BatchSizeMismatch, "args[0]: axis 0 of f32[3] has size 3", "args[1]", "size 2")
def batches_of_different_sizes(m, jnp):
    m.vmap(lambda x, y: x)(X, M)  # <-


@misuse(errors.BatchSizeMismatch, "axis_size=5", "args[0]")
def another_axis_size(m, jnp):
    m.vmap(jnp.sin, axis_size=5)(X)  # <-


@misuse(errors.InvalidArgument, "no mapped argument", "axis_size")
def nothing_mapped(m, jnp):
    m.vmap(lambda x: x, in_axes=None)(X)  # <-


@misuse(errors.InvalidArgument, "out_axes is None", "f32[3]")
def a_batched_result_with_out_axes_none(m, jnp):
    m.vmap(jnp.sin, out_axes=None)(X)  # <-


@misuse(errors.InvalidArgument, "out_axes=1", "out of range")
def out_axes_out_of_range(m, jnp):
    m.vmap(jnp.sin, out_axes=1)(X)  # <-


@misuse(errors.InvalidArgument, "out_axes", "prefix")
def out_axes_of_another_structure(m, jnp):
    m.vmap(lambda x: x, out_axes=(0, 0))(X)  # <-


# --- leaked tracers -------------------------------------------------------------------------------


@misuse(errors.LeakedTracer, "f32[3]", "ended", "return")
def a_tracer_of_jit_in_a_list(m, jnp):
    kept = []
    m.jit(lambda x: kept.append(jnp.sin(x)))(X)
    jnp.cos(kept[0])  # <-


@misuse(errors.LeakedTracer, "f32[3]", "has_aux=True")
def a_tracer_of_grad_in_a_list(m, jnp):
    kept = []

    def f(x):
        y = jnp.sin(x)
        kept.append(y)
        return jnp.sum(y)

    m.grad(f)(X)
    jnp.cos(kept[0])  # <-


@misuse(errors.LeakedTracer, "f32[]", "ended")
def a_tracer_of_vmap_in_a_list(m, jnp):
    kept = []
    m.vmap(lambda x: kept.append(jnp.sin(x)) or x)(X)
    kept[0] + 1.0  # <-


@misuse(errors.LeakedTracer, "f32[]", "ended", jax=False)  # JAX: TracerBoolConversionError
def a_leaked_argument_as_a_condition(m, jnp):
    kept = []
    m.jit(lambda x: kept.append(x))(1.5)
    if kept[0]:  # <-
        pass


@misuse(errors.LeakedTracer, "f32[3]", "ended")
def a_tracer_in_another_jit(m, jnp):
    kept = []
    m.jit(lambda x: kept.append(x))(X)
    m.jit(lambda x: x + kept[0])(X)  # <-


@misuse(errors.LeakedTracer, "f32[3]", "ended")
def a_tracer_given_to_jit(m, jnp):
    kept = []
    m.jit(lambda x: kept.append(x))(X)
    m.jit(jnp.sin)(kept[0])  # <-


@misuse(errors.LeakedTracer, "f32[3]", "ended")
def a_tracer_given_to_grad(m, jnp):
    kept = []
    m.jit(lambda x: kept.append(x))(X)
    m.grad(lambda x: jnp.sum(jnp.sin(x)))(kept[0])  # <-


@misuse(errors.LeakedTracer, "f32[3]", "ended")
def a_tracer_returned_by_another_jit(m, jnp):
    kept = []
    m.jit(lambda x: kept.append(x))(X)
    m.jit(lambda x: kept[0])(X)  # <-


@misuse(errors.LeakedTracer, "f32[3]", "another thread")
def a_tracer_in_another_thread(m, jnp):
    def f(x):
        raised = []

        def use():
            try:
                jnp.sin(x)  # <-
            except Exception as error:
                raised.append(error)

        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        raise raised[0]

    m.jit(f)(X)


# --- what is no array -----------------------------------------------------------------------------


@misuse(errors.NotAnArray, "'text'", "str", "return")
def jit_of_a_function_that_returns_a_text(m, jnp):
    def f(x):  # <-
        return {"a": x, "b": "text"}

    m.jit(f)(X)


@misuse(errors.NotAnArray, "'text'", "str", "return")
def vmap_of_a_function_that_returns_a_text(m, jnp):
    def f(x):  # <-
        return "text"

    m.vmap(f)(X)


@misuse(errors.NotAnArray, "object", "return")
def grad_of_a_function_that_returns_an_object(m, jnp):
    def f(x):  # <-
        return object()

    m.grad(f)(1.0)


@misuse(errors.NotAnArray, "'text'", "str", "static_argnums")
def text_given_to_jit(m, jnp):
    m.jit(lambda x: x)("text")  # <-


@misuse(errors.NotAnArray, "'text'", "str")
def text_given_to_grad(m, jnp):
    m.grad(lambda x: x)("text")  # <-


@misuse(errors.NotAnArray, "'text'", "str")
def text_given_to_vmap(m, jnp):
    m.vmap(lambda x: x)("text")  # <-


@misuse(errors.NotAnArray, "'text'", "str")
def text_given_to_a_function_of_arrays(m, jnp):
    m.jit(lambda x: jnp.sin("text"))(X)  # <-


@misuse(errors.NotAnArray, "object")
def array_of_objects(m, jnp):
    m.jit(lambda x: x)(np.array([object()]))  # <-


@misuse(errors.NotAnArray, "jit takes a function")
def jit_of_a_number(m, jnp):
    m.jit(3)  # <-


@misuse(errors.NotAnArray, "vmap takes a function")
def vmap_of_a_number(m, jnp):
    m.vmap(3)  # <-


@misuse(errors.UnhashableStatic, "[1, 2]", "list", "tuple", "argument 1")
def static_list(m, jnp):
    m.jit(lambda x, n: x, static_argnums=1)(X, [1, 2])  # <-


@misuse(errors.UnhashableStatic, "list", "'n'")
def static_list_by_name(m, jnp):
    m.jit(lambda x, n: x, static_argnames="n")(X, n=[1, 2])  # <-


@misuse(errors.UnhashableStatic, "list", "'n'")
def static_list_in_a_nested_jit(m, jnp):
    g = m.jit(lambda x, n: x, static_argnames="n")
    m.jit(lambda x: g(x, n=[1, 2]))(X)  # <-


# --- values that are unknown while tracing --------------------------------------------------------


@misuse(errors.AbstractBoolError, "bool[]", "lax.cond", "jnp.where", "static_argnums")
def condition_in_jit(m, jnp):
    def f(x):
        if x > 0:  # <-
            return x
        return -x

    m.jit(f)(1.0)


@misuse(errors.AbstractBoolError, "bool[]", "lax.while_loop")
def loop_in_vmap(m, jnp):
    def f(x):
        while x < 3:  # <-
            x = x + 1
        return x

    m.vmap(f)(X)


@misuse(errors.AbstractBoolError, "bool[]", "lax.cond")
def condition_in_grad_in_jit(m, jnp):
    def f(x):
        return x if x > 0 else -x  # <-

    m.jit(m.grad(f))(1.0)


@misuse(errors.AbstractBoolError, "bool[]", "`&`")
def logical_and(m, jnp):
    m.jit(lambda x: (x > 0) and (x < 1))(1.0)  # <-


@misuse(errors.AbstractValueError, "f32[]", "float", "static_argnums")
def float_in_jit(m, jnp):
    m.jit(lambda x: float(x))(1.0)  # <-


@misuse(errors.AbstractValueError, "f32[]", "int()")
def int_in_jit(m, jnp):
    m.jit(lambda x: int(x))(1.0)  # <-


@misuse(errors.AbstractValueError, "f32[]")
def complex_in_vmap(m, jnp):
    m.vmap(lambda x: complex(x))(X)  # <-


@misuse(errors.AbstractValueError, "f32[]")
def item_in_jit(m, jnp):
    m.jit(lambda x: x.item())(1.0)  # <-


@misuse(errors.AbstractIndexError, "i32[]", "lax.fori_loop")
def range_in_jit(m, jnp):
    m.jit(lambda n: sum(range(n)))(3)  # <-


@misuse(errors.AbstractIndexError, "i32[]", "jnp.asarray")
def index_of_a_list_in_jit(m, jnp):
    m.jit(lambda i: [1.0, 2.0][i])(1)  # <-


@misuse(errors.AbstractArrayError, "f32[3]", "functrans.numpy", "numpy.asarray")
def numpy_array_in_jit(m, jnp):
    m.jit(lambda x: np.asarray(x))(X)  # <-


@misuse(errors.AbstractArrayError, "f32[3]", "functrans.numpy")
def numpy_function_in_jit(m, jnp):
    m.jit(lambda x: np.sin(x))(X)  # <-


@misuse(errors.NonConcreteMask, "bool[3]", "jnp.where")
def selection_by_an_unknown_mask(m, jnp):
    m.jit(lambda x: x[x > 1])(X)  # <-


@misuse(errors.AbstractIndexError, "f32[]", "static")
def shape_that_is_traced(m, jnp):
    m.jit(lambda n: jnp.zeros(n))(3.0)  # <-


@misuse(errors.NotSupported, "f32[3]", ".at[", ".set(")
def assignment_to_an_element(m, jnp):
    def f(x):
        x[0] = 1.0  # <-
        return x

    m.jit(f)(X)


@misuse(errors.NotSupported, "f32[3]", ".at[", "add")
def assignment_in_grad(m, jnp):
    def f(x):
        x[0] += 1.0  # <-
        return x.sum()

    m.grad(f)(X)


@misuse(errors.NotSupported, "f32[]")
def traced_key_of_a_dict(m, jnp):
    m.jit(lambda x: {1.0: 2.0}[x])(1.0)  # <-


@misuse(errors.TypeMismatch, "f32[]", "no axes")
def iteration_over_a_scalar(m, jnp):
    m.jit(lambda x: [y for y in x])(1.0)  # <-


@misuse(errors.TypeMismatch, "f32[]", "no axes")
def length_of_a_scalar(m, jnp):
    m.jit(lambda x: len(x))(1.0)  # <-


@misuse(errors.InvalidIndex, "slice", "static integers", "lax.dynamic_slice")
def slice_up_to_a_traced_number(m, jnp):
    m.jit(lambda x, n: x[:n])(X, 2)  # <-


@misuse(errors.InvalidIndex, "1-dimensional", "2 were indexed")
def too_many_indices(m, jnp):
    m.jit(lambda x: x[0, 0])(X)  # <-


@misuse(errors.TypeMismatch, "float")
def index_that_is_a_float(m, jnp):
    m.jit(lambda x: x[1.5])(X)  # <-


# --- operations that lack a rule ------------------------------------------------------------------


class Bare(Primitive):
    """An operation with the mandatory rules alone."""

    name = "bare_operation_of_the_tests"

    def type(self, x):
        return x

    def reference(self, x):
        return x

    def lower(self, ctx, x):
        return x


def bare_operation(m):
    """It, or one of JAX's that has no rule either."""
    if m is ft:
        return BARE
    primitive = jax.extend.core.Primitive("bare")
    primitive.def_abstract_eval(lambda x: x)
    primitive.def_impl(lambda x: x)
    return primitive.bind


@misuse(errors.MissingRule, "bare_operation_of_the_tests", "`jvp`", "linear_in", "test_errors.py")
def an_operation_without_jvp(m, jnp):
    bare = bare_operation(m)
    m.grad(lambda x: bare(x))(1.0)  # <-


@misuse(errors.MissingRule, "bare_operation_of_the_tests", "`batch`", "test_errors.py")
def an_operation_without_batch(m, jnp):
    bare = bare_operation(m)
    m.vmap(lambda x: bare(x))(X)  # <-


# --- the tests ------------------------------------------------------------------------------------


@pytest.fixture(autouse=True, scope="module")
def bare():
    """The operation exists while these tests run: the table of operations stays as it is."""
    global BARE
    BARE = Bare()
    yield
    del ft.ir.PRIMITIVES[Bare.name]


def good_calls():
    np.testing.assert_allclose(ft.jit(lambda x: ft.numpy.sin(x) * 2)(X), np.sin(X) * 2, rtol=1e-6)
    np.testing.assert_allclose(ft.grad(lambda x: ft.numpy.sum(x * x))(X), 2 * X, rtol=1e-6)
    np.testing.assert_allclose(ft.vmap(lambda x: x * x)(X), X * X, rtol=1e-6)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.run.__name__)
def test_misuse(row):
    error = caught(row.run, ft, ft.numpy)
    assert type(error) is row.error
    message = str(error)
    for word in row.words:
        assert word in message
    line = marked_line(row.run)
    if line is not None:
        assert f"test_errors.py:{line}" in message
    assert state.trace is None
    assert state.derived is None
    good_calls()


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.run.__name__)
def test_misuse_is_of_the_class_that_jax_raises(row):
    if not row.jax:
        return
    theirs = caught(row.run, jax, jax.numpy)
    assert issubclass(row.error, errors.FunctransError)
    assert issubclass(row.error, common_class(type(theirs)))


def common_class(theirs: type[Exception]) -> type[Exception]:
    """The class a script names in `except`: JAX's public one, or the built-in it derives from."""
    for base in theirs.__mro__:
        if base.__module__ == "builtins" or getattr(jax.errors, base.__name__, None) is base:
            return base
    raise AssertionError(theirs)


def test_every_class_of_error_is_in_the_table_or_in_another_test():
    ours = {e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, Exception)}
    elsewhere = {errors.FunctransError, errors.ParseError, errors.CheckError}
    elsewhere |= {  # test_custom_rules.py
        errors.BatchRuleMismatch, errors.ClosedOverTracer, errors.CotangentMismatch,
        errors.MissingCustomRule, errors.RuleMismatch,
    }  # fmt: skip
    elsewhere |= {errors.UnsupportedDtype}  # test_linalg.py
    elsewhere |= {errors.UnboundAxis}  # test_collectives.py
    elsewhere |= {errors.IntegerOverflow, errors.NegativeSize}  # test_random.py
    elsewhere |= {errors.ImplicitPromotion, errors.NotFinite}  # test_flags.py
    elsewhere |= {  # test_misuses.py
        errors.DeletedArray, errors.DivisionByZero, errors.DonatedTwice, errors.NotAStructure,
        errors.TreeMismatch, errors.TruncatedDtype, errors.UnknownAttribute,
        errors.UnknownBackend, errors.UnknownPadding, errors.UnknownUpdate,
        errors.NotAPermutation, errors.NotIntegers, errors.UnsupportedChoice,
    }  # fmt: skip
    elsewhere |= {  # test_callbacks.py
        errors.CallbackResult, errors.FunctionOfJax, errors.InvalidFormat, errors.OpaqueCallback,
    }  # fmt: skip
    assert ours - elsewhere == {row.error for row in TABLE}


def test_errors_derive_from_a_built_in_class():
    for error in vars(errors).values():
        if isinstance(error, type) and error is not errors.FunctransError:
            assert any(
                getattr(builtins, base.__name__, None) is base
                for base in error.__mro__
                if base not in (Exception, BaseException, object)
            ), error
