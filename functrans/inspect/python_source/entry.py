"""A program as NumPy source.

In: a Program. Out: the text of a file that needs only NumPy (SciPy and ml_dtypes if the program
does) and computes the same numbers.

    naming, comments   the user's names and lines
    writer, signature  programs as functions; the argument `w` of a primitive's `numpy_source`
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

    The gradient of a function, or its batched form, becomes code that you can read, set a
    breakpoint in and edit. Nested programs become functions; scans, loops and branches become
    Python's `for`, `while` and `if`. Comments show the user's lines.

    Arguments:
      program: from `make_ir`, `parse` or a jitted function's `.program`.
      name: the name of the function; the program's own name if empty.

    Returns:
      The text. Its last function takes the arguments of the traced function, pytrees included; its
      first lines name their leaves, with dtype and shape. If the arguments are not known, as for a
      parsed program, it takes one array per input. It returns what that function returns; if that
      is not known, or is a pytree of the user's classes, one value or a tuple. Typed random keys
      are arrays of their words (`jax.random.key_data`).

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
