"""Every row of the library tables beside JAX: types at several dtypes, values, gradients; and JAX's
own functions imported. Of what is JAX's own each function has one row, whose values are a sweep.

Types are found by tracing and cost no compilation. For values JAX's side of a group is one compiled
program; ours is interpreted by NumPy, since what XLA makes of an operation is a matter of
`test_primitives.py`. `tests/sweep/test_every_dtype.py` runs each row compiled, at every dtype.
"""

import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import functrans as ft
from functrans.interop import from_jax
from tests.support.closeness import assert_close
from tests.support.libraries import ARRAYS, LIBRARIES, differs_on_purpose, function_of, names_in
from tests.support.matrices import marked
from tests.support.versions import EXPRESSIONS, QUICK
from tests.support.wide import each

Leaves = list[Any]


@contextmanager
def silent() -> Iterator[None]:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


# The dtypes in place of float32 (the next one where JAX refuses the first), weak, 64-bit types; and
# the groups that have nothing of their own to show there.
KINDS = {
    "bfloat16": (("bfloat16",), False, False, "linear algebra|transforms|numpy"),
    "weak float32": (("float32",), True, False, "random|transforms"),
    "int32 beside 64 bits": (("int32", "float32"), False, True, "^$"),
}
# Where types differ because one of the two refuses, or where no kernel of XLA's has the dtype.
UNTYPED = {
    r"cumlogsumexp.* int32": "JAX refuses when it compiles",
    r"polyfit.* bfloat16": "JAX refuses when it compiles",
    r"custom_linear_solve.* int32": "integers divided are no integers",
}
SHARES = 3  # of the rows, each a test


@pytest.mark.smoke
@pytest.mark.parametrize("kind", [*list(KINDS)[:2], *marked("sweep", *list(KINDS)[2:])])
@pytest.mark.parametrize("share", range(SHARES))
def test_types(kind: str, share: int):
    """Shape, dtype and weak type of all results."""
    dtypes, weak, wide, without = KINDS[kind]

    def check(row: str) -> None:
        for dtype in dtypes:
            how = f"all {'weak ' * weak}{dtype}"
            if differs_on_purpose(row, how) or any(re.search(p, f"{row} {how}") for p in UNTYPED):
                continue
            try:
                theirs = types(row, "jax", dtype, weak)
            except Exception:
                continue
            try:
                ours = types(row, "functrans", dtype, weak)
            except ft.errors.UnsupportedDtype:
                assert dtype == "bfloat16"
                return
            assert ours == theirs
            return

    chosen = [rows for group, rows in LIBRARIES.items() if not re.search(without, group)]
    rows = [row for rows in chosen for row in rows]
    with jax.enable_x64(wide), silent():
        each([row for row in rows[share::SHARES] if row not in EXPRESSIONS], check)


def types(row: str, root: str, dtype: str, weak: bool) -> list[tuple[Any, ...]]:
    arrays = []
    for name in names_in(row):
        x = ARRAYS[name]
        ours = x.dtype == np.float32
        arrays.append(jax.ShapeDtypeStruct(x.shape, dtype if ours else x.dtype, weak_type=weak and ours))
    library: Any = ft if root == "functrans" else jax
    out = library.eval_shape(function_of(row, root), *arrays)
    return [described(y) for y in jax.tree.leaves(out)]


def described(y: Any) -> tuple[Any, ...]:
    """(That some of JAX's booleans are weak has no meaning.)"""
    if not hasattr(y, "dtype"):
        return (y,)
    return y.shape, str(y.dtype), y.dtype != bool and getattr(y, "weak_type", False)


