"""Misuses of values: leaked, unknown while tracing, no arrays; operations without a rule."""

from __future__ import annotations

import threading

import jax
import jax.extend
import numpy as np

import functrans as ft
import functrans.lax
import functrans.numpy
from functrans import errors
from functrans.primitives.base import Primitive
from tests.unit.error_table import X, misuse

# --- leaked tracers -------------------------------------------------------------------------------


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
def vmap_of_a_function_that_returns_a_text(m, jnp):
    def f(x):  # <-
        return "text"

    m.vmap(f)(X)


@misuse(errors.NotAnArray, "object", "return")
def grad_of_a_function_that_returns_an_object(m, jnp):
    def f(x):  # <-
        return object()

    m.grad(f)(1.0)


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


@misuse(errors.NotAnArray, "vmap takes a function")
def vmap_of_a_number(m, jnp):
    m.vmap(3)  # <-


@misuse(errors.UnhashableStatic, "list", "'n'")
def static_list_by_name(m, jnp):
    m.jit(lambda x, n: x, static_argnames="n")(X, n=[1, 2])  # <-


@misuse(errors.UnhashableStatic, "list", "'n'")
def static_list_in_a_nested_jit(m, jnp):
    g = m.jit(lambda x, n: x, static_argnames="n")
    m.jit(lambda x: g(x, n=[1, 2]))(X)  # <-


# --- values that are unknown while tracing --------------------------------------------------------


@misuse(errors.AbstractBoolError, "bool[]", "lax.cond")
def condition_in_grad_in_jit(m, jnp):
    def f(x):
        return x if x > 0 else -x  # <-

    m.jit(m.grad(f))(1.0)


@misuse(errors.AbstractValueError, "f32[]")
def complex_in_vmap(m, jnp):
    m.vmap(lambda x: complex(x))(X)  # <-


@misuse(errors.AbstractArrayError, "f32[3]", "functrans.numpy", "numpy.asarray")
def numpy_array_in_jit(m, jnp):
    m.jit(lambda x: np.asarray(x))(X)  # <-


@misuse(errors.NotSupported, "f32[3]", ".at[", "add")
def assignment_in_grad(m, jnp):
    def f(x):
        x[0] += 1.0  # <-
        return x.sum()

    m.grad(f)(X)


@misuse(errors.TypeMismatch, "float")
def index_that_is_a_float(m, jnp):
    m.jit(lambda x: x[1.5])(X)  # <-


# --- operations that lack a rule ------------------------------------------------------------------


BARE = None  # made while the tests run: the table of operations stays as it is


class Bare(Primitive):
    """An operation with the mandatory rules alone."""

    name = "bare_operation_of_the_tests"

    def abstract_eval(self, x):
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


@misuse(errors.MissingRule, "bare_operation_of_the_tests", "`jvp`", "linear_in", "wrong_values.py")
def an_operation_without_jvp(m, jnp):
    bare = bare_operation(m)
    m.grad(lambda x: bare(x))(1.0)  # <-


@misuse(errors.MissingRule, "bare_operation_of_the_tests", "`batch`", "wrong_values.py")
def an_operation_without_batch(m, jnp):
    bare = bare_operation(m)
    m.vmap(lambda x: bare(x))(X)  # <-
