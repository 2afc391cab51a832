"""Misuses of operators and arguments: what is no array, sizes, indices, dtypes."""

from functrans import errors
from tests.pages.misuse_table import M, X, misuse


@misuse(errors.NotAnArray, "f32[3] + dict", "(['b'], ['w'])", "tree.map")
def a_dict_as_an_operand(m, jnp):
    m.jit(lambda x: x + {"w": X, "b": 1.0})(X)  # <-


@misuse(errors.NotAnArray, "f32[3] - None: ", "return statement", "left out")
def an_operand_left_out(m, jnp):
    m.jit(lambda x, mean=None: x - mean)(X)  # <-


@misuse(errors.NotAnArray, "f32[3] * list", "jnp.asarray", "entries")
def a_list_as_an_operand(m, jnp):
    m.grad(lambda x: (x * [1.0, 2.0, 3.0]).sum())(X)  # <-


@misuse(errors.NotAnArray, "list + f32[3]", "jnp.asarray")
def a_list_on_the_left(m, jnp):
    m.vmap(lambda x: [0.0] + x)(M)  # <-  # noqa: RUF005


@misuse(errors.NotSupported, "f32[3]", "deleted", "jnp.delete", jax=False)
def an_element_is_deleted(m, jnp):
    def f(x):
        del x[0]  # <-
        return x

    m.jit(f)(X)


@misuse(errors.IntegerOverflow, "1099511627776", "int32", "float")
def an_integer_beyond_its_dtype(m, jnp):
    m.jit(lambda x: x + 1)(2**40)  # <-


@misuse(errors.DivisionByZero, "arange", "step")
def a_range_of_step_zero(m, jnp):
    jnp.arange(0, 1, 0)  # <-
