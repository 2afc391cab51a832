"""`custom_jvp`, `custom_vjp` and `custom_vmap`: custom derivative and batching rules."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, ParamSpec, TypeVar

import jax

from functrans import errors
from functrans import pytrees as tree
from functrans.api.arguments import as_array, check_callable
from functrans.api.custom_calls import JvpCall, VjpCall, unflatten
from functrans.api.static_arguments import StaticArguments
from functrans.backends import xla
from functrans.ir.source import brief, here
from functrans.ir.tracebacks import boundary
from functrans.lax.staging import or_by_jax
from functrans.numpy.ufuncs import add
from functrans.primitives.custom.calls import BatchRule, custom_vmap_call
from functrans.primitives.custom.tracing import staged_call
from functrans.pytrees.functions import FlatFunction, function_name, where_defined
from functrans.runtime import F
from functrans.trace import state
from functrans.typing import PyTree

_P = ParamSpec("_P")
_R = TypeVar("_R")


class CustomFunction(Generic[_P, _R]):
    """A function with a custom rule: the base class of the decorators."""

    _kind = ""
    _how = ""  # the method that defines the rule

    @boundary
    def __init__(
        self,
        fun: Callable[_P, _R],
        nondiff_argnums: Sequence[int] = (),
        nondiff_argnames: str | Iterable[str] = (),
    ):
        check_callable(fun, self._kind)
        functools.update_wrapper(self, fun)  # type: ignore[arg-type]
        self.fun: Callable[..., _R] = fun
        self.rules: tuple[Callable[..., Any] | None, ...] = ()  # the functions that make up its rule
        given = StaticArguments(fun, nondiff_argnums, nondiff_argnames, "nondiff")
        self.nondiff_argnums: tuple[int, ...] = tuple(sorted(given.numbers))

    def __getattr__(self, name: str) -> Any:
        # a custom_vjp of a custom_vmap, ours or JAX's, has `def_vmap` too
        inner = self.__dict__.get("fun")
        if (isinstance(inner, CustomFunction) or name.startswith("def")) and hasattr(inner, name):
            return getattr(inner, name)
        raise AttributeError(f"{type(self).__name__} object has no attribute {name!r}")

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        """The signature of the function itself."""
        return inspect.signature(self.fun)

    def positional(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Return all arguments by position, with defaults filled in."""
        if isinstance(self.fun, functools.partial) and not kwargs:
            return args  # a partial's signature does not show the positions
        try:
            bound = self.signature.bind(*args, **kwargs)
            bound.apply_defaults()
            named = [k for k in bound.kwargs if k in kwargs]
            if named:
                raise TypeError(f"keyword-only arguments: {', '.join(named)}")
        except TypeError as error:
            raise errors.MissingArgument(
                f"the arguments of the {self._kind} function {function_name(self.fun)} cannot be "
                f"passed by position: {error}, {here()}\n"
                "Custom rules are called with positional arguments only."
            ) from None
        return bound.args

    def undefined(self) -> Exception:
        return errors.MissingCustomRule(
            f"the {self._kind} function {function_name(self.fun)} was called before its rule was "
            f"defined, {here()}\nDefine it with {self._how}."
        )


