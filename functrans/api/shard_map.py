"""`shard_map`: map a function over the shards on the devices of a mesh, with collectives.

A function of one shard is implemented as `vmap` over all shards, stacked along one axis per mesh
axis. So the function is traced on one shard (by JAX, if it checks over which axes values vary),
batched once per mesh axis, and the stack is sharded so that each device holds its own entry; XLA's
partitioner turns reductions over the stack into communication. Derivatives, `vmap` and `jit` need
no extra rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence, Set
from contextlib import ExitStack
from functools import partial, wraps
from typing import Any, Required, TypedDict, TypeVar, Unpack, overload

import jax

from functrans import errors, runtime
from functrans import pytrees as tree
from functrans.api.arguments import check_callable
from functrans.ir.program import Program, hoist_constants
from functrans.ir.source import brief, brief_with_type, here
from functrans.ir.tracebacks import boundary
from functrans.ir.types import ArrayType
from functrans.lax.arguments import as_array
from functrans.primitives.calls.jit import jit
from functrans.primitives.distributed.sharding import (
    left_to_xla,
    sharding_constraint,
    traced_by_jax,
    unknown_layout,
)
from functrans.primitives.shape.moving import index_axis, reshape, transpose
from functrans.pytrees.functions import FlatFunction, function_name
from functrans.trace import at_once, evaluate, materialize, naming, stage, state, typeof
from functrans.transforms.batch import Batching
from functrans.typing import PyTree

# A TypeVar of the function's type: mypy does not infer a lambda's type through a ParamSpec here.
_F = TypeVar("_F", bound=Callable[..., Any])

Spec = tuple[tuple[str, ...], ...]  # for each array axis, the mesh axes it is sharded over


class _Infer:
    def __repr__(self) -> str:
        return "from the arguments"


INFER = _Infer()


class _Options(TypedDict, total=False):
    out_specs: Required[PyTree]
    in_specs: PyTree
    mesh: jax.sharding.Mesh | None
    axis_names: Set[str]
    check_vma: bool


@overload
def shard_map(f: _F, /, **options: Unpack[_Options]) -> _F: ...
@overload
def shard_map(f: None = None, /, **options: Unpack[_Options]) -> Callable[[_F], _F]: ...
@boundary
def shard_map(
    f: Callable[..., PyTree] | None = None,
    /,
    *,
    out_specs: PyTree,
    in_specs: PyTree = INFER,
    mesh: jax.sharding.Mesh | None = None,
    axis_names: Set[str] = frozenset(),
    check_vma: bool = True,
) -> Any:
    """Map a function over shards of arrays, one per device of a mesh.

    Arguments:
      f: function of pytrees of arrays, each the shard of one device. Left out: return a decorator.
        Inside `f` the collectives of `functrans.lax` can use the names of the mesh axes.
      mesh: a `jax.sharding.Mesh`; None: the mesh set by `ft.set_mesh` around the call.
      in_specs, out_specs: pytrees (or prefixes) of `PartitionSpec`s: the mesh axes over which each
        axis of an argument or result is sharded. Along a mesh axis that its spec does not name, an
        argument is replicated, and a result must be the same on all devices. in_specs left out:
        the shardings of the arguments, over a mesh whose axes must be explicit.
      axis_names: the mesh axes that `f` is manual over; the others are left to XLA. Empty: all.
      check_vma: JAX traces `f` and checks over which mesh axes its values vary. A derivative inside
        `f` with respect to a value that does not vary is the sum over the devices; a result that
        varies over an axis that its spec does not name is an error. Without, the derivative is that
        of one device, and such a result is the first device's.

    Returns:
      A function of global arrays.

    Raises:
      InvalidArgument: a size is not divisible by that of the mesh axes, or a spec does not match.
      MissingArgument: no mesh is given or set.
      NotSupported: in_specs is left out inside a function that functrans itself traces, such as
        the body of `lax.while_loop`: its types have no shardings.

    Source: `jax.shard_map`. XLA's partitioner chooses the communication between devices; the
      results are the same.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> from functrans import lax
      >>> mesh = ft.make_mesh((1,), ("i",))
      >>> total = ft.shard_map(lambda x: lax.psum(x.sum(), "i"), mesh=mesh,
      ...                      in_specs=ft.P("i"), out_specs=ft.P())
      >>> print(total(jnp.arange(4.0)))
      6.0
    """
    if f is None:
        return partial(shard_map, **{k: v for k, v in locals().items() if k != "f"})
    check_callable(f, "shard_map")
    if mesh is not None and not isinstance(mesh, jax.sharding.Mesh):
        raise errors.NotAnArray(
            f"shard_map: mesh must be a jax.sharding.Mesh, got {brief_with_type(mesh)}"
            f", {here()}\nMake one with ft.make_mesh((8,), ('i',))."
        )
    inferred = in_specs is INFER
    given = {} if inferred else {"in_specs": in_specs}
    like_jax = partial(
        jax.shard_map, f, out_specs=out_specs, axis_names=axis_names, check_vma=check_vma, **given
    )
    by_jax = like_jax(mesh=mesh)
    programs: dict[Any, tuple[Program, tuple[Any, ...], Any]] = {}

    @boundary
    @wraps(f)
    def call(*args: Any) -> Any:
        if inferred and state.trace is not None:
            raise unknown_layout()
        if inferred or traced_by_jax():
            if mesh is None:
                _mesh_around()
            return by_jax(*args)
        leaves, in_tree = tree.flatten((args, {}))
        leaves = [materialize(as_array(x)) for x in leaves]
        types = tuple([typeof(x) for x in leaves])
        over = left_to_xla(_mesh_around() if mesh is None else mesh)
        key = in_tree, types, over
        found = programs.get(key)
        if found is None:
            layout = _Layout(over, axis_names)
            specs = layout.specs(in_specs, args, "in_specs", "args")
            checked = like_jax(mesh=over) if check_vma else None
            found = _whole(f, layout, in_tree, types, specs, out_specs, checked)
            if not found[1]:
                programs[key] = found
        program, captured, out_tree = found
        return tree.unflatten(out_tree, jit(*captured, *leaves, program=program))

    return call


def _mesh_around() -> Any:
    with at_once():
        mesh = jax.sharding.get_mesh()
    if mesh.empty:
        raise errors.MissingArgument(
            f"shard_map: mesh is None, and no mesh is set around the call, {here()}\n"
            "Pass mesh=ft.make_mesh((8,), ('i',)), or call it within ft.set_mesh(mesh)."
        )
    return mesh


class _Layout:
    """A mesh, and how arrays are sharded over it."""

    def __init__(self, mesh: Any, axis_names: Any):
        # with all axes automatic (left to XLA), whatever their types are in the user's mesh
        self.mesh = jax.sharding.Mesh(mesh.devices, mesh.axis_names)
        self.names = tuple([n for n in mesh.axis_names if not axis_names or n in axis_names])
        self.size = dict(mesh.shape)

    def specs(self, given: Any, like: Any, what: str, path: str) -> list[Spec]:
        """Return a spec for each leaf of `like`."""

        def is_spec(x: Any) -> bool:
            return x is None or isinstance(x, jax.sharding.PartitionSpec)

        try:
            found = tree.spread(given, like, is_spec)
        except ValueError as error:
            raise errors.InvalidArgument(
                f"shard_map: {what} does not fit the structure of {path}: {error}, {here()}"
            ) from None
        names = tree.path_names(like, path)
        return [self.spec(s, n) for s, n in zip(found, names, strict=True)]

    def spec(self, given: Any, path: str) -> Spec:
        """Convert a PartitionSpec to a tuple of mesh axis names per array axis."""
        if given is not None and not isinstance(given, jax.sharding.PartitionSpec):
            raise errors.NotAnArray(
                f"shard_map: the spec of {path} must be a PartitionSpec (ft.P), got {brief(given)}, {here()}"
            )
        spec = tuple(
            [() if n is None else tuple(n) if isinstance(n, (tuple, list)) else (n,) for n in given or ()]
        )
        met = [n for names in spec for n in names]
        for n in met:
            if n not in self.names or met.count(n) > 1:
                raise errors.InvalidArgument(
                    f"shard_map: the spec {given} of {path} must name axes of the mesh "
                    f"{self.names}, each at most once, {here()}"
                )
        return spec

    def part(self, t: ArrayType, spec: Spec, path: str) -> ArrayType:
        """Return the type of the shard of one device."""
        if len(spec) > t.ndim:
            raise errors.InvalidArgument(
                f"shard_map: the spec of {path} has {len(spec)} entries for {t}, {here()}"
            )
        shape = list(t.shape)
        for i, names in enumerate(spec):
            n = math.prod([self.size[a] for a in names])
            if shape[i] % n:
                raise errors.InvalidArgument(
                    f"shard_map: axis {i} of {path} has size {shape[i]}, which is not divisible by "
                    f"the {n} devices of the mesh axes {names}, {here()}"
                )
            shape[i] //= n
        return t.update(shape=tuple(shape))

    def used(self, spec: Spec) -> list[str]:
        """Return the mesh axes of a spec, in mesh order: shards are stacked along these."""
        return [n for n in self.names if any(n in names for names in spec)]

    def laid_out(self, x: Any, spec: Sequence[Any]) -> Any:
        """Return x with a sharding constraint."""
        named = [tuple(names) or None if isinstance(names, tuple) else names for names in spec]
        sharding = jax.sharding.NamedSharding(self.mesh, jax.P(*named))
        return sharding_constraint(x, sharding=sharding)

    def stacked(self, x: Any, spec: Spec) -> Any:
        """Return the shards of an array, stacked along one leading axis per mesh axis used."""
        t, order = typeof(x), self.used(spec)
        x = self.laid_out(x, spec)
        shape: list[int] = []
        place: dict[str, int] = {}
        inner = []
        for i, n in enumerate(t.shape):
            names = spec[i] if i < len(spec) else ()
            for a in names:
                place[a] = len(shape)
                shape.append(self.size[a])
            inner.append(len(shape))
            shape.append(n // math.prod([self.size[a] for a in names]))
        if not order:
            return x
        moves = (*[place[a] for a in order], *inner)
        return self.laid_out(_permuted(reshape(x, shape=tuple(shape)), moves), order)

    def merged(self, x: Any, spec: Spec) -> Any:
        """Return the array whose shards are stacked along leading axes: inverse of `stacked`."""
        order, t = self.used(spec), typeof(x)
        local = t.shape[len(order) :]
        spec = (*spec, *[()] * (len(local) - len(spec)))
        moves, shape = [], []
        for i, n in enumerate(local):
            moves += [order.index(a) for a in spec[i]] + [len(order) + i]
            shape.append(n * math.prod([self.size[a] for a in spec[i]]))
        if order:
            x = reshape(_permuted(x, tuple(moves)), shape=tuple(shape))
        return self.laid_out(x, spec)


def _permuted(x: Any, order: tuple[int, ...]) -> Any:
    return x if order == tuple(range(len(order))) else transpose(x, permutation=order)


def _whole(
    f: Any,
    layout: _Layout,
    in_tree: Any,
    types: Sequence[ArrayType],
    specs: list[Spec],
    out_specs: Any,
    checked: Any,
) -> tuple[Program, tuple[Any, ...], Any]:
    """Return the program of global arrays, the captured constants, and the output treedef. `checked`:
    JAX's mapped function, of which the part is taken; None: the part is traced by functrans."""
    flat = FlatFunction(f if checked is None else checked, in_tree)
    paths = tree.path_names(tree.unflatten(in_tree, list(types))[0], "args")
    parts = [layout.part(t, s, p) for t, s, p in zip(types, specs, paths, strict=True)]
    with ExitStack() as names:
        for a in layout.names:
            names.enter_context(naming(a, layout.size[a]))
        of_part, known = (flat, []) if checked is None else _checked_part(flat, types, function_name(f))
        all_types = [*[typeof(x) for x in known], *parts]
        program, captured = hoist_constants(stage(of_part, all_types, function_name(f)))
        captured = (*captured, *known)
    out_tree = flat.out_tree
    skeleton = tree.unflatten(out_tree, list(program.out_types))
    outs = layout.specs(out_specs, skeleton, "out_specs", "result")
    for v, s, p in zip(program.outputs, outs, tree.path_names(skeleton, "result"), strict=True):
        if len(s) > len(v.type.shape):
            raise errors.InvalidArgument(
                f"shard_map: the spec of {p} has {len(s)} entries, but {function_name(f)} returned "
                f"{v.type}, {here()}"
            )
    k = len(captured)
    all_specs: list[Spec] = [*[()] * k, *specs]
    for a in reversed(layout.names):
        dims = tuple([0 if a in layout.used(s) else None for s in all_specs])
        forced = [a in layout.used(s) for s in outs]
        program, found = Batching(layout.size[a], a, (a,)).program(program, dims, forced)
        if any(d is not None and not w for d, w in zip(found, forced, strict=True)):
            program = _first(program, found, forced)

    def run(*values: Any) -> list[Any]:
        stacks = [
            layout.stacked(x, s) if i >= k else x
            for i, (x, s) in enumerate(zip(values, all_specs, strict=True))
        ]
        return [layout.merged(y, s) for y, s in zip(evaluate(program, stacks), outs, strict=True)]

    whole = stage(run, [*[typeof(x) for x in captured], *types], function_name(f))
    return whole, captured, out_tree


def _checked_part(flat: Any, types: Sequence[ArrayType], name: str) -> Any:
    try:
        return runtime.part_by_jax(flat, types)
    except ValueError as error:
        if "out_specs" not in str(error):
            raise
        problem, advice = f"the results of {name} do not fit out_specs", ""
        if "replication" in str(error):
            problem = f"a result of {name} may vary over a mesh axis that out_specs does not name"
            advice = (
                "Reduce it (lax.psum, lax.pmean over that axis), name the axis in out_specs, or pass "
                "check_vma=False to use the first value.\n"
            )
        raise errors.InvalidArgument(f"shard_map: {problem}, {here()}\n{advice}JAX says: {error}") from None


def _first(program: Program, dims: Sequence[int | None], forced: Sequence[bool]) -> Program:
    """Return the program with each batched result that is not forced reduced to its first entry."""

    def run(*values: Any) -> list[Any]:
        outs = evaluate(program, values)
        for i, (d, wanted) in enumerate(zip(dims, forced, strict=True)):
            if d is not None and not wanted:
                outs[i] = index_axis(outs[i], d, 0)
        return outs

    return stage(run, program.in_types, program.name)
