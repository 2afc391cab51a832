"""Misuses of arrays: values, shapes, dtypes, indices, leaked tracers."""

import numpy as np

from functrans import errors
from tests.pages.misuse_table import M, X, misuse

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


@misuse(errors.UnknownAttribute, "f32[3]", "'numpy'", "no value", "np.asarray")
def the_numpy_method_of_a_traced_value(m, jnp):
    m.jit(lambda x: x.numpy())(X)  # <-


@misuse(errors.UnknownAttribute, "f32[3]", "'reshpae'", "Did you mean 'reshape'?")
def a_method_that_is_misspelt(m, jnp):
    m.vmap(lambda x: x.reshpae(3))(X[None])  # <-


@misuse(errors.AbstractValueError, "f32[]", "float()", "astype")
def float_of_a_traced_value(m, jnp):
    m.jit(lambda x: float(x) * 2)(1.0)  # <-


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


@misuse(errors.AbstractArrayError, "i32[]", "depends on i", "jnp.asarray(table)")
def a_numpy_table_indexed_by_a_traced_value(m, jnp):
    table = np.arange(3.0)
    m.jit(lambda i: table[i])(1)  # <-


# --- data that decide about shapes ----------------------------------------------------------------


@misuse(errors.NonConcreteMask, "bool[3]", "jnp.where")
def a_boolean_mask_under_jit(m, jnp):
    m.jit(lambda x: x[x > 1].sum())(X)  # <-


@misuse(errors.AbstractValueError, "size=")
def nonzero_under_jit(m, jnp):
    m.jit(lambda x: jnp.nonzero(x))(X)  # <-


@misuse(errors.AbstractIndexError, "i32[]", "static")
def a_shape_that_is_an_argument(m, jnp):
    m.jit(lambda n: jnp.zeros((n, 2)))(3)  # <-


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


@misuse(errors.NotAnArray, "'relu'", "static_argnums")
def a_string_given_to_jit(m, jnp):
    m.jit(lambda x, kind: x)(X, "relu")  # <-


@misuse(errors.NotAnArray, "'adam'", "p['name']")
def a_string_in_a_pytree_of_parameters(m, jnp):
    m.grad(lambda p: (p["w"] ** 2).sum())({"w": X, "name": "adam"})  # <-


@misuse(errors.NotAnArray, "generator", "list(")
def a_generator_given_to_jit(m, jnp):
    m.jit(lambda xs: sum(xs))(x for x in (1.0, 2.0))  # <-


@misuse(errors.NotAnArray, "jit takes a function", "jit(f)(x)")
def jit_of_a_result(m, jnp):
    m.jit(jnp.sin(X))  # <-


@misuse(errors.TypeMismatch, "'flaot32'", "float32")
def a_misspelt_dtype(m, jnp):
    jnp.zeros(3, dtype="flaot32")  # <-


@misuse(errors.NegativeSize, "(-1,)", "negative")
def a_negative_size(m, jnp):
    jnp.zeros(len(X) - 4)  # <-


@misuse(errors.InvalidArgument, "different lengths", "Pad")
def an_array_of_rows_of_different_lengths(m, jnp):
    jnp.array([[1.0, 2.0], [3.0]])  # <-


@misuse(errors.UnknownUpdate, "'subtact'", "subtract")
def a_misspelt_update(m, jnp):
    m.jit(lambda x: x.at[0].subtact(1.0))(X)  # <-


@misuse(errors.UnsupportedChoice, "'edges'", "edge")
def an_unknown_mode_of_padding(m, jnp):
    jnp.pad(M, 1, mode="edges")  # <-


# --- leaked tracers -------------------------------------------------------------------------------


@misuse(errors.LeakedTracer, "f32[3]", "Return", "created at")
def a_traced_value_kept_in_a_list(m, jnp):
    kept = []
    m.jit(lambda x: kept.append(x * 2))(X)
    kept[0] + 1  # <-


@misuse(errors.LeakedTracer, "f32[]", "Return")
def a_traced_value_kept_in_an_attribute(m, jnp):
    class Counter:
        total = 0.0

    @m.jit
    def count(x):
        Counter.total = Counter.total + x.sum()  # <-
        return x

    count(X)
    count(M)  # the total is a tracer of the first call


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


@misuse(errors.AxisOutOfBounds, "axis 2", "dimension 2")
def an_axis_out_of_range(m, jnp):
    jnp.sum(M, axis=2)  # <-


@misuse(errors.NotSupported, "sum", "out=", "immutable")
def a_result_that_is_to_be_written_into_an_array(m, jnp):
    jnp.sum(M, axis=0, out=X)  # <-


@misuse(errors.NotIntegers, "take", "integer type", "1.5")
def an_element_at_a_fractional_index(m, jnp):
    jnp.take(X, 1.5)  # <-


@misuse(errors.NotAPermutation, "(0, 0)", "(1, 0)")
def an_axis_that_is_moved_twice(m, jnp):
    jnp.transpose(M, (0, 0))  # <-


@misuse(errors.UnknownPadding, "SAMEE", "'SAME'")
def a_misspelt_padding(m, jnp):
    m.lax.conv(np.ones((1, 2, 4, 4)), np.ones((2, 2, 2, 2)), (1, 1), "SAMEE")  # <-


@misuse(errors.InvalidArgument, "einsum", "'j'", "3", "2", "equal sizes")
def einsum_whose_sizes_differ(m, jnp):
    jnp.einsum("ij,jk->ik", M, M)  # <-


@misuse(errors.InvalidIndex, "1-dimensional", "2 were indexed")
def too_many_indices(m, jnp):
    m.jit(lambda x: x[0, 0])(X)  # <-
