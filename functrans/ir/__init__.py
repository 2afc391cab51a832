"""Programs: data structure, text, checks. Nothing here depends on a primitive."""

from functrans.ir.check import check as check
from functrans.ir.check import equal as equal
from functrans.ir.parse import parse as parse
from functrans.ir.program import PRIMITIVES as PRIMITIVES
from functrans.ir.program import Equation as Equation
from functrans.ir.program import Literal as Literal
from functrans.ir.program import Program as Program
from functrans.ir.program import Var as Var
from functrans.ir.text import show as show
from functrans.ir.types import ArrayType as ArrayType
