"""A program as NumPy source: `to_python`.

In: a Program. Out: the text of a file that needs only NumPy (SciPy and ml_dtypes if the program
does) and computes the same numbers: functions, one per program (`File`).

    naming      the user's names and lines
    writer      programs as functions; `Function` is passed to a primitive
    copies      reference functions as source; lift: values as expressions

A primitive defines how it is written by

    numpy_source(w, *operands, **params) -> "np.sin(x)"        one result, or a tuple of them
                                         -> ["x", "y"]         an expression for each result
                                         -> None               it has assigned `w.outs` by `w.line`

otherwise a copy of its `reference` is added to the file (copies.py). A subclass that overrides
`reference` does not inherit a `numpy_source`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from functrans import errors
from functrans.inspect.python_source import lift, naming
from functrans.inspect.python_source.copies import Copies
from functrans.ir.check import check_program
from functrans.ir.program import Atom, Equation, Literal, Program, Var
from functrans.ir.source import describe
from functrans.ir.text import with_nested
from functrans.ir.tracebacks import boundary
from functrans.ir.types import ArrayType, is_key_dtype
from functrans.passes.rewrite import readers_of
from functrans.primitives.base import Primitive
from functrans.primitives.elementwise.families import Elementwise
from functrans.primitives.random.bits import word_type
from functrans.primitives.shape.moving import Moving, with_axes

_INDENT = "    "
WRITTEN_OUT = 64  # most elements of an array that is written as numbers


class File:
    """What has been written so far."""

    def __init__(self, program: Program):
        self.imports: set[str] = set()  # modules, NumPy not among them
        self.copies: Copies = Copies(self.imports, self.array)
        self.names: naming.Names = naming.Names()  # of functions and constants
        sources = [e.source for p in with_nested(program) for e in p.equations if e.source]
        # Then comments need not name it.
        self.one_file: bool = len({code.co_filename for code, _, _ in sources}) == 1
        self.functions: list[str] = []
        self.constants: list[str] = []
        self._named: dict[Program, str] = {}
        self._texts: dict[str, str] = {}

    def function(self, program: Program, role: str) -> str:
        """Return the name of a nested program's function, by default its role; write it on first use."""
        if program not in self._named:
            lines = Function(self, program).lines()
            body = "\n".join(lines)
            if body not in self._texts:  # the same function, traced twice
                self._texts[body] = self.names.new(own_name(program) or role)
                self.functions.append(f"def {self._texts[body]}{body}")
            self._named[program] = self._texts[body]
        return self._named[program]

    def constant(self, t: ArrayType, value: Any) -> str:
        """Return a captured array."""
        if is_key_dtype(t.dtype):
            value = jax.random.key_data(value)
        try:
            array = np.asarray(value, word_type(t).dtype)
        except Exception:
            raise errors.NotSupported(
                f"to_python: the program reads a traced {t} of an enclosing function; make the "
                "program of the whole function"
            ) from None
        return self.array(array)

    def array(self, array: np.ndarray) -> str:
        """Return an array: as numbers if small, else as a name defined above."""
        dtype = lift.dtype_text(array.dtype, self.imports)
        if not array.size:
            return f"np.zeros({array.shape}, {dtype})"
        if array.size <= WRITTEN_OUT:
            wide = array if array.dtype.isbuiltin == 1 else array.astype(np.float64)
            return f"np.array({lift.lift(wide.tolist(), self.imports, repr)}, {dtype})"
        name = self.names.new("c")
        self.imports.add("base64")
        raw = repr(base64.b64encode(np.ascontiguousarray(array).tobytes()).decode())
        self.constants.append(
            f"{name} = np.frombuffer(base64.b64decode({raw}), {dtype}).reshape({array.shape})"
        )
        return name


def own_source(primitive: Any) -> Any:
    """Return the primitive's `numpy_source`, or None if a subclass overrides its reference."""
    rules = {"numpy_source", "reference", "interpret"}
    cls = next(cls for cls in type(primitive).__mro__ if not rules.isdisjoint(vars(cls)))
    return primitive.numpy_source if cls is not Primitive and "numpy_source" in vars(cls) else None


def own_name(program: Program) -> str:
    """Return the name of the user's function; empty for a lambda."""
    name = program.name.rpartition(".")[2]
    return "" if "<" in name else name


