"""Python callbacks inside programs.

    debug_callback  observes its operands; has no results
    pure_callback   computes its results from its operands; calls may be dropped or repeated
    io_callback     has results and a side effect

In: arrays on the host, as `jax.Array`s. Out: the results of `callback` (a `FlatCall`), checked
against `results`. Under `vmap` the callback is called once per example. `maps` records the mapped
operands; the calls are one loop in Python, not one operation per example.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
from jax.experimental import io_callback as io_callback_of_jax

from functrans import errors
from functrans import pytrees as tree
from functrans.caching import memoized
from functrans.ir.program import Program
from functrans.ir.source import Source, describe, location, user_source
from functrans.ir.types import ArrayType, is_key_dtype
from functrans.primitives.base import HigherOrderPrimitive, Params, Values
from functrans.primitives.shape.moving import broadcast_to_axis
from functrans.records import NamedTuple
from functrans.trace import state

# `(size, which operands are mapped)` per vmap, in order of application. The axes of an operand
# mapped by several are in reverse order of application, as are those of the results.
Maps = tuple[tuple[int, tuple[bool, ...]], ...]


class FlatCall:
    """A user's function of pytrees, called with the array leaves; the other leaves are static.

    It compares by identity and prints as `<name>`.
    """

    __slots__ = ("__weakref__", "called", "fun", "in_tree", "name", "static")

    def __init__(self, fun: Callable[..., Any], in_tree: Any, static: dict[int, Any], name: str):
        self.called: Source | None = user_source()
        self.fun: Callable[..., Any] = fun
        self.in_tree: Any = in_tree
        self.static: dict[int, Any] = static
        self.name: str = name

    def __call__(self, arrays: Sequence[Any]) -> list[Any]:
        rest = iter(arrays)
        n = len(arrays) + len(self.static)
        leaves = [self.static[i] if i in self.static else next(rest) for i in range(n)]
        args, kwargs = tree.unflatten(self.in_tree, leaves)
        return tree.leaves(self.fun(*args, **kwargs))

    @property
    def defined(self) -> str:
        """The location of the user's function."""
        code = getattr(inspect.unwrap(self.fun), "__code__", None)
        return self.name if code is None else location((code, 0, ""))

    def __repr__(self) -> str:
        return f"<{self.name}>"


class Callback(HigherOrderPrimitive):
    """Call a Python function. `results`: the types of its results; None: it has none, whatever it
    returns. Of the other parameters, which are `maps` and the user's, each of the three has some."""

    # It holds a Python function, not a Program. As a higher-order primitive its rules receive the
    # transformation, nothing is cached per signature, and it is not linearized on its own.
    runs_eagerly = True
    counted = False
    mergeable = False
    user_name = ""  # its name in messages
    kind = ""  # of its effect, "" for none; see `Calls`

    def abstract_eval(
        self,
        *types: ArrayType,
        callback: FlatCall,
        results: tuple[ArrayType, ...] | None = None,
        maps: Maps = (),
        ordered: bool = False,
        partitioned: bool = False,
        vmap_method: str | None = None,
        sharding: Any = None,
    ) -> Any:
        if any(len(mapped) != len(types) for _, mapped in maps):
            raise self.mismatch(types, f"maps={maps} must say for each operand whether it is mapped")
        front = tuple([size for size, _ in reversed(maps)])
        return [t.update(shape=(*front, *t.shape)) for t in results or ()]

    def lower(self, ctx: Any, *operands: Any, **params: Any) -> Any:
        def run(*arrays: Any) -> list[np.ndarray]:
            return call(arrays, self.user_name, params)

        types = [jax.ShapeDtypeStruct(t.shape, t.dtype) for t in ctx.out_types]
        return ctx.via_jax(lambda *xs: self.by_jax(run, types, *xs, **params), *operands)

    def by_jax(self, run: Callable[..., Any], types: Any, *xs: Any, **params: Any) -> Any:
        """Apply JAX's callback to values of JAX."""
        raise self.missing("lower")

    def interpret(self, run: Any, values: Values, params: Params) -> Any:
        with on_host() as cpu:
            return call(jax.device_put(list(values), cpu), self.user_name, params)

    def numpy_source(self, w: Any, *xs: Any, **params: Any) -> Any:
        raise w.unwritable()

    def run_eagerly(self, values: Values, params: Params) -> Any:
        """Run uncompiled on concrete arrays; the callback's own exceptions propagate."""
        found = self.interpret(None, values, params)
        return [jax.numpy.asarray(y) for y in found]

    def batch(self, t: Any, args: Any, dims: Any, *, maps: Maps = (), **params: Any) -> Any:
        """Add a loop over the examples."""
        mapped = tuple([d is not None for d in dims])
        args = [t.move(x, d, 0) for x, d in zip(args, dims, strict=True)]
        outs = self(*args, maps=(*maps, (t.size, mapped)), **params)
        return outs, [0] * len(outs)

    def differentiate(self, t: Any, primals: Any, tangents: Any, params: dict[str, Any]) -> Any:
        raise self.opaque("has no derivative", "custom_jvp or custom_vjp", params)

    def transpose_with(self, t: Any, ct: Any, args: Any, params: dict[str, Any]) -> Any:
        raise self.opaque("has no transpose", "custom_vjp", params)

    def opaque(self, lacks: str, fix: str, params: dict[str, Any]) -> Exception:
        return errors.OpaqueCallback(
            f"{self.user_name} of {params['callback'].name} {lacks}: what a Python function "
            f"computes is unknown, at\n    {self.where()}\n"
            f"Call it in a function with a custom rule ({fix}), or pass it stop_gradient(x)."
        )

    def has_effects(self, params: dict[str, Any]) -> bool:
        return bool(self.kind)

    def calls(self, params: dict[str, Any]) -> Calls:
        ordered = bool(params.get("ordered"))
        effect = f"ordered {self.kind}" if ordered else self.kind
        return Calls(True, frozenset([effect] if effect else ()), ordered)

    def called(self, params: dict[str, Any]) -> str:
        return f"{self.user_name} of {params['callback'].name}"

    def where(self) -> str:
        """Describe the user's line of the call, as far as the running transformation knows it."""
        source = state.provenance[0] if state.provenance is not None else None
        return describe(source or user_source())


