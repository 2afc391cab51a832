"""Optimization passes: rewrites that make programs cheaper without changing what they compute.

Each pass is a function `Program -> Program` that can be called on its own. `optimize` runs all of
them in order, as `ft.jit` does before lowering to XLA. `explain` reports what each one did.
"""

from functrans.passes.common_subexpressions import common_subexpressions as common_subexpressions
from functrans.passes.contract import contract as contract
from functrans.passes.dead_code import dead_code as dead_code
from functrans.passes.explain import explain as explain
from functrans.passes.fold import fold as fold
from functrans.passes.inlining import inline as inline
from functrans.passes.inlining import inline_calls as inline_calls
from functrans.passes.inlining import resolve as resolve
from functrans.passes.loops import loops as loops
from functrans.passes.pipeline import chosen as chosen
from functrans.passes.pipeline import optimize as optimize
from functrans.passes.simplify import simplify as simplify
from functrans.passes.weighted_sums import weighted_sums as weighted_sums
from functrans.passes.written_sums import written_sums as written_sums