# Groups whose programs are long: one row of so many.
LONG = {"random": 16}
WITHOUT_GRADIENTS = ["random"]
IMPORTED = ["lax elementwise", "lax shapes and reductions", "nn", "options of lax"]
HANDED_ON = ["linalg", "fft", "signal and others", "random"]
GROUPS = [*marked("rest", *IMPORTED), *marked("sweep", *HANDED_ON)]
NOT_COMPARED = {
    r"lax\.reduce\(x, .* lambda": "no monoid: the order of terms counts",
    r"return_residual": "JAX does not differentiate the residual",
    r"rng_|_shapes?\(|_shape_tuple|_to_pads|_numbers\(\(|permutations": "no arrays; the platform's",
    r"lax\.dtype|\.shape$|lax\.scan\(lambda c, t: \(c, t\), 1": "no array; handed through",
}
UNKNOWN = re.compile(r"ragged_dot")  # to from_jax
TOLERANCE = 2e-3


def rows_of(group: str) -> list[str]:
    rows = LIBRARIES[group][:: LONG.get(group, 1)]
    return [r for r in rows if r not in EXPRESSIONS and not re.search("|".join(NOT_COMPARED), r)]


def arrays_of(row: str) -> list[np.ndarray]:
    return [ARRAYS[n] for n in names_in(row)]


def evaluation(row: str, root: str, gradient: bool) -> Callable[..., tuple[Leaves, Any]]:
    """The results that are arrays, and the gradients by the float32 arrays of a sum of them."""
    library: Any = jax if root == "jax" else ft
    f = from_jax(function_of(row, "jax")) if root == "imported" else function_of(row, root)
    wrt = [i for i, x in enumerate(arrays_of(row)) if x.dtype == np.float32]

    def loss(chosen: Leaves, arrays: Leaves) -> tuple[Any, Leaves]:
        arrays = list(arrays)
        for i, x in zip(wrt, chosen, strict=True):
            arrays[i] = x
        out = [y for y in jax.tree.leaves(f(*arrays)) if hasattr(y, "dtype")]
        total = library.numpy.zeros((), np.float32)
        for y in out:
            if jnp.issubdtype(y.dtype, np.inexact):
                weights = np.cos(np.arange(y.size)).reshape(y.shape)
                y = library.numpy.real(y) + library.numpy.imag(y)
                total = total + library.numpy.sum(y * weights).astype(np.float32)
        return total, out

    def run(*arrays: Any) -> tuple[Leaves, Any]:
        if not gradient or not wrt:
            return loss([arrays[i] for i in wrt], list(arrays))[1], ()
        both = library.value_and_grad(loss, has_aux=True)
        (_, out), slopes = both([arrays[i] for i in wrt], list(arrays))
        return out, slopes

    return run


def by_jax(rows: list[str], gradients: bool) -> dict[str, tuple[Leaves, Any]]:
    """In one program. What JAX cannot differentiate has a value, what it refuses is left out."""

    def everything(arrays: dict[str, list[Any]]) -> dict[str, tuple[Leaves, Any]]:
        found = {}
        for row in rows:
            for gradient in (True, False)[not gradients :]:
                try:
                    found[row] = evaluation(row, "jax", gradient)(*arrays[row])
                    break
                except Exception:
                    continue
        return found

    arrays = {row: arrays_of(row) for row in rows}
    return jax.jit(everything, compiler_options=QUICK)(arrays)


@pytest.mark.parametrize("group", GROUPS)
def test_values_and_gradients(group: str):
    with silent():
        rows = rows_of(group)
        theirs = by_jax(rows, group not in WITHOUT_GRADIENTS)
        assert len(theirs) > 0.75 * len(rows)

        def check(row: str) -> None:
            arrays, (values, slopes) = arrays_of(row), theirs[row]
            known = group in IMPORTED and not UNKNOWN.search(row)
            for root in ("functrans", "imported")[: 1 + known]:
                program = ft.make_ir(evaluation(row, root, bool(slopes)))(*arrays)
                found = ft.interpret(program, *arrays)
                assert_close(found[: len(values)], values, TOLERANCE, f"{root}: value,")
                for x, y in zip(found[len(values) :], slopes, strict=True):
                    finite = np.isfinite(y)  # where JAX's is not, ours may be better
                    x, y = (np.where(finite, v, 0) for v in (x, y))
                    assert_close(x, y, TOLERANCE, f"{root}: gradient,")

        each([row for row in rows if row in theirs], check)
