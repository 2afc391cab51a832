"""The rows of the library tables: expressions of functrans's modules or of JAX's, and their arrays.

A row calls the modules under the short names of `MODULES`; the other names in it are `ARRAYS`.
"""

import functools
import importlib
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.matrix import test_numpy

MODULES = {
    "jnp": "numpy",
    "lax": "lax",
    "nn": "nn",
    "random": "random",
    "ops": "ops",
    "image": "image",
    "special": "scipy.special",
    "linalg": "numpy.linalg",
    "lla": "lax.linalg",
    "sla": "scipy.linalg",
    "fft": "numpy.fft",
    "sfft": "scipy.fft",
    "signal": "scipy.signal",
    "ndimage": "scipy.ndimage",
    "integrate": "scipy.integrate",
    "cluster": "scipy.cluster.vq",
    "initializers": "nn.initializers",
    "stats": "scipy.stats",
    "interpolate": "scipy.interpolate",
    "spatial": "scipy.spatial.transform",
    "sparse": "scipy.sparse.linalg",
    "optimize": "scipy.optimize",
}

_rng = np.random.default_rng(5)
_M = _rng.normal(size=(4, 4))
ARRAYS: dict[str, np.ndarray] = {
    **test_numpy.ARRAYS,
    "pd": (_M @ _M.T + 4 * np.eye(4)).astype(np.float32),
    "img": _rng.normal(size=(1, 2, 5, 6)).astype(np.float32),
    "ker": _rng.normal(size=(3, 2, 2, 2)).astype(np.float32),
    "att": _rng.normal(size=(1, 4, 2, 3)).astype(np.float32),
}
LIBRARIES = test_numpy.read_table("library")

# Where we differ on purpose: (expression and dtypes, what we do).
DELIBERATE = [
    (
        r"^nn\.((log_)?softmax|log_sigmoid|log1mexp)\b.* uint",
        "unsigned numbers do not wrap around where they are subtracted or negated",
    ),
    (r"^lla\.qdwh.* weak", "equal elements: the factors are not unique"),
    (r"^linalg\.vector_norm\(.*ord=(3|-1).* (bool|u?int\d+)$", "JAX cuts it to integers"),
    (r"^jnp\.geomspace.*dtype='float16'.* complex", "the real part of powers of complex numbers"),
    (r"^jnp\.full_like\(x, v.* uint8$", "negative numbers as unsigned ones"),
    (r"(bitwise_(and|or)\b|[&|]).* weak int", "JAX 0.10 ends the process on CPU"),
    (r"^jnp\.polyfit.*((64|128)$|rcond=.* u?int\d+$)", "x and y have one dtype before the powers are taken"),
    (
        r"^jnp\.einsum.*preferred_element_type=.* (uint32|bfloat16)",
        "operands of several dtypes are promoted also where a dtype of the sum is asked for",
    ),
    (
        r"^jnp\.unravel_index.* (bool|b?float\d+|complex\d+)$",
        "NumPy refuses indices that are no integers, as we do",
    ),
    (
        r"^jnp\.(quantile\((x, s|h, jnp.float32)|percentile\(x, p\[0\]).* float64",
        "JAX rounds a to the dtype of q before it interpolates",
    ),
    (r"^jnp\.take\(x, iv.*mode='wrap'.* bool$", "JAX takes truth values modulo True: 0"),
    (r"^lax\.rng_uniform", "XLA ends the process at other dtypes: refused"),
    (r"^jnp\.roll\(x, iv.* complex", "shifts are real numbers"),
    (r"^jnp\.searchsorted\(up,.* uint", "the absolute values of sorted numbers are not sorted"),
    (
        r"^jnp\.logaddexp2\.reduce\(i\).* (bool|u?int(8|16|32))$",
        "the dtype of logaddexp2(i, i); with 64-bit types JAX's is wider, for this one reduction",
    ),
]


@functools.cache
def functions(root: str) -> dict[str, ModuleType]:
    """The modules of `functrans` or of `jax` under their short names."""
    return {k: importlib.import_module(f"{root}.{v}") for k, v in MODULES.items()}


def names_in(row: str) -> list[str]:
    """The arrays that a row reads."""
    return test_numpy.names_in(row, ARRAYS)


def function_of(row: str, root: str, names: list[str] | None = None) -> Callable[..., Any]:
    """The row as a function of its arrays, or of `names`."""
    names = names_in(row) if names is None else names
    code = compile(row, row, "eval")
    scope = {**test_numpy.CONSTANTS, "key": jax.random.key(3), **functions(root)}
    return lambda *arrays: eval(code, {**scope, **dict(zip(names, arrays, strict=True))})


def differs_on_purpose(row: str, how: str) -> bool:
    return any(re.search(pattern, f"{row} {how}") for pattern, _ in DELIBERATE)


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
