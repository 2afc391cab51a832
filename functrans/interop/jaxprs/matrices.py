"""JAX's operations on matrices, transforms and windows."""

from __future__ import annotations

from typing import Any

from jax.extend.core import ClosedJaxpr

from functrans.interop.jaxprs.walk import like, means, opaque, operation, plain, program
from functrans.lax import linalg

# --- linear algebra -------------------------------------------------------------------------------

like("cholesky")
like("cholesky_update")
like("lu")
like("lu_pivots_to_permutation", permutation_size="permutation_size")
like("geqrf")
like("householder_product")
like("ormqr", left="left", transpose="transpose")
like("hessenberg")
like("tridiagonal", lower="lower")
like("triangular_solve", left_side="left_side", lower="lower", transpose_a="transpose_a",
     conjugate_a="conjugate_a", unit_diagonal="unit_diagonal")  # fmt: skip
like("tridiagonal_solve", perturb_singular="perturb_singular")


@means("qr", "eig")
def _by_name(eqn: Any, x: Any) -> Any:
    return getattr(linalg, eqn.primitive.name)(x, **eqn.params)


@means("eigh")
def _eigh(eqn: Any, x: Any) -> Any:
    options = dict(eqn.params)
    for name in ("algorithm", "implementation"):  # its name in JAX changes
        if name in options:
            options["implementation"] = options.pop(name)
    return linalg.eigh(x, symmetrize_input=False, **options)


@means("svd")
def _svd(eqn: Any, x: Any) -> Any:
    found = linalg.svd(x, **eqn.params)
    if not eqn.params["compute_uv"]:
        return found
    u, s, vh = found
    return s, u, vh


@means("schur")
def _schur(eqn: Any, x: Any) -> Any:
    if eqn.params.get("sort_eig_vals"):
        return opaque(eqn, x)
    return operation(eqn, "schur")(x, compute_schur_vectors=eqn.params["compute_schur_vectors"])


@means("symmetric_product")
def _symmetric_product(eqn: Any, a: Any, c: Any) -> Any:
    return linalg.symmetric_product(a, c, **eqn.params)


# --- transforms and windows -----------------------------------------------------------------------

_WINDOW = ("window_dimensions", "window_strides", "padding", "base_dilation", "window_dilation")


def _window(eqn: Any) -> dict[str, Any]:
    once = (1,) * len(eqn.params["window_dimensions"])
    return {k: plain(eqn.params.get(k, once)) for k in _WINDOW}


@means("fft")
def _fft(eqn: Any, x: Any) -> Any:
    lengths = plain(eqn.params["fft_lengths"])
    return operation(eqn, "fft")(x, kind=eqn.params["fft_type"].name, lengths=lengths)


@means("reduce_window_sum", "reduce_window_max", "reduce_window_min")
def _fold_windows(eqn: Any, x: Any) -> Any:
    return operation(eqn, eqn.primitive.name)(x, **_window(eqn))


@means("select_and_gather_add", "select_and_scatter_add")
def _select_in_windows(eqn: Any, x: Any, y: Any) -> Any:
    select = eqn.params["select_prim"].name
    return operation(eqn, eqn.primitive.name)(x, y, select=select, **_window(eqn))


@means("reduce_window")
def _reduce_window(eqn: Any, *values: Any) -> Any:
    body, consts = program(ClosedJaxpr(eqn.params["jaxpr"], eqn.params["consts"]), "computation")
    if consts:
        return opaque(eqn, *values)
    return operation(eqn, "reduce_window")(*values, computation=body, **_window(eqn))
