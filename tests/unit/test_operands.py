"""Operators of traced arrays with what is no array: who is asked, and when it is an error."""

import operator
from array import array
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose

import functrans as ft
import functrans.numpy as jnp
from functrans import errors
from tests.support.wide import each

pytestmark = pytest.mark.smoke

X = np.array([1.0, 2.0, 3.0], np.float32)
BINARY = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": operator.pow, "@": operator.matmul, "&": operator.and_, "|": operator.or_,
    "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift, "divmod": divmod,
}  # fmt: skip
ORDER = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
NAMES = {sign: f.__name__.rstrip("_") for sign, f in BINARY.items()}
NO_ARRAYS = [None, {}, {"w": X}, {1}, "text", [1.0], (1.0, 2.0), len, object(), int]


def message(f, x=X):
    with pytest.raises(errors.NotAnArray) as found:
        ft.jit(f)(x)
    return str(found.value)


@pytest.mark.parametrize("sign", [*BINARY, *ORDER])
def test_the_operator_both_types_and_the_line_are_named(sign):
    each(NO_ARRAYS, lambda other: named(sign, other))


def named(sign, other):
    function = (BINARY | ORDER)[sign]
    kind = "None" if other is None else type(other).__qualname__
    said = message(lambda x: function(x, other))
    assert (f"divmod(f32[3], {kind})" if sign == "divmod" else f"f32[3] {sign} {kind}: ") in said
    assert "test_operands.py" in said
    if sign == "%" and isinstance(other, str):
        return  # formats
    said = message(lambda x: function(other, x))
    wanted = f"f32[3] {MIRRORED[sign]} {kind}" if sign in ORDER else f"{kind} {sign} f32[3]"
    assert (f"divmod({kind}, f32[3])" if sign == "divmod" else f"{wanted}: ") in said


class Answers:
    """Defines every operator of both sides."""

    def __eq__(self, other):
        return ("==", other)

    __hash__ = None


class Declines:
    """Defines every operator, and does not know traced arrays."""


for _sign, _name in NAMES.items():
    setattr(Answers, f"__{_name}__", lambda self, other, s=_sign: (s, "left"))
    setattr(Answers, f"__r{_name}__", lambda self, other, s=_sign: (s, "right"))
    setattr(Declines, f"__{_name}__", lambda self, other: NotImplemented)
    setattr(Declines, f"__r{_name}__", lambda self, other: NotImplemented)
for _sign, _name in zip(ORDER, ("lt", "le", "gt", "ge"), strict=True):
    setattr(Answers, f"__{_name}__", lambda self, other, s=_sign: (s, "order"))
    setattr(Declines, f"__{_name}__", lambda self, other: NotImplemented)


@pytest.mark.parametrize("sign", [*BINARY, *ORDER])
def test_a_class_with_the_operator_gets_its_turn(sign):
    function = (BINARY | ORDER)[sign]
    found = []

    def f(x):
        found.append(function(x, Answers()))
        found.append(function(Answers(), x))
        with pytest.raises(errors.NotAnArray, match="Declines"):
            function(x, Declines())
        with pytest.raises(errors.NotAnArray, match="Declines"):
            function(Declines(), x)
        return x

    ft.jit(f)(X)
    if sign in ORDER:
        assert found == [(MIRRORED[sign], "order"), (sign, "order")]
    else:
        assert found == [(sign, "right"), (sign, "left")]


Pair = namedtuple("Pair", "a b")
OF_OTHER_LIBRARIES = [
    Fraction(1, 2), Decimal(1), OrderedDict(a=1), Counter("a"), defaultdict(int), Pair(1, 2), deque([1]),
    array("d", [1.0]), Path("a"), timedelta(1),
]  # fmt: skip


@pytest.mark.parametrize("sign", ["+", "*", "**", "@", "&", "divmod", "<"])
def test_classes_of_other_libraries_that_decline(sign):
    """Whatever of JAX works does, as a power by a fraction; the rest is an error of ours."""
    each(OF_OTHER_LIBRARIES, lambda other: declines(sign, other))


def declines(sign, other):
    operate = (BINARY | ORDER)[sign]
    for swapped in (False, True):

        def f(x, swapped=swapped):
            if sign == "+":
                return other + x if swapped else x + other
            return operate(other, x) if swapped else operate(x, other)

        try:
            wanted = jax.jit(f)(X)
        except TypeError:
            with pytest.raises((errors.NotAnArray, errors.AbstractIndexError)) as found:
                ft.jit(f)(X)
            assert "test_operands.py" in str(found.value)
        else:
            assert_allclose(ft.jit(f)(X), wanted)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("numpy", [jax.numpy, jnp])
def test_a_mask_beyond_half_precision_is_silent(numpy):
    x = np.ones(3, "float16")
    assert np.isneginf(ft.jit(lambda x: numpy.where(x > 2, x, -1e9))(jax.numpy.asarray(x))).all()


def test_a_sequence_that_is_extended_by_an_array_takes_its_rows():
    def f(x):
        rows = deque()
        rows += x
        return rows[2]

    assert ft.jit(f)(X) == jax.jit(f)(X) == 3

    def g(x):
        rows = array("d")
        rows += x
        return rows

    assert "array + f32[3]: " in message(g)


def test_a_call_of_an_operator_is_left_to_python():
    def f(x):
        rows = operator.iadd(deque(), x)
        with pytest.raises(TypeError, match="concatenate"):
            operator.add(rows, x)
        return rows[2]

    assert ft.jit(f)(X) == 3


@pytest.mark.parametrize("other", [None, "text", object()])
def test_equality_with_what_is_no_array_is_identity(other):
    found = []

    def f(x):
        found.extend([x == other, x != other, other == x, other != x, x == Answers()])
        return x

    ft.jit(f)(X)
    assert found[:4] == [False, True, False, True]
    assert found[4][0] == "=="


@pytest.mark.parametrize(("wide", "narrow"), [("int32", "int8"), ("int16", "int8"), ("int64", "int32")])
@pytest.mark.parametrize("join", ["bitwise_and", "bitwise_or"])
def test_signed_integers_that_lose_their_upper_bytes(join, wide, narrow):
    """XLA:CPU of JAX 0.10 ends the process here, jitted or not."""
    with jax.enable_x64(True):
        x, y = np.arange(-6, 6, dtype=wide) * 777, np.full(12, 5, narrow)
        expected = getattr(np, join)(x.astype(narrow), y)
        for run in (ft.jit, lambda f: f):
            made = run(lambda x, y: getattr(jnp, join)(jnp.astype(x, narrow), y))(x, y)
            np.testing.assert_array_equal(made, expected, strict=True)
        weak = getattr(jnp, join)(jax.numpy.full(12, 300), y)
        np.testing.assert_array_equal(weak, getattr(np, join)(44 if narrow == "int8" else 300, y))
