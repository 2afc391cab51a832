"""JAX's `grad`, `vmap` and `einsum`, replaced by ours inside functrans traces.

JAX's versions would linearize, transpose and batch in Python on top of our tracing. When functrans
is the innermost trace, `jax.grad`, `jax.value_and_grad`, `jax.jacrev` and `jax.vmap` still check
their arguments and results; the pullback and the batching in between are ours, which are faster and
visible to our passes. `jax.vjp` called by name stays JAX's, since callers inspect its pullback.
`jax.numpy.einsum` searches a contraction order and makes a jitted function in each call, which is
half of the tracing time of a transformer; ours caches both. `jax.named_scope` names our equations.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
from jax._src import api, custom_derivatives, pjit, shard_map, source_info_util
from jax._src.core import no_axis_name
from jax._src.interpreters import batching
from numpy.lib.array_utils import normalize_axis_index

from functrans import errors, jax_trace
from functrans import pytrees as tree
from functrans.api.arguments import OF_PYTHON
from functrans.api.derivatives import vjp as our_vjp
from functrans.api.vmap import map_examples
from functrans.ir.source import here, scopes
from functrans.ir.types import is_inexact
from functrans.lax.arguments import as_array
from functrans.numpy.linear import einsum as our_einsum
from functrans.primitives.distributed.sharding import automatic_axes, left_to_xla
from functrans.primitives.reductions.folds import reduce_sum
from functrans.pytrees.functions import check_result
from functrans.trace import Tracer, materialize, typeof

_jax_vjp: Any = api.vjp
_jax_batch = batching.batch
_jax_einsum = jax.numpy.einsum
_jax_shard_map_checks: Any = shard_map._shmap_checks
_jax_assert_shardings_equal: Any = pjit.assert_shardings_equal
_jax_maybe_perturbed: Any = custom_derivatives._maybe_perturbed
_OF_BOTH = {"optimize", "precision", "preferred_element_type"}


def _vjp(fun: Callable[..., Any], *primals: Any, has_aux: bool = False, **how: Any) -> Any:
    if how or not jax_trace.is_innermost():
        return _jax_vjp(fun, *primals, has_aux=has_aux, **how)
    return our_vjp(fun, *primals, has_aux=has_aux)


def _batch(fun: Any, axis: Any, dims: Any, wanted: Any, sum_match: bool = False) -> Any:
    """Return an object with the method that `jax.vmap` calls, a batched function of flat lists.

    fun       : the user's function, of flat lists; JAX stores the structure of its result when it is called
    axis      : JAX's record of the mapped axis: name, size and mesh axes
    dims      : the batch axis of each argument
    wanted    : () -> the batch axis wanted for each result; called after the function
    sum_match : sum a batched result over the axis if an unbatched one is wanted
    """
    theirs = _jax_batch(fun, axis, dims, wanted, sum_match)
    plain = not callable(dims) and all([d is None or d.__class__ is int for d in dims])
    if not plain or axis.explicit_mesh_axis is not None or not jax_trace.is_innermost():
        return theirs
    (stored,) = fun.stores

    def of_arrays(*values: Any) -> Any:
        results = fun.call_wrapped(*values)
        if any(map(batching.is_vmappable, results)):
            raise _OfJax
        whole = tree.unflatten(stored.val, results)
        for i, y in enumerate(results):
            check_result(fun.f, y, whole, i)
        return results

    def mapped(*values: Any) -> tuple[list[Any], list[Any]]:
        try:
            leaves = [
                x if d is None and isinstance(x, OF_PYTHON) else as_array(x)
                for x, d in zip(values, dims, strict=True)
            ]  # a number stays one, and can be tested by `if`
        except errors.NotAnArray:  # references, for which JAX has rules
            return theirs.call_wrapped(*values)
        name = None if axis.name is no_axis_name else axis.name
        given = [
            d if d is None else normalize_axis_index(d, typeof(x).ndim)
            for x, d in zip(leaves, dims, strict=True)
        ]
        try:
            t, results, found = map_examples(
                of_arrays, leaves, given, axis.size, name, tuple(axis.spmd_name or ())
            )
        except _OfJax:
            stored.reset()
            return theirs.call_wrapped(*values)
        rows = list(zip(results, found, wanted(), strict=True))
        placed = [_placed(t, i, y, d, to, sum_match) for i, (y, d, to) in enumerate(rows)]
        return placed, [d if to is batching.infer else to for _, d, to in rows]

    return SimpleNamespace(call_wrapped=mapped)


class _OfJax(Exception):
    """A result is a sparse array, for which JAX has rules."""


def _placed(t: Any, i: int, y: Any, d: int | None, to: Any, sum_match: bool) -> Any:
    """Move the batch axis of a result to where it is wanted."""
    if to is None and d is not None:
        if not sum_match:
            raise batching.SpecMatchError(i, d, to)
        y = reduce_sum(y, axes=(d,))
    elif to is not None and to is not batching.infer:
        y = t.at(y, d, normalize_axis_index(to, typeof(y).ndim + (d is None)))
    return materialize(y)


def _shard_map_checks(mesh: Any, axis_names: Any, in_specs: Any, *rest: Any) -> tuple[Any, Any]:
    """Check the arguments of `jax.shard_map` as for a mesh with automatic axes, since our types
    have no shardings to compare with `in_specs`, or to infer them from."""
    set_mesh = jax.sharding.get_abstract_mesh()
    around = left_to_xla(set_mesh)
    if jax_trace.bridge() is None:
        if mesh is not None and mesh.abstract_mesh == around != set_mesh:
            mesh = None  # JAX's function remembers the one it was called with inside of ours
        return _jax_shard_map_checks(mesh, axis_names, in_specs, *rest)
    if in_specs is shard_map.Infer:
        raise errors.NotSupported(
            "shard_map: in_specs is left out inside a function that functrans traces, whose types do not "
            f"record how arrays are sharded, {here()}\nPass in_specs=."
        )
    with automatic_axes():
        mesh = None if mesh is None else left_to_xla(mesh)
        return _jax_shard_map_checks(mesh, axis_names, in_specs, *rest)


def _assert_shardings_equal(aval: Any, sharding: Any) -> None:
    """With explicit axes `with_sharding_constraint` asserts what the type says; ours say nothing."""
    if jax_trace.bridge() is None:
        _jax_assert_shardings_equal(aval, sharding)


def _maybe_perturbed(x: Any) -> bool:
    """Return whether `jax.closure_convert` makes a captured value an argument. JAX looks for its own
    tracers of a derivative inside others; ours may be differentiated later."""
    return is_inexact(typeof(x).dtype) if isinstance(x, Tracer) else _jax_maybe_perturbed(x)


class _NamedScope(source_info_util.ExtendNameStackContextManager):
    """JAX's `named_scope`, with which libraries name their modules, names our equations, too."""

    __slots__ = ("_outer",)

    def __enter__(self) -> Any:
        self._outer = scopes.path
        scopes.path = f"{self._outer}{self.name}/"
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        scopes.path = self._outer
        super().__exit__(*error)


@functools.wraps(_jax_einsum)
def _einsum(subscripts: Any, /, *operands: Any, **how: Any) -> Any:
    if jax_trace.is_innermost() and _OF_BOTH.issuperset(how):
        return our_einsum(subscripts, *operands, **how)
    return _jax_einsum(subscripts, *operands, **how)


for _module, _name, _ours in (
    (api, "vjp", _vjp),
    (batching, "batch", _batch),
    (jax.numpy, "einsum", _einsum),
    (shard_map, "_shmap_checks", _shard_map_checks),
    (pjit, "assert_shardings_equal", _assert_shardings_equal),
    (custom_derivatives, "_maybe_perturbed", _maybe_perturbed),
    (source_info_util, "extend_name_stack", _NamedScope),
    (source_info_util, "ExtendNameStackContextManager", _NamedScope),  # which a decorated function enters
):
    setattr(_module, _name, _ours)
