"""Types of results of several operands, beside JAX's: dtypes and weak flags of all functions of
`numpy` that promote, before 64-bit types are enabled, while they are, and after.

Types alone are asked for (`eval_shape`), so nothing is compiled but at the end.
"""

import itertools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jax_numpy
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as ft_numpy
from tests.support.wide import each

Maker = Callable[[Any], Callable[[Any, Any], Any]]  # of a library of arrays

NAMES = (
    "add subtract multiply divide floor_divide power maximum minimum arctan2 logaddexp logaddexp2 "
    "bitwise_and bitwise_or equal less logical_and dot matmul clip append"
)
OPERATORS = "sub truediv floordiv pow or_ rshift lt matmul"


FUNCTIONS: dict[str, Maker] = {
    **{name: operator.attrgetter(name) for name in NAMES.split()},
    **{f"operator.{name}": lambda L, name=name: getattr(operator, name) for name in OPERATORS.split()},
    "full_like": lambda L: lambda x, y: L.full_like(x, y[0]),
    "where": lambda L: lambda x, y: L.where(x != 0, x, y),
    "concatenate": lambda L: lambda x, y: L.concatenate([x, y]),
    "einsum": lambda L: lambda x, y: L.einsum("i,i->i", x, y),
    "at[].set": lambda L: lambda x, y: x.at[:].set(y),
    "at[].add": lambda L: lambda x, y: x.at[:].add(y),
    "result_type": lambda L: lambda x, y: L.zeros(3, L.result_type(x, y)),
    "a number": lambda L: lambda x, y: (x * 2, y + 1.0, 1j - x, y**2),
}

Point = tuple[str, bool]  # a dtype, weak or not
NARROW: list[Point] = [
    *[
        (t, False)
        for t in ("bool", "int8", "uint8", "int32", "uint32", "float16", "bfloat16", "float32", "complex64")
    ],
    *[(t, True) for t in ("int32", "float32", "complex64")],
]
WIDE: list[Point] = [
    *[(t, False) for t in ("int64", "uint64", "float64", "complex128")],
    *[(t, True) for t in ("int64", "float64")],
]
INT, REAL = ("int32", True), ("float32", True)
CHOSEN: list[tuple[Point, Point]] = [
    (("int32", False), ("uint32", False)),
    (("uint32", False), INT),
    (INT, REAL),
    (REAL, INT),
    (("uint8", False), ("int8", False)),
    (("bool", False), INT),
    (REAL, ("complex64", False)),
    (("float16", False), ("bfloat16", False)),
    (("int32", False), REAL),
    (INT, INT),
    (REAL, REAL),
]


def pairs(name: str, wide: bool) -> Iterator[tuple[Point, Point]]:
    every = NARROW + (WIDE if wide else [])
    given = itertools.product(every, every) if name == "add" else CHOSEN
    for pair in given:
        weak = [weak for _, weak in pair]
        if wide and name != "add" and (any(weak) if name == "a number" else all(weak)):
            continue  # weak ones alone, of 32 bits: JAX takes now their dtype, now the default
        yield pair


def types_of(library: Any, f: Callable[..., Any], pair: tuple[Point, Point]) -> Any:
    """The types of the results of vectors; None where it is refused."""
    given = [jax.ShapeDtypeStruct((3,), dtype, weak_type=weak) for dtype, weak in pair]
    try:
        outs = jax.tree.leaves(library.eval_shape(f, *given))
    except (TypeError, ValueError):
        return None
    return [(tuple(y.shape), str(y.dtype), bool(y.weak_type)) for y in outs]


@pytest.mark.smoke
@pytest.mark.filterwarnings("ignore")
def test_types_of_two_operands():
    """Also after 64-bit types were enabled and are not any more: nothing of them is remembered."""
    before: dict[Any, Any] = {}

    def check(row: tuple[str, bool]) -> None:
        name, wide = row
        make = FUNCTIONS[name]
        with jax.enable_x64(wide):
            for pair in pairs(name, wide):
                mine = types_of(ft, make(ft_numpy), pair)
                theirs = types_of(jax, make(jax_numpy), pair)
                assert theirs is None or mine == theirs, pair
                before[name, wide, pair] = mine

    def check_again(row: tuple[str, bool, tuple[Point, Point]]) -> None:
        name, wide, pair = row
        with jax.enable_x64(wide):
            assert types_of(ft, FUNCTIONS[name](ft_numpy), pair) == before[row]

    each([(name, wide) for wide in (False, True) for name in FUNCTIONS], check)
    assert sum([x is None for x in before.values()]) < len(before) / 8
    each([*before][::3], check_again)


@pytest.mark.smoke
def test_structures_are_weak_where_they_say_so():
    """For all that takes the types of arguments and no values."""
    weak, strong = (jax.ShapeDtypeStruct((2,), "float32", weak_type=w) for w in (True, False))
    half = jax.ShapeDtypeStruct((2,), "bfloat16")

    def times(x: Any, y: Any) -> Any:
        return x * y

    def check(pair: tuple[Any, Any]) -> None:
        dtype = "float32" if strong in pair else "bfloat16"
        want = jax.eval_shape(times, *pair)
        assert (want.dtype, want.weak_type) == (dtype, False)
        made = ft.make_ir(times)(*pair)
        found = [
            ft.eval_shape(times, *pair),
            *made.out_types,
            *ft.jit(times).program(*pair).out_types,
            ft.jit(times).eval_shape(*pair),
            ft.jit(times).lower(*pair).out_info,
        ]
        assert {str(t.dtype) for t in found} == {dtype}
        assert [t.weak_type for t in made.in_types] == [x.weak_type for x in pair]
        sizes = {ft.cost(times, passes=(), xla=False)(*pair).results}
        assert sizes == {2 * want.dtype.itemsize}

    each([(weak, half), (half, weak), (strong, half), (half, half), (weak, strong)], check)
    rows = ft.linear_transpose(lambda x: x * jax_numpy.ones(2, "bfloat16"), weak)
    ours = rows(jax_numpy.ones(2, "bfloat16"))[0]
    theirs = jax.linear_transpose(lambda x: x * jax_numpy.ones(2, "bfloat16"), weak)
    (wanted,) = theirs(jax_numpy.ones(2, "bfloat16"))
    assert (ours.dtype, ours.weak_type) == (wanted.dtype, wanted.weak_type)


@pytest.mark.smoke
def test_the_logarithm_of_a_softmax_sums_halves_in_float32():
    """In the program, as in JAX's: a platform need not widen what it sums."""
    program = ft.make_ir(ft.nn.log_softmax)(np.ones((2, 3), "float16"))
    (total,) = [e for e in program.equations if e.primitive.name == "reduce_sum"]
    assert total.inputs[0].type.dtype == "float32"