class DebugCallback(Callback):
    """Pass operands to a Python function. It has no effect on derivatives."""

    name: str = "debug_callback"
    user_name: str = "debug.callback"
    kind: str = "debug"
    linear_from: int | None = 0  # it has no results

    def by_jax(
        self, run: Any, _: Any, *xs: Any, ordered: Any = False, partitioned: Any = False, **params: Any
    ) -> Any:
        return jax.debug.callback(run, *xs, ordered=ordered, partitioned=partitioned)

    def differentiate(self, t: Any, primals: Any, tangents: Any, params: dict[str, Any]) -> Any:
        return t.bind_primal(self, primals, params), []

    def transpose_with(self, t: Any, ct: Any, args: Any, params: dict[str, Any]) -> Any:
        return [None] * len(args)


class PureCallback(Callback):
    """Compute results by a Python function without side effects."""

    name = user_name = "pure_callback"

    def run_eagerly(self, values: Values, params: Params) -> Any:
        """Skip the call if there are no results."""
        return super().run_eagerly(values, params) if params["results"] else []

    def by_jax(self, run: Any, types: Any, *xs: Any, sharding: Any = None, **params: Any) -> Any:
        return jax.pure_callback(run, types, *xs, sharding=sharding)

    def batch(self, t: Any, args: Any, dims: Any, **params: Any) -> Any:
        """Batch by `vmap_method`: a loop, or one call on arrays with a batch axis. The batch axis may
        be an axis of a mesh, in `shard_map`: then each device calls it with its own part."""
        method = params.get("vmap_method")
        of_devices = method is None and t.spmd_axis_name == (t.axis_name,)
        if of_devices or method in ("sequential", "sequential_unrolled"):
            return super().batch(t, args, dims, **params)
        if method is None:
            raise errors.MissingRule(
                f"pure_callback of {params['callback'].name} is vmapped, but has no vmap_method, "
                f"at\n    {self.where()}\nPass vmap_method='sequential' (one call per example), "
                "'expand_dims' or 'broadcast_all' (one call with an extra leading axis)."
            )
        size = {"expand_dims": 1, "broadcast_all": t.size}.get(method)
        args = [
            t.move(x, d, 0) if d is not None or size is None else broadcast_to_axis(x, 0, size)
            for x, d in zip(args, dims, strict=True)
        ]
        results = tuple([r.update(shape=(t.size, *r.shape)) for r in params["results"]])
        outs = self(*args, **{**params, "results": results})
        return outs, [0] * len(outs)