class Function:
    """One function of the file, written equation by equation: the argument `w` of a primitive's
    `numpy_source`.

    equation  : the one that is written now
    out_types : the types of its results in the file (typed keys are arrays of words)
    outs      : names for its results;  line, block : to write statements
    """

    def __init__(self, file: File, program: Program):
        self.file: File = file
        self.program: Program = program
        self.wanted: dict[Var, str] = naming.result_names(program)
        self.names: naming.Names = naming.Names(file.names, self.wanted.values())
        self.comment: str = ""  # the last one
        self.text: list[str] = []
        self.depth: int = 1
        self.env: dict[Var, lift.Operand] = {}
        self.uses: dict[Any, list[Equation]] = readers_of(program)
        repeats = [e for e in program.equations if e.primitive.name == "broadcast_in_dim"]
        self.repeated: set[Var] = {e.outputs[0] for e in repeats}
        self.returned: set[Atom] = {v for v in program.outputs if v.__class__ is Var}
        self.equation: Any = None
        self.out_types: list[ArrayType] = []
        self._outs: list[str] = []

    def lines(self, entry: bool = False) -> list[str]:
        """Return the lines from the parameters on; the entry function converts its arguments."""
        program = self.program
        signature = (naming.of_arguments if entry else naming.of_inputs)(program, self.names)
        for v, name in zip(program.inputs, signature.locals, strict=True):
            self._define(v, name)
        for v, value in zip(program.constants, program.values, strict=True):
            self._define(v, self.file.constant(v.type, value))
        head = self._converted(signature) if entry else []
        if not entry:
            typed = zip(signature.locals, program.inputs, strict=True)
            shown = ", ".join([f"{p} {v.type}" for p, v in typed])
            head = [f"{_INDENT}# {shown}"] if shown and len(shown) < 90 else []
        for e in program.equations:
            self._write(e)
        results = [self._operand(v).full for v in program.outputs]
        self.line(f"return {naming.returned(program if entry else None, results)}")
        return [str(signature), *head, *self.text]

    def _converted(self, signature: naming.Signature) -> list[str]:
        """Return the inputs as arrays, under new names."""
        made = []
        inputs = self.program.inputs
        for name, read, v in zip(signature.locals, signature.read, inputs, strict=True):
            note = f"{v.type.shape}" + (" keys" if is_key_dtype(v.type.dtype) else "")
            made.append(f"{_INDENT}{name} = np.asarray({read}, {self.dtype(v.type.dtype)})  # {note}")
        return made

    def _operand(self, v: Any) -> lift.Operand:
        return lift.of_literal(v, self.file.imports) if v.__class__ is Literal else self.env[v]

    def _named(self, v: Var) -> str:
        return self.names.new(self.wanted[v]) if v in self.wanted else self.names.letter()

    def _define(self, v: Var, text: str) -> None:
        """Let a value be an expression; assign it to a name, unless it is one already."""
        if not text.isidentifier():
            name = self._named(v)
            self.line(f"{name} = {text}")
            text = name
        self.env[v] = lift.Operand(text, word_type(v.type))

    def _write(self, e: Equation) -> None:
        hint = self._broadcast(e)
        if hint is not None:
            self.env[e.outputs[0]] = lift.Operand(hint, word_type(e.outputs[0].type))
            return
        about = naming.comment(e, self.file.one_file)
        if about and about != self.comment:
            self.line(about)
        self.comment = about or self.comment
        self.equation, self._outs = e, []
        self.out_types = [word_type(v.type) for v in e.outputs]
        made = self._made([self._operand(v) for v in e.inputs])
        if isinstance(made, str) and len(e.outputs) != 1:
            self.line(f"{', '.join(self.outs)} = {made}")
        elif made is not None:
            for v, text in zip(e.outputs, [made] if isinstance(made, str) else made, strict=True):
                self._define(v, text)

    def _made(self, xs: list[lift.Operand]) -> Any:
        """Return what the `numpy_source` of the equation's primitive returns, given its operands."""
        primitive, params = self.equation.primitive, self.equation.params
        if isinstance(primitive, Moving) and is_key_dtype(self.equation.inputs[0].type.dtype):
            params = primitive.under_trailing_axis(xs[0].shape[-1], params)
        rule = own_source(primitive)
        if rule is not None:
            return rule(self, *xs, **params)
        if primitive.holds_programs:
            return self._interpreted(primitive, xs, params)
        return self.reference(primitive, xs, params)

    def _interpreted(self, primitive: Any, xs: Sequence[lift.Operand], params: dict[str, Any]) -> str:
        """Write an operation that runs one program on its operands as a call of its function."""
        values = [jax.ShapeDtypeStruct(v.type.shape, v.type.dtype) for v in self.equation.inputs]
        names = {id(v): x for v, x in zip(values, xs, strict=True)}

        def run(program: Any, given: Sequence[Any], step: Any = None) -> str:
            if not isinstance(program, Program):
                raise self.unwritable()
            return self.call(program, [names[id(v)] for v in given])

        made = primitive.interpret(run, values, params)
        if not isinstance(made, str):
            raise self.unwritable()
        return made

    def _broadcast(self, e: Equation) -> str | None:
        """Return `x[:, None]` for a value whose repetition is left to NumPy's broadcasting."""
        if e.primitive.name != "broadcast_in_dim" or is_key_dtype(e.inputs[0].type.dtype):
            return None
        (v,), (x,) = e.outputs, e.inputs
        uses = self.uses[v]
        if v in self.returned or not uses or not all(self._repeats(u, v) for u in uses):
            return None
        text, axes = self._operand(x).full, with_axes(e.params["shape"], e.params["dimensions"])
        return text + axes if text.isidentifier() or not axes else None

    def _repeats(self, use: Equation, v: Var) -> bool:
        """Return whether NumPy broadcasts operand v because another one has the full shape."""
        if not isinstance(use.primitive, Elementwise) or own_source(use.primitive) is None:
            return False
        others = [u for u in use.inputs if u.__class__ is Var and u not in self.repeated]
        return any(u.type.shape == v.type.shape for u in others)

    # --- for rules

    @property
    def outs(self) -> list[str]:
        if not self._outs:
            self._outs = [self._named(v) for v in self.equation.outputs]
            for v, name in zip(self.equation.outputs, self._outs, strict=True):
                self._define(v, name)
        return self._outs

    def line(self, text: str) -> None:
        self.text.append(_INDENT * self.depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Write lines nested below `head`."""
        self.line(head)
        self.depth += 1
        yield
        self.depth -= 1

    def letter(self) -> str:
        return self.names.letter()

    def dtype(self, dtype: Any) -> str:
        return lift.dtype_text(dtype, self.file.imports)

    def twin(self, function: Any) -> str | None:
        """Return the name of the NumPy or SciPy function; None if there is none."""
        return lift.function_name(function, self.file.imports)

    def is_own(self, dtype: Any) -> bool:
        """Return whether it is one of NumPy's own dtypes, which Python numbers do not widen."""
        return dtype.isbuiltin == 1

    def cast(self, text: str, function: Any) -> str:
        """Return a function's result, cast to the dtype of the equation's result if it differs."""
        given = [np.ones((), word_type(v.type).dtype) for v in self.equation.inputs]
        with np.errstate(all="ignore"):
            made = np.asarray(function(*given)).dtype
        if made == self.out_types[0].dtype:
            return text
        atom = text.endswith(")") and text.startswith("np.")
        return f"{text if atom else f'({text})'}.astype({self.dtype(self.out_types[0].dtype)})"

    def call(self, program: Program, xs: Sequence[str], role: str = "function") -> str:
        """Return a call of a nested program's function."""
        name = self.file.function(program, role)
        return f"{name}({', '.join([getattr(x, 'full', x) for x in xs])})"

    def reference(self, primitive: Any, xs: Sequence[lift.Operand], params: dict[str, Any]) -> Any:
        """Return a call of a copy of the primitive's reference."""
        call = self.copied(primitive.reference, xs, params)
        return [f"{call}[0]"] if primitive.multiple_results and len(self.out_types) == 1 else call

    def copied(self, function: Any, xs: Sequence[str], options: dict[str, Any]) -> str:
        """Return a call of a copy of a function of NumPy arrays."""
        try:
            return self.file.copies.call(function, [getattr(x, "full", x) for x in xs], options)
        except lift.NotLiftable as error:
            raise self.unwritable() from error

    def unwritable(self) -> errors.NotSupported:
        """Return the error for an operation that NumPy source cannot express."""
        e = self.equation
        inside = "".join([f"\n    {line}" for line in e.primitive.listing(e.params)])
        return errors.NotSupported(
            f"to_python: {e.primitive.name} runs Python or JAX code that a file of NumPy source "
            f"cannot hold, at\n    {describe(e.source)}{inside}\n"
            "Leave that operation out of the function, or run the program with ft.interpret."
        )


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
    imported = sorted(["import numpy as np", *[f"import {m}" for m in file.imports]])
    above = "\n".join([*imported, *(["", *file.constants] if file.constants else [])])
    return "\n\n\n".join([above, *file.copies.texts, *file.functions, entry]) + "\n"
