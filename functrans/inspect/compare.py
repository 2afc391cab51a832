"""`compare`: find the equation, and the user line, that XLA computes differently.

In: a function (or Program) and arguments. Out: a `Report`. The program that `jit` would run is run
three times:

    XLA, one equation at a time   each result is compared with the reference on the same operands,
                                  so that an error is attributed to the equation that causes it
    the reference in float64      on its own values: the accumulated error of the first run
    compiled                      only the results are compared

Loops, branches and calls are entered (inspect/observers.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from functrans import errors
from functrans import pytrees as tree
from functrans.api.jit import jit_options
from functrans.api.static_arguments import Staged
from functrans.backends import reference, xla
from functrans.backends.reference import as_numpy
from functrans.flags import unchecked
from functrans.inspect.closeness import by_float64, judge, plain, relative, rounding, ulps, widened
from functrans.inspect.drift import Drift
from functrans.inspect.observers import Place, by_xla, observe, value_of
from functrans.inspect.page import ROWS
from functrans.inspect.report import Finding, Report, Result
from functrans.inspect.staged import check_given, check_values, staged, summary
from functrans.ir.program import Equation, Literal, Program, Var
from functrans.ir.source import here
from functrans.ir.text import nested
from functrans.ir.tracebacks import boundary
from functrans.ir.types import is_inexact, same_types
from functrans.passes.pipeline import DEFAULT, Choice
from functrans.trace import typeof
from functrans.typing import PyTree

DESCRIBED_LATER = 2**16  # up to this many result elements are kept, to format a finding later
IN_TURN = 32  # equations that XLA runs in the background before the reference checks them: waking
# XLA's threads for each one would take as long as running it


@boundary
def compare(
    fun: Callable[..., PyTree] | Program,
    *,
    against: Callable[..., PyTree] | Program | None = None,
    passes: Choice | None = None,
    compiled: bool = True,
) -> Callable[..., Report]:
    """Return a function that runs `fun` by XLA and by the reference, and reports where they differ.

    Arguments:
      fun: function of pytrees of arrays, which may be jitted, a gradient, ...; or a Program.
      against: another function or Program of the same arguments, for the reference to run instead
        of `fun`. If both programs have the same number of equations with the same result types, as
        after a small edit, they are compared equation by equation on the operands that XLA
        computed; otherwise only by their results.
      passes: as in `ft.jit`; left out: those of `fun` if it is jitted, else all.
      compiled: also compile and run the whole program.

    Returns:
      A function of the arguments of `fun` that returns a printable `Report`: `report.ok`,
      `report.first` (the first equation whose error is above its tolerance), `report.worst`,
      `report.amplified`, `report.results`, `report.save("x.html")`, `report.save("x.json")`. The
      tolerances, in ULPs widened by the conditioning of the operation, are explained in
      `inspect/closeness.py`. Python callbacks are called once per run.

    Raises:
      TypeMismatch: the arguments do not match the Program `fun`, or the result shapes of `against`
        differ.
      NotAnArray: `fun` is not a function; an argument has no concrete value.
      InvalidArgument: `passes` has an unknown name.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> report = ft.compare(lambda x: jnp.sum(jnp.sin(x) * x))(jnp.arange(3.0))
      >>> report.ok, report.first is None
      (True, True)
      >>> edited = ft.ir.parse("program (a: f32[3]) { b: f32[3] = cos a; return b }")
      >>> report = ft.compare(edited, against=jnp.sin)(jnp.arange(3.0))
      >>> report.ok, report.first.equation
      (False, 'b: f32[3] = cos a')
    """
    check_given(fun, "compare")
    if against is not None:
        check_given(against, "compare", "against")
    known: dict[Any, Staged] = {}  # so that a second call compiles nothing

    @boundary
    @unchecked()
    def compared(*args: Any, **kwargs: Any) -> Report:
        made = _staged(known, fun, args, kwargs, passes)
        check_values(made.leaves, "compare")
        other = None
        if against is not None:
            other = staged(against, args, kwargs, None, DEFAULT).program
            _check_results(made.program, other)
        return _Comparison(made.program, made.leaves, other).report(compiled)

    return compared


def _staged(
    known: dict[Any, Staged], fun: Any, args: tuple[Any, ...], kwargs: dict[str, Any], passes: Choice | None
) -> Staged:
    """Call `staged`, with its program cached per signature."""
    leaves, in_tree = tree.flatten((args, kwargs))
    if isinstance(fun, Program) or jit_options(fun) is not None:
        return staged(fun, args, kwargs, passes, DEFAULT)
    key = (in_tree, *[typeof(x) for x in leaves])
    if key not in known:
        known[key] = staged(fun, args, kwargs, passes, DEFAULT)._replace(leaves=[])
    return known[key]._replace(leaves=leaves)


def _check_results(program: Program, other: Program) -> None:
    mine, its = program.out_types, other.out_types
    if [t.shape for t in mine] != [t.shape for t in its]:
        texts = [", ".join(map(str, types)) for types in (mine, its)]
        raise errors.TypeMismatch(
            f"compare: fun returns {len(mine)} arrays, ({texts[0]}), but against returns "
            f"{len(its)}, ({texts[1]}), {here()}\n"
            "Results are compared in the order of their leaves and must have equal shapes."
        )


class _Comparison:
    def __init__(self, program: Program, values: Sequence[Any], other: Program | None):
        self.program = program
        self.values = values
        self.other = program if other is None else other
        self.twins: Twins | None = {} if other is None else _twins(program, other)
        self.first: Finding | None = None
        self.scores: dict[Equation, float] = {}
        self.worst: dict[Equation, Callable[[], Finding]] = {}  # at most ROWS
        self.count = 0
        self.waiting: list[tuple[Any, ...]] = []  # to be checked while XLA computes
        self.drift = Drift(other is None)

    @np.errstate(all="ignore")
    def report(self, compiled: bool) -> Report:
        aligned = self.twins is not None
        stepwise = observe(self.program, self.values, by_xla, after=self._check, keep=bool(self.twins))
        self._judge_waiting()
        exact = observe(
            self.other, self.values, by_float64, after=self.drift.follow if aligned else None, given=widened
        )
        whole = stepwise
        if compiled:
            p = self.program
            args = [as_numpy(x, v.type) for x, v in zip(self.values, p.inputs, strict=True)]
            whole = xla.executable(p)(*p.values, *args)
        results = self._results(whole, stepwise, exact)
        if compiled and self.first is None and not all(r.ok for r in results):
            observe(self.program, self.values, by_xla, after=self._check_whole)
        worst = sorted(self.worst, key=self.scores.__getitem__, reverse=True)
        return Report(
            self.program,
            self.first,
            [self.worst[e]() for e in worst],
            self.drift.growth(self.other),
            results,
            self.count,
            self.drift.curve,
            self.drift.parted,
            compiled,
            aligned,
        )

    def _results(self, whole: Sequence[Any], stepwise: Sequence[Any], exact: Sequence[Any]) -> list[Result]:
        """Return the verdicts on the results. The reference at the same dtypes is run only if they
        are not clearly right without it."""
        trusted = self.first is None and self.other is self.program
        types = self.program.out_types

        def against(same: Sequence[Any]) -> list[Result]:
            each = zip(types, whole, stepwise, same, exact, strict=True)
            return [_result(i, t, trusted, *ys) for i, (t, *ys) in enumerate(each)]

        results = against([None] * len(types))
        if all(r.ok for r in results):
            return results
        return against(reference.run(self.other, self.values))

    def _check(self, place: Place, values: list[Any], outs: Sequence[Any]) -> None:
        """Queue one equation of XLA's run for comparison with the reference."""
        eqn = place.equation
        twin, operands = eqn, values
        if self.twins and eqn in self.twins:
            twin, names = self.twins[eqn]
            mine = [names.get(v, v) for v in twin.inputs]
            operands = [value_of(v, place.frame.env) if isinstance(v, Var | Literal) else v for v in mine]
        inside = eqn.primitive.holds_programs and (
            twin is eqn or _same_but_programs(eqn, values, twin, operands)
        )  # if so, its inner equations are compared instead
        self.waiting.append((place, None if inside else twin, operands, outs))
        if len(self.waiting) >= IN_TURN:
            self._judge_waiting()

    def _judge_waiting(self) -> None:
        waiting, self.waiting = self.waiting, []
        for one in waiting:
            self._judge(*one)

    def _judge(self, place: Place, twin: Equation | None, operands: list[Any], outs: Sequence[Any]) -> None:
        """Compare an equation's results. `twin`: the equation for the reference; None: skip it."""
        self.drift.remember(place, outs)
        if twin is None:
            return
        eqn = place.equation
        self.count += 1
        verdict = judge(twin, operands, outs)
        score = verdict.ulps if verdict.right else np.inf
        if score > self.scores.get(eqn, 0.0):
            self._note(eqn, score, place, outs, verdict)
        if self.first is None and not verdict.right:
            self.first = self.worst[eqn]()

    def _note(self, eqn: Equation, score: float, place: Place, outs: Sequence[Any], verdict: Any) -> None:
        """Record one of the worst equations. Formatting a finding costs more than comparing, so it
        is deferred until the final list is known."""
        if len(self.worst) >= ROWS and eqn not in self.worst:
            least = min(self.worst, key=self.scores.__getitem__)
            if self.scores[least] >= score:
                return
            del self.worst[least]
        self.scores[eqn] = score
        describe = partial(_finding, place, outs, verdict)
        if sum([v.type.size for v in eqn.outputs]) > DESCRIBED_LATER:
            made = describe()
            self.worst[eqn] = lambda: made
        else:
            self.worst[eqn] = describe

    def _check_whole(self, place: Place, values: list[Any], outs: Sequence[Any]) -> None:
        """Compare an equation that holds programs, compiled, with its inner equations run one by one."""
        eqn = place.equation
        if self.first is not None or not eqn.programs or any(place.steps):
            return
        whole = by_xla(eqn, values)
        for y, x, v in zip(whole, outs, eqn.outputs, strict=True):
            y, x = plain(y), plain(x)
            if not _near(y, x, relative(y, x), [], v.type):
                error = float(ulps(y, x).max(initial=0.0))
                self.first = Finding.of(
                    place,
                    error,
                    0.0,
                    summary(y, v.type),
                    summary(x, v.type),
                    "compiled as a whole it differs from its own equations run one by one",
                )
                return


