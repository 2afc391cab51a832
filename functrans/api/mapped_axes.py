"""`in_axes` and `out_axes` of `vmap` and `pmap`: checked, and expanded to one axis per leaf."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from functrans import errors
from functrans import pytrees as tree
from functrans.api.checks import check_callable, counted, here
from functrans.api.flat import function_name
from functrans.ir.types import ArrayType


class MappedAxes:
    """The axes over which the transformation `name` maps `fun`; checked on construction."""

    def __init__(self, name: str, fun: Any, in_axes: Any, out_axes: Any, axis_name: Any):
        check_callable(fun, name)
        self.name = name
        self.fun = fun
        self.in_axes: Any = tuple(in_axes) if isinstance(in_axes, list) else in_axes
        self.out_axes = out_axes
        if not (self.in_axes is None or isinstance(self.in_axes, (int, tuple))):
            raise errors.NotAnArray(
                f"{name}: in_axes must be an int, None or a tuple with one entry per argument, got "
                f"{in_axes!r}, {here()}"
            )
        for d in tree.leaves((in_axes, out_axes)):
            if not isinstance(d, int):
                raise errors.NotAnArray(
                    f"{name}: in_axes and out_axes must be ints or None, or pytrees of them, got "
                    f"{d!r}, {here()}"
                )
        try:
            hash(axis_name)
        except TypeError:
            raise errors.NotAnArray(
                f"{name}: axis_name must be hashable, got {axis_name!r:.80}, {here()}\n"
                f"One {name} names one axis: for several, nest vmaps."
            ) from None

    def __str__(self) -> str:
        return f"{self.name} of {function_name(self.fun)}"

    def of_arguments(
        self, args: tuple[Any, ...], kwargs: Any, static: Any = ()
    ) -> list[int | None]:
        """Return one axis per leaf of the dynamic arguments; `static`: positions of the others."""
        in_axes = self.in_axes
        dynamic = tuple([x for i, x in enumerate(args) if i not in static])
        if isinstance(in_axes, tuple):
            if len(in_axes) != len(args):
                raise errors.InvalidArgument(
                    f"{self}: in_axes={in_axes} has {counted(len(in_axes), 'entry', 'entries')} "
                    f"for {counted(len(args), 'positional argument')}, {here()}\n"
                    "Pass one entry per positional argument (None: not mapped). Keyword arguments "
                    "have no entry: they are mapped along axis 0."
                )
            in_axes = tuple([d for i, d in enumerate(in_axes) if i not in static])
        return self._spread((in_axes, 0), (dynamic, kwargs), "in_axes", in_axes, dynamic)

    def of_result(self, result: Any) -> list[int | None]:
        """Return one axis per leaf of the result."""
        return self._spread(self.out_axes, result, "out_axes", self.out_axes, result)

    def _spread(self, axes: Any, given: Any, what: str, shown: Any, of: Any) -> list[int | None]:
        """Expand a pytree prefix to one axis per leaf. None is a leaf of `axes`, not of `given`."""
        try:
            return tree.spread(axes, given, lambda x: x is None)
        except ValueError:
            raise errors.InvalidArgument(
                f"{self}: {what}={shown} is not a pytree prefix of the "
                f"{'result' if what == 'out_axes' else 'arguments'} "
                f"{tree.spelled(tree.structure(of))}, {here()}\n"
                "Pass one axis (or None) for all, or a pytree with the same containers, keys and "
                "lengths."
            ) from None

    def sizes(
        self, types: Sequence[ArrayType], dims: Sequence[int | None], names: Any,
        axis_size: int | None,
    ) -> tuple[list[int | None], int]:  # fmt: skip
        """Return the nonnegative axes, and the common size of all mapped axes. `names()` returns
        the names of the leaves."""
        front: list[int | None] = []
        sizes: dict[int, int] = {}
        for i, (t, d) in enumerate(zip(types, dims, strict=True)):
            if d is None:
                front.append(None)
                continue
            if not -t.ndim <= d < t.ndim:
                raise errors.InvalidArgument(
                    f"{self}: axis {d} of in_axes is out of range for {names()[i]} of type {t}, "
                    f"which has {counted(t.ndim, 'axis', 'axes')}, {here()}\n"
                    "Use None for an argument that is not mapped."
                )
            front.append(d % t.ndim)
            sizes[i] = t.shape[d]
        distinct = set(sizes.values()) | ({axis_size} if axis_size is not None else set())
        if not distinct:
            raise errors.InvalidArgument(
                f"{self} has no mapped argument, so the size of the axis is unknown, {here()}\n"
                "Map at least one argument, or pass axis_size=."
            )
        if len(distinct) > 1:
            known = names()
            shown = "\n".join(
                f"    {known[i]}: axis {front[i]} of {types[i]} has size {n}"
                for i, n in sizes.items()
            )
            given_size = f"\n    axis_size={axis_size}" if axis_size is not None else ""
            raise errors.BatchSizeMismatch(
                f"{self}: the mapped axes must have equal sizes, got\n{shown}{given_size}\n{here()}"
                "\nIn in_axes, give the axis of the examples, and None for arguments they share."
            )
        return front, distinct.pop()

    def placed(self, to: int, ndim: int) -> int:
        """Return an axis of `out_axes` as nonnegative, for a result with ndim axes."""
        if not -ndim <= to < ndim:
            raise errors.InvalidArgument(
                f"{self}: out_axes={to} is out of range for a result with "
                f"{counted(ndim, 'axis', 'axes')} (including the mapped one), {here()}\n"
                "Axes count from 0, and the mapped one counts too."
            )
        return to % ndim


def argument_names(args: tuple[Any, ...], kwargs: Any, static: Any = ()) -> list[str]:
    """Return the path names of the leaves of the dynamic arguments."""
    dynamic = [i for i in range(len(args)) if i not in static]
    positional = [n for i in dynamic for n in tree.path_names(args[i], f"args[{i}]")]
    return [*positional, *tree.path_names(kwargs, "kwargs")]
