"""A program as NumPy source.

In: a Program. Out: the text of a file that needs NumPy alone (SciPy and ml_dtypes where the program
does) and computes the same numbers.

    naming, comments   the user's names and lines
    writer, signature  programs as functions; what a primitive's `numpy_source` is given
    specialise         reference functions as source (statements, expressions, unknown, lift)
"""

from __future__ import annotations

from functrans.inspect.python_source.writer import File, Function, own_name
from functrans.ir.check import check_program
from functrans.ir.program import Program
from functrans.ir.tracebacks import boundary


@boundary
def to_python(program: Program, name: str = "") -> str:
    """Write a program as a file of readable NumPy code that computes the same numbers.

    The gradient of a function, or its batched form, becomes code that one can read, set a
    breakpoint in and edit. Nested programs are functions of their own; scans, loops and branches
    are Python's `for`, `while` and `if`. Comments hold the user's lines.

    Arguments:
      program: from `make_ir`, `parse` or a jitted function's `.program`.
      name: what the function is to be called; the program's own name if empty.

    Returns:
      The text. Its last function takes the arguments of the traced function, trees and all, whose
      leaves its first lines name with dtype and shape; where they are not known, as of a program
      that was parsed, one array per input. It returns what that function returns; where that is
      not known, or a tree of classes of the user's, one value or a tuple. Typed random keys are
      arrays of their words (`jax.random.key_data`).

    Raises:
      InvalidArgument: `program` is not a Program.
      NotSupported: the program calls back into Python or runs code of JAX's.

    Example:
      >>> import functrans as ft, functrans.numpy as jnp
      >>> print(ft.to_python(ft.make_ir(ft.grad(lambda x: jnp.sin(x) * x))(1.0), "slope"))
      import numpy as np
      <BLANKLINE>
      <BLANKLINE>
      @np.errstate(all="ignore")
      def slope(x):
      ...
    """
    check_program(program, "to_python")
    file = File(program)
    name = file.names.new(name or own_name(program) or "function")
    text = "\n".join(Function(file, program).lines(entry=True))
    entry = f'@np.errstate(all="ignore")\ndef {name}{text}'
    above = "\n".join([*file.imports.lines(), *(["", *file.constants] if file.constants else [])])
    return "\n\n\n".join([above, *file.references.texts, *file.functions, entry]) + "\n"