def _finding(place: Place, outs: Sequence[Any], verdict: Any) -> Finding:
    types = [v.type for v in place.equation.outputs]
    errors = [
        float(ulps(plain(y), plain(r)).max(initial=0.0)) for y, r in zip(outs, verdict.expected, strict=True)
    ]
    k = int(np.argmax(errors)) if errors else 0
    return Finding.of(
        place, verdict.ulps, verdict.limit, summary(outs[k], types[k]), summary(verdict.expected[k], types[k])
    )


# --- results --------------------------------------------------------------------------------------


def _result(i: int, t: Any, trusted: bool, whole: Any, stepwise: Any, same: Any, exact: Any) -> Result:
    """Return the verdict on one result of the whole program. `trusted`: each equation of the
    stepwise run was right, so its error shows the effect of rounding."""
    error = relative(whole, exact)
    by_steps = error if stepwise is whole else relative(stepwise, exact)
    by_reference = None if same is None else relative(same, exact)
    others = [(stepwise, by_steps)] if trusted else []
    others += [] if by_reference is None else [(same, by_reference)]
    return Result(i, str(t), _near(whole, exact, error, others, t), error, by_steps, by_reference)


_SLACK = 16.0  # allowed factor between the rounding errors of different orders of evaluation


def _near(y: Any, exact: Any, error: float, others: Sequence[tuple[Any, float]], t: Any) -> bool:
    """Return whether a result is about as close to the exact one as other evaluations are. `error`:
    its error; others: their results and errors."""
    y = plain(y)
    if not is_inexact(y.dtype):
        return any(np.array_equal(y, plain(x)) for x in (exact, *[x for x, _ in others]))
    scale = rounding(t.dtype)
    usual = max([scale, *[_SLACK * its for _, its in others]])
    return error <= usual or any(relative(y, x) <= scale for x, _ in others)


