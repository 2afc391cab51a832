"""Misuses of shapes and dtypes, and of derivatives and vmap."""

from __future__ import annotations

import numpy as np

from functrans import errors
from tests.unit.error_table import I, M, X, misuse

# --- shapes and dtypes ----------------------------------------------------------------------------


@misuse(errors.ShapeMismatch, "f32[3]", "f32[2,2]", "roadcast")
def shapes_that_do_not_broadcast_by_an_operator(m, jnp):
    def f(x):
        return x * np.ones((2, 2), np.float32)  # <-

    m.grad(f)(X)


@misuse(errors.TypeMismatch, "f32[3]")
def dot_of_vectors_of_different_lengths(m, jnp):
    m.vmap(lambda x: jnp.dot(x, jnp.ones(4)))(M)  # <-


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


@misuse(errors.NonScalarLoss, "returned None", "has_aux")
def loss_that_is_none(m, jnp):
    def f(x):
        jnp.sum(x)

    m.value_and_grad(f)(X)  # <-


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


@misuse(errors.NotAnArray, "grad takes a function", "grad(f)(x)")
def grad_of_a_number(m, jnp):
    m.grad(3.0)  # <-


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


@misuse(errors.ShapeMismatch, "f32[3]", "f32[2,3]", "tangent")
def tangent_of_another_shape(m, jnp):
    m.jvp(jnp.sin, (X,), (M,))  # <-


@misuse(errors.TypeMismatch, "structure", "tangents")
def tangents_of_another_structure(m, jnp):
    m.jvp(lambda d: d["a"], ({"a": X},), ({"b": X},))  # <-


@misuse(errors.TypeMismatch, "float0", "i32[3]")
def tangent_of_an_integer(m, jnp):
    m.jvp(lambda x: x, (I,), (I,))  # <-


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


@misuse(errors.NotAnArray, "in_axes", "'0'")
def in_axes_that_are_a_text(m, jnp):
    m.vmap(jnp.sin, in_axes="0")  # <-


@misuse(errors.NotAnArray, "1.5")
def in_axes_that_are_a_float(m, jnp):
    m.vmap(jnp.sin, in_axes=(1.5,))  # <-


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
