"""Which public functions of JAX's namespaces `from_jax` can import: all that JAX can trace.

`python -m tests.sweep.test_from_jax_namespace` prints the table: for each function what came
of calling it, inside of our `jit`, with sample arguments; arrays are traced, numbers and options
are known.
"""

from __future__ import annotations

import importlib
import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as J
import numpy as np
import pytest

import functrans as ft
from functrans.interop import from_jax

NAMESPACES = (
    "numpy", "numpy.linalg", "numpy.fft", "scipy.linalg", "scipy.special", "scipy.signal",
    "scipy.fft", "nn",
)  # fmt: skip

X = np.linspace(0.2, 1.7, 9, dtype=np.float32).reshape(3, 3) + np.eye(3, dtype=np.float32)
V = np.array([0.3, 0.7, 1.1, 2.0], np.float32)
I = np.array([2, 0, 1], np.int32)  # noqa: E741
B = np.array([True, False, True])
Z = (X + 1j * X.T).astype(np.complex64)
S = (X @ X.T + np.eye(3)).astype(np.float32)

# The first of these that the function takes.
USUAL: list[tuple] = [
    (X,), (X, X), (I,), (I, I), (B,), (B, B), (X, X, X), (V,), (V, V), (V, V, V), (3,), (X, 2),
    (X, 1), (S,), (X, V[:3]), (V, 2), (X, (0,)), ((X, X),), (Z,), (X, I), (I, 2), (V, I), (),
]  # fmt: skip
SAMPLES: dict[str, tuple] = {
    "apply_along_axis": (J.sum, 0, X), "apply_over_axes": (J.sum, X, (0,)), "arange": (5,),
    "array_split": (V, 2), "astype": (X, "int32"), "blackman": (5,), "block": ([X, X],),
    "block_diag": (X, X), "broadcast_arrays": (X, V[:3]), "broadcast_shapes": ((3, 1), (4,)),
    "broadcast_to": (V, (3, 4)), "can_cast": ("int32", "int8"), "cho_solve": ((S, True), V[:3]),
    "choose": (I, [V[:3], V[1:], V[:3]]), "compress": (B, X), "delete": (V, 1),
    "dsplit": (X[None], 3), "eigh_tridiagonal": (V, V[:3]), "einsum": ("ij,jk", X, X),
    "einsum_path": ("ij,jk", X, X), "expand_dims": (X, 1), "extract": (X > 1, X), "eye": (3,),
    "fill_diagonal": (X, 2.0), "fromfunction": (lambda i, j: i + j, (3, 3)),
    "full": ((3,), 2.0), "full_like": (X, 2.0), "geomspace": (1.0, 2.0, 5), "hadamard": (4,),
    "histogram2d": (V, V), "insert": (V, 1, 2.0), "kaiser": (4, 0.5), "linspace": (0.0, 1.0, 5),
    "logspace": (0.0, 1.0, 5), "lu_solve": ((S, I), V[:3]), "mask_indices": (3, J.triu),
    "matrix_power": (X, 3), "moveaxis": (X, 0, 1), "multi_dot": ([X, X],),
    "multigammaln": (V + 3, 2), "pad": (X, 1), "permute_dims": (X, (1, 0)),
    "piecewise": (X, [X > 1], [lambda x: x, lambda x: -x]), "polyfit": (V, V, 2),
    "quantile": (X, 0.3), "nanquantile": (X, 0.3), "repeat": (V, 2), "reshape": (X, (9,)),
    "resize": (X, (2, 2)), "rsf2csf": (X, X), "select": ([X > 1], [X]),
    "solve_sylvester": (X, X, X), "solve_triangular": (S, V[:3]), "swapaxes": (X, 0, 1),
    "take_along_axis": (X, I[None], 0), "tensorinv": (np.eye(4, dtype="f4").reshape(2, 2, 2, 2),),
    "tensorsolve": (X, V[:3]), "tile": (X, (2, 2)), "tri": (3,), "unpackbits": (I.astype("u1"),),
    "unravel_index": (I, (3, 3)), "where": (X > 1, X, X), "zeros": ((3,),), "ones": ((3,),),
    "empty": ((3,),), "indices": ((2, 3),), "lstsq": (X, V[:3]),
}  # fmt: skip
# Not functions of arrays.
OF_FILES = set(
    [
        "from_dlpack",
        "frombuffer",
        "fromfile",
        "fromiter",
        "fromstring",
        "frompyfunc",
        "load",
        "save",
        "savez",
        "printoptions",
        "get_printoptions",
        "set_printoptions",
        "vectorize",
        "put",
        "place",
        "put_along_axis",
    ]
)
# Their results are as long as the values say: they run un-jitted, or with a `size`.
NEEDS_VALUES = set(
    [
        "argwhere",
        "bincount",
        "choose",
        "compress",
        "extract",
        "flatnonzero",
        "intersect1d",
        "nonzero",
        "poly",
        "ravel_multi_index",
        "roots",
        "setdiff1d",
        "setxor1d",
        "trim_zeros",
        "union1d",
        "unique",
        "unique_all",
        "unique_counts",
        "unique_inverse",
        "unique_values",
        "sph_harm_y",
    ]
)