class IoCallback(Callback):
    """Compute results by a Python function with side effects."""

    name = user_name = "io_callback"
    kind = "io"

    def by_jax(
        self, run: Any, types: Any, *xs: Any, ordered: bool = False, sharding: Any = None, **params: Any
    ) -> Any:
        return io_callback_of_jax(run, types, *xs, sharding=sharding, ordered=ordered)

    def batch(self, t: Any, args: Any, dims: Any, **params: Any) -> Any:
        if params.get("ordered"):
            raise errors.InvalidArgument(
                f"io_callback of {params['callback'].name} is vmapped, but it is ordered, at\n"
                f"    {self.where()}\nThe examples of a vmap have no order: leave out ordered=True."
            )
        return super().batch(t, args, dims, **params)


debug_callback: DebugCallback = DebugCallback()
pure_callback: PureCallback = PureCallback()
io_callback: IoCallback = IoCallback()


# --- calling --------------------------------------------------------------------------------------


@contextmanager
def on_host() -> Iterator[Any]:
    """Make the CPU, on which callbacks receive and create arrays, the default device."""
    cpu = jax.local_devices(backend="cpu")[0]
    with jax.default_device(cpu):
        yield cpu


def call(arrays: Sequence[Any], user_name: str, params: dict[str, Any]) -> list[np.ndarray]:
    """Call a callback on host arrays, once or once per example, and return its results."""
    callback, results = params["callback"], params.get("results")
    maps: Maps = params.get("maps", ())

    def once(given: Sequence[Any]) -> list[np.ndarray]:
        outs = callback(given)
        return [] if results is None else checked(outs, results, user_name, callback)

    if not maps:
        return once(arrays)
    stores = [x if is_key_dtype(x.dtype) else np.asarray(x) for x in arrays]
    places = [[k for k in reversed(range(len(maps))) if maps[k][1][i]] for i in range(len(stores))]
    sizes = [size for size, _ in maps]
    made = [np.empty((*sizes[::-1], *t.shape), t.dtype) for t in results or ()]
    indices = list(itertools.product(*map(range, sizes)))  # that of the last vmap varies fastest
    examples = [
        [x[tuple([index[k] for k in at])] for x, at in zip(stores, places, strict=True)] for index in indices
    ]
    for index, given in zip(indices, jax.device_put(examples), strict=True):
        for out, y in zip(made, once(given), strict=True):
            out[index[::-1]] = y
    return made


def checked(
    outs: Sequence[Any], results: Sequence[ArrayType], user_name: str, callback: Any
) -> list[np.ndarray]:
    """Return a callback's results as NumPy arrays; raise unless they have the declared types."""
    arrays = [np.asarray(y) for y in outs]
    arrays = [y.astype(jax.dtypes.canonicalize_dtype(y.dtype), copy=False) for y in arrays]
    given = [ArrayType(y.shape, y.dtype) for y in arrays]
    if len(given) == len(results) and all(map(ArrayType.same, given, results)):
        return arrays
    promised, found = (", ".join(map(str, types)) or "nothing" for types in (results, given))
    raise errors.CallbackResult(
        f"{user_name} of {callback.name}, defined at {callback.defined}, returned ({found}), but "
        f"result_shape_dtypes promises ({promised}), at\n    {describe(callback.called)}\n"
        "Return arrays of these shapes and dtypes: numpy.asarray(y, dtype)."
    )


# --- effects --------------------------------------------------------------------------------------


class Calls(NamedTuple):
    """How a program and its nested programs call Python."""

    any: bool  # it calls Python, or must be lowered for known devices
    effects: frozenset[Any]  # "debug", "ordered debug", "io", "ordered io", or effects of JAX
    ordered: bool  # some of the effects are ordered


@memoized
def calls_of(program: Program) -> Calls:
    """Return the Python calls in a program, including nested ones."""
    own = [e.primitive.calls(e.params) for e in program.equations]
    parts = [p for p in (*own, *map(calls_of, program.children)) if p is not None]
    effects = frozenset().union(*[p.effects for p in parts])
    return Calls(any(p.any for p in parts), effects, any(p.ordered for p in parts))


def refuse_io(programs: Iterable[Program], where: str) -> None:
    """Raise if a program that will run more often than the user's function does calls `io_callback`."""
    if any(effect in ("io", "ordered io") for p in programs for effect in calls_of(p).effects):
        raise errors.MissingRule(
            f"io_callback in {where} would be called where the function as written does not call it, "
            f"at\n    {io_callback.where()}\nCall it outside, or use debug.callback instead."
        )
