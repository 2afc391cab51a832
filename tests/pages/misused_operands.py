"""Misuses of operators and arguments: what is no array, sizes, indices, dtypes."""

from __future__ import annotations

from collections import deque
from fractions import Fraction

from functrans import errors
from tests.pages.misuse_table import M, X, misuse

# --- operators with what is no array --------------------------------------------------------------


@misuse(errors.NotAnArray, "f32[3] + dict", "(['b'], ['w'])", "tree.map")
def a_dict_as_an_operand(m, jnp):
    m.jit(lambda x: x + {"w": X, "b": 1.0})(X)  # <-


@misuse(errors.NotAnArray, "dict * f32[3]", "jnp.asarray")
def a_dict_on_the_left(m, jnp):
    m.jit(lambda x: {} * x)(X)  # <-


@misuse(errors.NotAnArray, "f32[3] @ str", "not str")
def a_string_as_an_operand(m, jnp):
    m.jit(lambda x: x @ "a")(X)  # <-


@misuse(errors.NotAnArray, "f32[3] - None: ", "return statement", "left out")
def an_operand_left_out(m, jnp):
    m.jit(lambda x, mean=None: x - mean)(X)  # <-


@misuse(errors.NotAnArray, "f32[3] * Fraction", "float(...)")
def a_fraction_as_an_operand(m, jnp):
    m.jit(lambda x: x * Fraction(1, 2))(X)  # <-


@misuse(errors.NotAnArray, "deque + f32[3]", "jnp.asarray")
def a_deque_on_the_left(m, jnp):
    m.jit(lambda x: deque([1.0]) + x)(X)  # <-


@misuse(errors.NotAnArray, "f32[3] * list", "jnp.asarray", "entries")
def a_list_as_an_operand(m, jnp):
    m.grad(lambda x: (x * [1.0, 2.0, 3.0]).sum())(X)  # <-


@misuse(errors.NotAnArray, "f32[3] == tuple", "jnp.asarray")
def a_tuple_compared(m, jnp):
    m.jit(lambda x: x == (1.0, 2.0, 3.0))(X)  # <-


@misuse(errors.NotAnArray, "list + f32[3]", "jnp.asarray")
def a_list_on_the_left(m, jnp):
    m.vmap(lambda x: [0.0] + x)(M)  # <-  # noqa: RUF005


@misuse(errors.NotAnArray, "f32[3] / function", "call it")
def a_function_as_an_operand(m, jnp):
    m.jit(lambda x: x / jnp.sum)(X)  # <-


@misuse(errors.NotAnArray, "f32[3] < None: ", "left out")
def a_comparison_with_none(m, jnp):
    m.jit(lambda x, limit=None: x < limit)(X)  # <-


@misuse(errors.NotSupported, "f32[3]", "deleted", "jnp.delete", jax=False)
def an_element_is_deleted(m, jnp):
    def f(x):
        del x[0]  # <-
        return x

    m.jit(f)(X)


@misuse(errors.UnknownUpdate, "x.at.set", "brackets", "x.at[i].set")
def an_update_without_an_index(m, jnp):
    m.jit(lambda x: x.at.set(0.0))(X)  # <-


@misuse(errors.InvalidArgument, "step of a slice", "zero")
def a_slice_of_step_zero(m, jnp):
    m.jit(lambda x: x[::0])(X)  # <-


@misuse(errors.InvalidArgument, "dimension size", "-1")
def a_negative_number_of_repetitions(m, jnp):
    jnp.tile(X, -1)  # <-


@misuse(errors.TypeMismatch, "list", "not a dtype", "'float32'")
def a_class_for_a_dtype(m, jnp):
    jnp.zeros(3, dtype=list)  # <-


@misuse(errors.InvalidArgument, "None", "[1.0, None]", "jnp.nan")
def none_among_numbers(m, jnp):
    jnp.array([1.0, None])  # <-


@misuse(errors.InvalidArgument, "must be the subscripts", "ij,jk->ik")
def einsum_without_subscripts(m, jnp):
    jnp.einsum(M, X)  # <-


@misuse(errors.TypeMismatch, "matrix_power", "0.5", "integer")
def a_matrix_to_a_fractional_power(m, jnp):
    jnp.linalg.matrix_power(jnp.eye(2), 0.5)  # <-


@misuse(errors.InvalidArgument, "cho_solve(f32[3,3], f32[3])", "too many values")
def a_factor_without_its_lower_flag(m, jnp):
    m.scipy.linalg.cho_solve(jnp.eye(3), X)  # <-


@misuse(errors.IntegerOverflow, "1099511627776", "int32", "float")
def an_integer_beyond_its_dtype(m, jnp):
    m.jit(lambda x: x + 1)(2**40)  # <-


@misuse(errors.IntegerOverflow, "1099511627776", "int32", "float")
def a_list_with_an_integer_beyond_its_dtype(m, jnp):
    jnp.array([1, 2**40])  # <-


@misuse(errors.TypeMismatch, "vander", "integer", "vander(f32[3], 1.5)")
def a_size_that_is_not_an_integer(m, jnp):
    jnp.vander(X, 1.5)  # <-


@misuse(errors.DivisionByZero, "arange", "step")
def a_range_of_step_zero(m, jnp):
    jnp.arange(0, 1, 0)  # <-


@misuse(errors.UnsupportedChoice, "order", "'F'", "XLA")
def a_memory_order_for_array(m, jnp):
    jnp.array(X, order="F")  # <-


@misuse(errors.InvalidArgument, "searchsorted", "binary", "scan")
def a_method_that_does_not_exist(m, jnp):
    jnp.searchsorted(X, 2.0, method="binary")  # <-


@misuse(errors.InvalidIndex, "delete", "index 9", "delete(f32[3], i32[2])")
def an_index_to_delete_beyond_the_end(m, jnp):
    jnp.delete(X, jnp.array([1, 9]))  # <-


@misuse(errors.TypeMismatch, "sort(key<fry>[3])", "no order", "jax.random.key_data")
def keys_to_sort(m, jnp):
    m.jit(jnp.sort)(m.random.split(m.random.key(0), 3))  # <-
