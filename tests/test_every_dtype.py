"""Every expression of the tables at every dtype, beside JAX: value, dtype, shape and weak type.

The arrays that an expression reads are cast: the first, the last, all of them; they are given as
JAX's arrays, as weakly typed ones and as NumPy's. What JAX refuses may have a value here; what JAX
computes must be computed here. The quick test takes one row of four and the arrays as they stand;
`pytest -m heavy tests/test_every_dtype.py` makes all 80,000 calls, with 64-bit types too.
"""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import functrans as ft
from tests import test_numpy, test_numpy_tail
from tests.closeness import assert_close
from tests.versions import EXPRESSIONS

MODULES = {
    "jnp": "numpy", "lax": "lax", "nn": "nn", "random": "random", "ops": "ops", "image": "image",
    "special": "scipy.special", "linalg": "numpy.linalg", "lla": "lax.linalg",
    "sla": "scipy.linalg", "fft": "numpy.fft", "sfft": "scipy.fft", "signal": "scipy.signal",
    "ndimage": "scipy.ndimage", "integrate": "scipy.integrate", "cluster": "scipy.cluster.vq",
    "initializers": "nn.initializers", "stats": "scipy.stats",
    "interpolate": "scipy.interpolate", "spatial": "scipy.spatial.transform",
    "sparse": "scipy.sparse.linalg", "optimize": "scipy.optimize",
}  # fmt: skip

_rng = np.random.default_rng(5)
_M = _rng.normal(size=(4, 4))
ARRAYS: dict[str, np.ndarray] = {
    **test_numpy.ARRAYS,
    "pd": (_M @ _M.T + 4 * np.eye(4)).astype(np.float32),
    "img": _rng.normal(size=(1, 2, 5, 6)).astype(np.float32),
    "ker": _rng.normal(size=(3, 2, 2, 2)).astype(np.float32),
    "att": _rng.normal(size=(1, 4, 2, 3)).astype(np.float32),
}
SMALL = ["bool", "int8", "int16", "int32", "uint8", "uint16", "uint32", "float16", "bfloat16",
         "float32", "complex64"]  # fmt: skip
WIDE = ["int64", "uint64", "float64", "complex128"]

# Where we differ on purpose: (expression and dtypes, what we do).
DELIBERATE = [
    (r"^(nn|special)\.((log_)?softmax|log_sigmoid|log1mexp)\b.* uint",
     "unsigned numbers do not wrap around where they are subtracted or negated"),
    (r"^nn\.dot_product_attention.* (bool|u?int|complex)",
     "weights below 1 as integers are 0, and JAX takes the real part: refused"),
    (r"^nn\.dot_product_attention.* float64", "computed in float64, by JAX in float32"),
    (r"^(sla\.(expm|polar)|lla\.qdwh).* weak", "equal elements: precise; polar is not unique"),
    (r"^linalg\.vector_norm\(.*ord=(3|-1).* (bool|u?int\d+)$", "JAX cuts it to integers"),
    (r"^jnp\.geomspace.*dtype='float16'.* complex", "the real part of powers of complex numbers"),
    (r"^jnp\.full_like\(x, v.* uint8$", "negative numbers as unsigned ones"),
    (r"(bitwise_(and|or)\b|[&|]).* weak int", "JAX 0.10 ends the process on CPU"),
    (r"^spatial\.Rotation.* complex", "rotations are of real numbers: refused"),
    (r"^jnp\.polyfit.*((64|128)$|rcond=.* u?int\d+$)",
     "x and y have one dtype before the powers are taken"),
    (r"^jnp\.einsum.*preferred_element_type=.* (uint32|bfloat16)",
     "operands of several dtypes are promoted also where a dtype of the sum is asked for"),
    (r"^jnp\.unravel_index.* (bool|b?float\d+|complex\d+)$",
     "NumPy refuses indices that are no integers, as we do"),
    (r"^jnp\.(quantile\((x, s|h, jnp.float32)|percentile\(x, p\[0\]).* float64",
     "JAX rounds a to the dtype of q before it interpolates"),
    (r"^jnp\.take\(x, iv.*mode='wrap'.* bool$", "JAX takes truth values modulo True: 0"),
    (r"^sla\.eigh_tridiagonal.*tol=.*(64|128)$", "as exact as without `tol`"),
    (r"^sparse\.gmres.* last bool$", "a singular matrix"),
    (r"^optimize\.minimize.* bfloat16$", "rounding decides where a line search ends"),
    (r"^lax\.rng_uniform", "XLA ends the process at other dtypes: refused"),
    (r"^jnp\.roll\(x, iv.* complex", "shifts are real numbers"),
    (r"^jnp\.searchsorted\(up,.* uint", "the absolute values of sorted numbers are not sorted"),
    (r"^jnp\.logaddexp2\.reduce\(i\).* (bool|u?int(8|16|32))$",
     "the dtype of logaddexp2(i, i); with 64-bit types JAX's is wider, for this one reduction"),
    (r"^special\.owens_t.* (float32|complex64)$",
     "with 64-bit types float32 terms are rounded before float64 ones are added, by either"),
]  # fmt: skip


