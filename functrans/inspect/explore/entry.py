"""One page that shows a function at every stage, side by side.

In: a function and arguments. Out: an HTML file that needs no network. `stages` collects the lines;
the page (page.html, page.css, page.js) draws only those in sight, so that its speed does not
depend on the program's length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from functrans import errors
from functrans import pytrees as tree
from functrans.api.programs import evaluate
from functrans.inspect.assets import asset, embedded, filled
from functrans.inspect.explore.stages import Lines, Stage, stages
from functrans.inspect.page import file_to_write
from functrans.inspect.profile.report import ProfileReport
from functrans.inspect.staged import check_given
from functrans.ir.program import Program
from functrans.ir.source import describe, user_source
from functrans.ir.tracebacks import boundary
from functrans.pytrees.functions import function_name
from functrans.typing import PyTree


@boundary
def explore(
    fun: Callable[..., PyTree], path: str | Path, *, profile: ProfileReport | None = None
) -> Callable[..., Path]:
    """Make a function that writes a page about `fun` instead of running it.

    The page shows the user's source, the program as traced, as differentiated or batched, after
    the passes of `jit`, and as StableHLO, side by side. Pointing at a line lights the lines of all
    stages that come from the same line of source, a click scrolls to them; equations are coloured
    by their cost; nested programs fold; a box searches all stages.

    Arguments:
      fun: function of pytrees of arrays; may itself be a transformed or jitted function; or a
        Program.
      path: the HTML file to write.
      profile: what `ft.profile` returned for the same function and arguments: source and optimised
        program are coloured by milliseconds too.

    Returns:
      A function of arrays, scalars, pytrees or `ft.ShapeDtypeStruct`s that returns the file's Path.
      The program as traced is shown where the function below is known, which a `vmap` hides.

    Raises:
      NotAnArray: `fun` is not a function.
      InvalidArgument: the path does not end in `.html`; the profile is of other types, or none.
      TypeMismatch: `fun` is a Program that takes other values.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp, tempfile
      >>> slope = ft.grad(lambda x: jnp.sin(x) * x)
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     page = explore(slope, folder + "/slope.html")(1.0)
      ...     page.name, "StableHLO" in page.read_text()
      ('slope.html', True)
    """
    check_given(fun, "explore")
    written = file_to_write(path, "the page", ".html")
    if not isinstance(profile, ProfileReport | None):
        raise errors.InvalidArgument(
            f"explore: profile= must be a report of ft.profile, got {profile!r:.60} of type "
            f"{type(profile).__qualname__}, at\n    {describe(user_source())}\n"
            "Write profile=ft.profile(f)(*args)."
        )
    shown = _running(fun) if isinstance(fun, Program) else fun

    @boundary
    def explored(*args: Any, **kwargs: Any) -> Path:
        made, lines = stages(shown, args, kwargs, profile)
        written.write_text(page(function_name(shown), made, lines), encoding="utf-8")
        return written

    return explored


def _running(program: Program) -> Callable[..., Any]:
    """A function that runs a program, by its name."""

    def run(*args: Any) -> list[Any]:
        return evaluate(program, tree.leaves(args))

    run.__qualname__ = program.name or "program"
    return run


def page(title: str, made: Sequence[Stage], lines: Lines) -> str:
    """The HTML of some stages."""
    return filled(
        asset(__package__, "page.html"), TITLE=escape(title), STYLE=asset(__package__, "page.css"),
        SCRIPT=asset(__package__, "page.js"), DATA=embedded(_data(made, lines)),
    )  # fmt: skip


def _data(made: Sequence[Stage], lines: Lines) -> dict[str, Any]:
    """Column by column: numbers take less room so."""
    hows: dict[str, int] = {}
    shown = []
    for s in made:
        columns = [list(c) for c in zip(*s.rows, strict=True)]
        columns[3] = [hows.setdefault(h, len(hows)) for h in columns[3]]
        shown.append({"name": s.name, "equations": s.equations, "columns": columns})
    places = [f"{file.rpartition('/')[2]}:{line}" for file, line in lines.numbers]
    return {"stages": shown, "hows": list(hows), "places": places}