# --- two programs of the same shape ---------------------------------------------------------------

Twins = dict[Equation, tuple[Equation, dict[Any, Any]]]


def _twins(program: Program, other: Program) -> Twins | None:
    """Map each equation to its counterpart in the other program, with a map from that program's
    variables to this one's; None if the programs do not have the same shape."""
    found: Twins = {}
    todo = [(program, other)]
    seen = set()
    while todo:
        p, q = todo.pop()
        if (p, q) in seen:
            continue
        seen.add((p, q))
        if len(p.equations) != len(q.equations) or not same_types(p.in_types, q.in_types):
            return None
        names: dict[Any, Any] = dict(zip(q.inputs, p.inputs, strict=True))
        names.update(_constants(p, q))
        for e, twin in zip(p.equations, q.equations, strict=True):
            inside = [x.programs for x in (e, twin)]
            mine, its = ([v.type for v in x.outputs] for x in (e, twin))
            if not same_types(mine, its) or len(inside[0]) != len(inside[1]):
                return None
            found[e] = twin, names
            names.update(zip(twin.outputs, e.outputs, strict=True))
            todo += zip(*inside, strict=True)
    return found


def _same_but_programs(e: Equation, values: Any, twin: Equation, operands: Any) -> bool:
    """Return whether two equations differ only in the programs that they hold."""
    inside = {name for x in (e, twin) for name, v in x.params.items() if nested({name: v})}
    mine, its = ({k: v for k, v in x.params.items() if k not in inside} for x in (e, twin))
    same = e.primitive is twin.primitive and mine == its
    pairs = zip(values, operands, strict=True)
    return same and all(_equal(x, y) for x, y in pairs)


def _constants(p: Program, q: Program) -> dict[Any, Any]:
    """Map the constants of q to equal constants of p, or to their values where p has none."""
    found: dict[Any, Any] = {}
    known = list(zip(p.constants, p.values, strict=True))
    for i, (v, y) in enumerate(zip(q.constants, q.values, strict=True)):
        likely = [*known[i : i + 1], *known]
        same = (w for w, x in likely if w.type.same(v.type) and _equal(x, y))
        found[v] = next(same, None) or as_numpy(y, v.type)
    return found


def _equal(x: Any, y: Any) -> bool:
    return x is y or plain(x).tobytes() == plain(y).tobytes()