def functions(namespace: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    module = importlib.import_module(f"jax.{namespace}")
    for name in sorted(dir(module)):
        f = getattr(module, name)
        is_dtype = isinstance(f, type) or hasattr(f, "dtype") or type(f).__name__ == "_ScalarMeta"
        if name in OF_FILES:
            continue
        if not name.startswith("_") and callable(f) and not is_dtype and not inspect.ismodule(f):
            yield name, f


def sample(name: str, f: Callable[..., Any]) -> tuple[tuple, Any] | None:
    """Arguments that the function takes, and its result."""
    for args in [SAMPLES[name]] if name in SAMPLES else USUAL:
        try:
            return args, f(*args)
        except Exception:
            continue
    return None


def outcome(name: str, f: Callable[..., Any]) -> str:
    """What comes of importing a function."""
    found = sample(name, f)
    if found is None:
        return "no sample arguments"
    args, wanted = found
    if not all(isinstance(y, (jax.Array, np.ndarray)) for y in jax.tree.leaves(wanted)):
        return "no arrays"
    leaves, structure = jax.tree.flatten(args)
    traced = [isinstance(x, np.ndarray) for x in leaves]
    imported = from_jax(f)

    def run(*arrays: Any) -> Any:
        rest = iter(arrays)
        full = [next(rest) if t else x for x, t in zip(leaves, traced, strict=True)]
        return imported(*jax.tree.unflatten(structure, full))

    arrays = [x for x, t in zip(leaves, traced, strict=True) if t]
    try:
        ours = ft.jit(run, passes=())(*arrays)
    except ft.errors.AbstractValueError:
        ours, found = imported(*args), None
    except Exception as error:
        return f"failed: {type(error).__name__}: {str(error).splitlines()[0]}"
    if not alike(ours, wanted):
        return "failed: another result"
    return "needs values" if found is None else "imported"


def alike(ours: Any, theirs: Any) -> bool:
    mine, others = jax.tree.leaves(ours), jax.tree.leaves(theirs)
    if jax.tree.structure(ours) != jax.tree.structure(theirs):
        return False
    return all(
        x.shape == y.shape
        and x.dtype == y.dtype
        # un-jitted JAX rounds after each operation; eigenvectors and the like magnify that
        and np.allclose(x, y, rtol=2e-3, atol=1e-3, equal_nan=True)
        for x, y in zip(mine, others, strict=True)
    )


@pytest.mark.heavy
@pytest.mark.parametrize("namespace", NAMESPACES)
def test_every_function_can_be_imported(namespace):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = {name: outcome(name, f) for name, f in functions(namespace)}
    failed = {name: what for name, what in found.items() if what.startswith("failed")}
    assert not failed
    assert {name for name, what in found.items() if what == "needs values"} <= NEEDS_VALUES
    assert list(found.values()).count("imported") > 0.6 * len(found)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for place in NAMESPACES:
        for each, function in functions(place):
            print(f"jax.{place}.{each}: {outcome(each, function)}", flush=True)
