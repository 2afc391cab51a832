"""Misuses that lead to the rarer classes of errors, one or two for each."""

import tempfile

import jax
import jax.export
import numpy as np

from functrans import errors
from tests.pages.misuse_table import M, X, misuse


@misuse(errors.NotLinear, "not linear")
def transposing_what_is_not_linear(m, jnp):
    m.linear_transpose(lambda x: jnp.sin(x), X)(X)  # <-


@misuse(errors.OpaqueCallback, "callback")
def the_gradient_of_a_python_callback(m, jnp):
    def f(x):
        return m.pure_callback(np.sin, m.ShapeDtypeStruct((3,), "float32"), x).sum()  # <-

    m.grad(f)(X)


@misuse(errors.CallbackResult, "f32[3]", jax=False)
def a_callback_that_returns_another_shape(m, jnp):
    m.pure_callback(np.sum, m.ShapeDtypeStruct((3,), "float32"), X)  # <-


@misuse(errors.CotangentMismatch, "cotangent of type f32[2]")
def a_bwd_rule_that_returns_another_shape(m, jnp):
    @m.custom_vjp
    def double(x):
        return 2 * x

    double.defvjp(lambda x: (2 * x, None), lambda _, ct: (ct[:2],))
    m.grad(lambda x: double(x).sum())(X)


@misuse(errors.BatchRuleMismatch, "vmap", jax=False)
def a_vmap_rule_that_returns_another_size(m, jnp):
    @m.custom_batching.custom_vmap
    def double(x):
        return 2 * x

    @double.def_vmap
    def _(axis_size, in_batched, x):
        return 2 * x[:1], True

    m.vmap(double)(M)


@misuse(errors.InvalidFormat, "{")
def a_format_without_its_argument(m, jnp):
    m.jit(lambda x: m.debug.print("x = {}, y = {}", x))(X)  # <-


@misuse(errors.ImplicitPromotion, "promotion", jax=False)
def two_dtypes_under_strict_promotion(m, jnp):
    with jax.numpy_dtype_promotion("strict"):
        jnp.add(jnp.ones(3, jnp.int32), X)  # <-


@misuse(errors.ClosedOverTracer, "closes over")
def a_custom_rule_that_closes_over_an_argument(m, jnp):
    def f(x):
        @m.custom_jvp
        def scaled(y):
            return x * y

        scaled.defjvp(lambda primals, tangents: (scaled(*primals), x * tangents[0]))
        return scaled(1.0)  # <-

    m.grad(f)(2.0)


@misuse(errors.SymbolicSize, "(n, 3)", "jax.numpy", jax=False)
def a_program_for_a_symbol(m, jnp):
    (n,) = jax.export.symbolic_shape("n")
    m.make_ir(jnp.sin)(m.ShapeDtypeStruct((n, 3), "float32"))  # <-


@misuse(errors.ParseError, "line", jax=False)
def a_text_that_is_not_a_program(m, jnp):
    m.ir.parse("program (a: f32[3]) { b = sin a; return b }")


@misuse(errors.CheckError, "b", jax=False)
def a_program_with_a_wrong_type(m, jnp):
    m.ir.check(m.ir.parse("program (a: f32[3]) { b: f32[4] = sin a; return b }"))  # <-


@misuse(errors.MissingRule, "vmap_method")
def a_callback_under_vmap_without_a_method(m, jnp):
    def f(x):
        return m.pure_callback(np.sin, m.ShapeDtypeStruct((), "float32"), x)  # <-

    m.vmap(f)(X)


@misuse(errors.NotFinite, "log")
def the_first_nan_under_debug_nans(m, jnp):
    def f(x):
        return jnp.log(x - 2)  # <-

    with jax.debug_nans(True):
        m.jit(f)(X)


@misuse(errors.NotMeasured, "profile", jax=False)
def a_profile_while_another_is_recorded(m, jnp):
    with tempfile.TemporaryDirectory() as folder, jax.profiler.trace(folder):
        m.profile(jnp.sin)(X)  # <-


@misuse(errors.OutsideReference, "outside", jax=False)
def a_reference_from_outside_in_a_program(m, jnp):
    total = jax.new_ref(jnp.zeros(3))
    m.make_ir(lambda x: total[...] + x)(X)  # <-


@misuse(errors.UnsupportedDtype, "float16")
def a_factorization_of_16_bit_floats(m, jnp):
    m.jit(lambda x: m.lax.linalg.cholesky(x))(jnp.eye(2, dtype="float16"))  # <-