class CustomDerivative(CustomFunction[_P, _R]):
    _call: Any  # JvpCall, VjpCall
    symbolic_zeros: bool = False

    def _by_jax(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        made: Any = getattr(jax, self._kind)(self.fun, self.nondiff_argnums)
        define = made.defjvp if self._kind == "custom_jvp" else made.defvjp
        define(*self.rules, symbolic_zeros=self.symbolic_zeros)
        return made(*self.positional(args, kwargs))

    @boundary
    @or_by_jax(_by_jax, typed=False)
    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        if not self.rules or None in self.rules:
            raise self.undefined()
        at_once = state.trace is None and xla.is_outermost()
        if at_once and not kwargs:
            return self.fun(*args)
        given = self.positional(args, kwargs)
        if at_once:
            return self.fun(*given)
        return self._call(self.fun, *self.rules, self.symbolic_zeros, given, self.nondiff_argnums).bind()


class custom_jvp(CustomDerivative[_P, _R]):
    """Give a function a custom JVP rule.

    Arguments:
      fun: function of pytrees of arrays.
      nondiff_argnums, nondiff_argnames: arguments that are not differentiated, such as functions
        and options; the rule receives them first.

    Returns:
      A function like `fun`, with `defjvp` and `defjvps`. Its derivatives, in forward and reverse
      mode, use the rule; the rule may itself be differentiated.

    Raises:
      MissingCustomRule: it is called before its rule is defined.
      RuleMismatch: the rule returns a different structure, or tangents of different types.
      ClosedOverTracer: it is differentiated with respect to a value that `fun` closes over.

    Source: `jax.custom_jvp`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> @ft.custom_jvp
      ... def log1pexp(x):
      ...     return jnp.log(1.0 + jnp.exp(x))
      >>> @log1pexp.defjvp
      ... def log1pexp_jvp(primals, tangents):
      ...     (x,), (dx,) = primals, tangents
      ...     return log1pexp(x), (1.0 - 1.0 / (1.0 + jnp.exp(x))) * dx
      >>> print(ft.grad(log1pexp)(100.0))
      1.0
    """

    _kind = "custom_jvp"
    _how = "defjvp or defjvps"
    _call = JvpCall
    jvp: Callable[..., Any] | None = None

    def defjvp(self, jvp: F, symbolic_zeros: bool = False) -> F:
        """Define the JVP rule.

        Arguments:
          jvp: `jvp(*nondiff args, primals, tangents) -> (primal output, tangent output)`, linear in
            the tangents.
          symbolic_zeros: pass a zero tangent as a `SymbolicZero` instead of an array; the rule may
            return them too.

        Returns:
          `jvp`, so that this method can be used as a decorator.

        Source: `jax.custom_jvp.defjvp`.
        """
        (self.jvp,) = self.rules = (jvp,)
        self.symbolic_zeros = symbolic_zeros
        return jvp

    def defjvps(self, *jvps: Callable[..., PyTree] | None) -> None:
        """Define the JVP rule by one function per argument.

        Arguments:
          *jvps: for each argument `jvp(tangent, primal output, *primals) -> tangent output`, or
            None where the derivative is zero.

        Source: `jax.custom_jvp.defjvps`.

        Example:
          >>> import functrans as ft, functrans.numpy as jnp
          >>> f = ft.custom_jvp(lambda x, y: jnp.sin(x) * y)
          >>> f.defjvps(lambda dx, out, x, y: jnp.cos(x) * dx * y,
          ...           lambda dy, out, x, y: jnp.sin(x) * dy)
          >>> print(ft.grad(f, 1)(0.0, 2.0))
          0.0
        """
        if self.nondiff_argnums:
            raise errors.NotSupported(
                "defjvps has a rule for every argument, so it cannot be used with nondiff_argnums="
                f"{self.nondiff_argnums}, {here()}\nUse defjvp."
            )

        whole: Callable[..., _R] = self

        def jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
            out = whole(*primals)
            rules = [(rule, dx) for dx, rule in zip(tangents, jvps, strict=True) if rule is not None]
            if not rules:
                return out, tree.map(lambda y: as_array(y) * 0, out)
            moved = [rule(dx, out, *primals) for rule, dx in rules]
            return out, functools.reduce(functools.partial(tree.map, add), moved)

        self.defjvp(jvp)


class custom_vjp(CustomDerivative[_P, _R]):
    """Give a function a custom VJP rule.

    Unlike in JAX, forward mode works too: the bwd rule is linear in the cotangent, and `jvp`,
    `jacfwd` and `hessian` run its transpose.

    Arguments:
      fun: function of pytrees of arrays.
      nondiff_argnums, nondiff_argnames: arguments that are not differentiated, such as functions
        and options, not arrays; bwd receives them first.

    Returns:
      A function like `fun`, with `defvjp`.

    Raises:
      MissingCustomRule: it is called before its rule is defined.
      RuleMismatch: fwd or bwd returns the wrong structure.
      CotangentMismatch: bwd returns a cotangent whose type does not match its argument.
      NotLinear: in forward mode, bwd is not linear in the cotangent.
      ClosedOverTracer: it is differentiated with respect to a value that `fun` closes over.

    Source: `jax.custom_vjp`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> @ft.custom_vjp
      ... def clip_gradient(x):
      ...     return x
      >>> clip_gradient.defvjp(lambda x: (x, None), lambda _, g: (jnp.clip(g, -1.0, 1.0),))
      >>> print(ft.grad(lambda x: clip_gradient(x) ** 2)(3.0))
      1.0
    """

    _kind = "custom_vjp"
    _how = "defvjp"
    _call = VjpCall
    fwd: Callable[..., Any] | None = None
    bwd: Callable[..., Any] | None = None

    def defvjp(
        self,
        fwd: Callable[..., PyTree],
        bwd: Callable[..., PyTree],
        symbolic_zeros: bool = False,
        optimize_remat: bool = False,
        generic_batching: bool = False,
    ) -> None:
        """Define the VJP rule.

        Arguments:
          fwd: `fwd(*args) -> (output, residuals)`; the residuals are a pytree of arrays.
          bwd: `bwd(*nondiff args, residuals, ct) -> tuple of cotangents`, one per differentiated
            argument, with its structure and types; None for zeros.
          symbolic_zeros: pass fwd a `CustomVJPPrimal(value, perturbed)` for each array, and bwd a
            `SymbolicZero` for each zero cotangent.
          optimize_remat: accepted and ignored: this optimization is always on.
          generic_batching: accepted and ignored: a cotangent that examples of a `vmap` share counts once,
            whether or not JAX, which has the option since 0.12, is told so.

        Source: `jax.custom_vjp.defvjp`.
        """
        if symbolic_zeros and optimize_remat:
            raise errors.MissingRule(f"optimize_remat cannot be combined with symbolic_zeros, {here()}")
        self.fwd, self.bwd = self.rules = fwd, bwd
        self.symbolic_zeros = symbolic_zeros


class custom_vmap(CustomFunction[_P, _R]):
    """Give a function a custom batching rule.

    Unlike in JAX, reverse mode is supported: it differentiates the function itself.

    Arguments:
      fun: function of pytrees of arrays.

    Returns:
      A function like `fun`, with `def_vmap`.

    Raises:
      MissingCustomRule: it is called before its rule is defined.
      BatchRuleMismatch: the rule returns a different structure, or results of different types.
      ClosedOverTracer: `fun` closes over a batched value.

    Source: `jax.custom_batching.custom_vmap`.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> @ft.custom_batching.custom_vmap
      ... def f(x, y):
      ...     return x + y
      >>> @f.def_vmap
      ... def f_vmap(axis_size, in_batched, xs, ys):
      ...     return xs * ys, True
      >>> print(ft.vmap(f)(jnp.arange(3), jnp.arange(1, 4)))
      [0 2 6]
    """

    _kind = "custom_vmap"
    _how = "def_vmap"

    def __init__(self, fun: Callable[_P, _R]):
        super().__init__(fun)
        self.vmap_rule: Callable[..., Any] | None = None

    def def_vmap(self, vmap_rule: F) -> F:
        """Define the batching rule.

        Arguments:
          vmap_rule: `vmap_rule(axis_size, in_batched, *args) -> (out, out_batched)`. Batched arrays
            have the batch axis first; `in_batched` (a list, one pytree per argument) and
            `out_batched` hold a boolean per array: whether it is batched.

        Returns:
          `vmap_rule`, so that this method can be used as a decorator.

        Source: `jax.custom_batching.custom_vmap.def_vmap`.
        """
        self.vmap_rule = vmap_rule
        return vmap_rule

    @boundary
    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        if self.vmap_rule is None:
            raise self.undefined()
        given = self.positional(args, kwargs)
        leaves, in_tree = tree.flatten((given, {}))
        flat = FlatFunction(self.fun, in_tree)
        if state.trace is None and xla.is_outermost():
            outs = flat(*[as_array(x) for x in leaves])
            return tree.unflatten(flat.out_tree, [as_array(y) for y in outs])
        program, captured = staged_call(flat, leaves, function_name(self.fun))
        rule = _flat_rule(self.vmap_rule, self.fun, in_tree, flat.out_tree)
        outs = custom_vmap_call(*captured, *leaves, program=program, rule=rule, n_consts=len(captured))
        return tree.unflatten(flat.out_tree, outs)


def _flat_rule(rule: Any, fun: Any, in_tree: Any, out_tree: Any) -> BatchRule:
    def flat(size: int, batched: Sequence[bool], values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        args, _ = unflatten(in_tree, values)
        in_batched, _ = tree.unflatten(in_tree, batched)
        found = rule(size, list(in_batched), *args)
        if not isinstance(found, (tuple, list)) or len(found) != 2:
            raise mismatch(f"a pair (output, out_batched), got {brief(found)}")
        outs, structure = tree.flatten(found[0])
        out_batched, batched_structure = tree.flatten(found[1])
        for what, have in (("an output", structure), ("out_batched", batched_structure)):
            if have != out_tree:
                what += f" with the structure of the function's output, {out_tree}"
                raise mismatch(f"{what}, got {have}")
        return [as_array(y) for y in outs], out_batched

    def mismatch(what: str) -> Exception:
        return errors.BatchRuleMismatch(
            f"{function_name(rule)}, the vmap rule of {function_name(fun)}, must return {what}. "
            f"It is defined at {where_defined(rule)}"
        )

    return BatchRule(flat, function_name(fun))
