"""Misuses of arrays: values, shapes, dtypes, indices, leaked tracers."""

from __future__ import annotations

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


@misuse(errors.AbstractBoolError, "bool[]", "jnp.where")
def an_assert_on_a_traced_value(m, jnp):
    def f(x):
        assert x.all(), "not zero"  # <-
        return x

    m.jit(f)(X)


@misuse(errors.UnknownAttribute, "f32[3]", "'numpy'", "no value", "np.asarray")
def the_numpy_method_of_a_traced_value(m, jnp):
    m.jit(lambda x: x.numpy())(X)  # <-


@misuse(errors.UnknownAttribute, "f32[3]", "'lenght'", "jax.Array")
def an_attribute_that_arrays_do_not_have(m, jnp):
    m.grad(lambda x: x.lenght * x[0])(X)  # <-


@misuse(errors.UnknownAttribute, "f32[3]", "'reshpae'", "Did you mean 'reshape'?")
def a_method_that_is_misspelt(m, jnp):
    m.vmap(lambda x: x.reshpae(3))(X[None])  # <-


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


@misuse(errors.NotAnArray, "'adam'", "p['name']")
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


@misuse(errors.NegativeSize, "(-1,)", "negative")
def a_negative_size(m, jnp):
    jnp.zeros(len(X) - 4)  # <-


@misuse(errors.TypeMismatch, "2.5", "//")
def a_size_that_is_a_float(m, jnp):
    jnp.zeros((len(X) - 0.5,))  # <-


@misuse(errors.InvalidArgument, "different lengths", "Pad")
def an_array_of_rows_of_different_lengths(m, jnp):
    jnp.array([[1.0, 2.0], [3.0]])  # <-


@misuse(errors.TypeMismatch, "one argument or three", "where(mask, x, y)")
def where_with_one_choice(m, jnp):
    m.jit(lambda x: jnp.where(x > 0, x))(X)  # <-


@misuse(errors.TypeMismatch, "sequence of arrays", "[x, y]")
def concatenate_of_one_number(m, jnp):
    jnp.concatenate(1.0)  # <-


@misuse(errors.TypeMismatch, "is not a function", "x.at[i].set(y)")
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


@misuse(errors.AxisOutOfBounds, "axis 2", "dimension 2")
def an_axis_out_of_range(m, jnp):
    jnp.sum(M, axis=2)  # <-


@misuse(errors.InvalidArgument, "einsum", "(2, 3)", "'ijk'", "one letter per axis")
def einsum_with_too_many_letters(m, jnp):
    jnp.einsum("ijk,kl->il", M, M)  # <-


@misuse(errors.TypeMismatch, "(-1, -1)", "One size may be -1")
def reshape_with_two_unknown_sizes(m, jnp):
    m.jit(lambda x: x.reshape(-1, -1))(M)  # <-


@misuse(errors.InvalidArgument, "einsum", "'k'", "did not appear")
def einsum_with_an_unknown_letter(m, jnp):
    jnp.einsum("ij->k", M)  # <-


@misuse(errors.UnsupportedChoice, "'edges'", "edge")
def an_unknown_mode_of_padding(m, jnp):
    jnp.pad(M, 1, mode="edges")  # <-


@misuse(errors.UnsupportedChoice, "'K'", "'C' or 'F'")
def a_memory_order_for_ravel(m, jnp):
    jnp.ravel(M, order="K")  # <-


@misuse(errors.UnsupportedChoice, "accuracy", "1.5", "HIGHEST")
def an_accuracy_that_does_not_exist(m, jnp):
    m.lax.tanh(X, accuracy=1.5)  # <-


@misuse(errors.NotSupported, "sum", "out=", "immutable")
def a_result_that_is_to_be_written_into_an_array(m, jnp):
    jnp.sum(M, axis=0, out=X)  # <-


@misuse(errors.NotSupported, "max", "out=", "immutable")
def a_result_of_a_method_that_is_to_be_written_into_an_array(m, jnp):
    m.jit(lambda x: x.max(0, X))(M)  # <-


@misuse(errors.InvalidArgument, "std", "float", "Cast the result")
def a_standard_deviation_in_integers(m, jnp):
    jnp.std(X, dtype=int)  # <-


@misuse(errors.IntegerOverflow, "-1", "uint8")
def a_negative_unsigned_integer(m, jnp):
    m.jit(lambda: jnp.array(-1, jnp.uint8))()  # <-


@misuse(errors.InvalidArgument, "arange", "3j", "linspace")
def a_range_of_complex_numbers(m, jnp):
    jnp.arange(3j)  # <-


@misuse(errors.NotIntegers, "take", "integer type", "1.5")
def an_element_at_a_fractional_index(m, jnp):
    jnp.take(X, 1.5)  # <-


@misuse(errors.AbstractValueError, "length=")
def bins_up_to_the_largest_number(m, jnp):
    m.jit(lambda n: jnp.bincount(n))(np.array([1, 2]))  # <-


@misuse(errors.NotAPermutation, "(0, 0)", "(1, 0)")
def an_axis_that_is_moved_twice(m, jnp):
    jnp.transpose(M, (0, 0))  # <-


@misuse(errors.NotAPermutation, "1", "(1, 0)")
def one_axis_where_an_order_is_needed(m, jnp):
    jnp.transpose(M, (1,))  # <-


@misuse(errors.NotIntegers, "integer type", "f32[2,1]")
def gather_at_floats(m, jnp):
    numbers = m.lax.GatherDimensionNumbers((), (0,), (0,))
    m.lax.gather(X, np.ones((2, 1), np.float32), numbers, (1,))  # <-


@misuse(errors.UnsupportedChoice, "c64[2,3]", "complex dtype")
def a_partition_of_complex_numbers(m, jnp):
    jnp.partition(M + 0j, 1)  # <-


@misuse(errors.TypeMismatch, "'float'", "1.5")
def a_partition_at_a_fractional_index(m, jnp):
    jnp.partition(X, 1.5)  # <-


@misuse(errors.InvalidArgument, "rounding_method", "5", "TO_NEAREST_EVEN")
def a_number_of_digits_for_lax_round(m, jnp):
    m.lax.round(X, 5)  # <-


@misuse(errors.NotAnArray, "integer_pow", "2.5")
def an_integer_power_with_a_fractional_exponent(m, jnp):
    m.lax.integer_pow(X, 2.5)  # <-


@misuse(errors.InvalidIndex, "index 7", "axis 0")
def an_index_beyond_an_axis(m, jnp):
    m.lax.index_in_dim(X, 7)  # <-


@misuse(errors.TypeMismatch, "histogram2d", "f32[3]", "f32[2]")
def points_with_a_missing_coordinate(m, jnp):
    jnp.histogram2d(X, X[:2])  # <-


@misuse(errors.UnknownPadding, "SAMEE", "'SAME'")
def a_misspelt_padding(m, jnp):
    m.lax.conv(np.ones((1, 2, 4, 4)), np.ones((2, 2, 2, 2)), (1, 1), "SAMEE")  # <-


@misuse(errors.InvalidArgument, "einsum", "'j'", "3", "2", "equal sizes")
def einsum_whose_sizes_differ(m, jnp):
    jnp.einsum("ij,jk->ik", M, M)  # <-


@misuse(errors.InvalidIndex, "1-dimensional", "2 were indexed")
def too_many_indices(m, jnp):
    m.jit(lambda x: x[0, 0])(X)  # <-