LIBRARIES = test_numpy.read_table("library_expressions.txt")
GROUPS = {**LIBRARIES}
for _table in (test_numpy.TABLE, test_numpy_tail.TABLE):
    for _group, _members in _table.items():
        GROUPS[f"numpy {_group}"] = [*GROUPS.get(f"numpy {_group}", []), *_members]


def function_of(row: str, library: str, names: list[str] | None = None) -> Callable[..., Any]:
    """The row as a function of its arrays, or of `names`."""
    names = test_numpy.names_in(row, ARRAYS) if names is None else names
    code = compile(row, row, "eval")
    modules = {k: importlib.import_module(f"{library}.{v}") for k, v in MODULES.items()}
    scope = {**test_numpy.CONSTANTS, "key": jax.random.key(3), **modules}
    return lambda *arrays: eval(code, {**scope, **dict(zip(names, arrays, strict=True))})


def cast(x: Any, dtype: str) -> np.ndarray:
    """The numbers of x at a dtype, as far as it has them."""
    x, to = np.asarray(x), jnp.dtype(dtype)
    if jnp.issubdtype(to, np.complexfloating):
        real = jnp.issubdtype(x.dtype, np.floating)
        return (x + 1j * np.flip(x) if real else x).astype(to)
    x = np.real(x)
    if dtype == "bool":
        return x > 0
    if jnp.issubdtype(to, np.integer):
        x = np.nan_to_num(x.astype(np.float64), posinf=9, neginf=-9)
        x = np.abs(x) if jnp.issubdtype(to, np.unsignedinteger) else x
    return x.astype(to)


def calls(row: str, wide: bool) -> Iterator[tuple[str, list[Any]]]:
    """What the arrays are, and the arrays."""
    base = [ARRAYS[n] for n in test_numpy.names_in(row, ARRAYS)]
    if not base:
        return
    for dtype in SMALL + WIDE * wide:
        ways = {
            f"first {dtype}": [cast(base[0], dtype), *base[1:]],
            f"last {dtype}": [*base[:-1], cast(base[-1], dtype)],
            f"all {dtype}": [cast(x, dtype) for x in base],
        }
        for how, arrays in list(ways.items())[: 1 if len(base) == 1 else None]:
            yield how, [jnp.asarray(x) for x in arrays]
    for number in (2.0, 2, 2 + 1j):
        weak = jnp.full(np.shape(base[0]), number)
        yield f"weak {weak.dtype}", [weak, *[jnp.asarray(x) for x in base[1:]]]
    for dtype in ("bool", "uint8", "int64", "float16", "float64", "complex128"):
        yield f"NumPy's {dtype}", [cast(base[0], dtype), *base[1:]]


def result(function: Callable[..., Any], arrays: list[Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function(*arrays)
        except Exception as error:
            return error


TOLERANCES = {"bfloat16": 1e-1, "float16": 2e-2, "float32": 2e-4, "complex64": 2e-4}


def difference(mine: Any, other: Any, dtype: str = "") -> str | None:
    """What differs from JAX's result for operands of a dtype."""
    if isinstance(other, Exception):
        return None
    if isinstance(mine, Exception):
        return f"{type(mine).__name__}: {mine}"
    for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(other), strict=True):
        if not isinstance(b, jax.Array):
            continue
        if not isinstance(a, jax.Array):
            return f"{type(a)}, JAX has an array"
        weak = [getattr(x, "weak_type", False) for x in (a, b)]
        if weak[0] != weak[1] and a.dtype == b.dtype != bool:  # that of booleans has no meaning
            return f"weak_type {weak[0]}, JAX has {weak[1]}"
        try:
            assert_close(a, b, TOLERANCES.get(dtype if "16" in dtype else str(b.dtype)))
        except AssertionError as found:
            return re.sub(r"\s+", " ", str(found))[:240]
    return None


def compare(rows: list[str], wide: bool, quick: bool) -> None:
    found = []
    for i, row in enumerate(rows):
        if row in EXPRESSIONS:
            continue
        if i % 16 == 15:
            ft.clear_caches()  # a process can map only so many executables
        ours, theirs = function_of(row, "functrans"), function_of(row, "jax")
        stand = [
            ("as it stands", [jnp.asarray(ARRAYS[n]) for n in test_numpy.names_in(row, ARRAYS)])
        ]
        for how, arrays in stand if quick else calls(row, wide):
            if any(re.search(pattern, f"{row} {how}") for pattern, _ in DELIBERATE):
                continue
            differs = difference(result(ours, arrays), result(theirs, arrays), how.split()[-1])
            if differs:
                found.append(f"{row}, {how}: {differs}")
    assert not found, f"{len(found)}\n" + "\n".join(found)


@pytest.mark.parametrize("group", LIBRARIES)
def test_as_it_stands(group):
    compare(LIBRARIES[group][::4], wide=False, quick=True)


@pytest.mark.heavy
@pytest.mark.parametrize("wide", [False, True], ids=["32", "64"])
@pytest.mark.parametrize("group", GROUPS)
def test_every_dtype(group, wide):
    with jax.enable_x64(wide):
        compare(GROUPS[group], wide, quick=False)
