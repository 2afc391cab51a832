"""Optimization passes: rewrites that make programs cheaper without changing what they compute.

Each pass is a function `Program -> Program` that can be called on its own. `optimize` runs all of
them in order, as `ft.jit` does before lowering to XLA. `explain` reports what each one did. They
are loaded when the first program is compiled.
"""

from functrans.loading import lazily as _lazily

with _lazily(__name__):
    from functrans.passes import compiler_options as compiler_options
    from functrans.passes import fusion_boundaries as fusion_boundaries
    from functrans.passes import kernels as kernels
    from functrans.passes import launches as launches
    from functrans.passes import redundancy as redundancy
    from functrans.passes import repeated_decisions as repeated_decisions
    from functrans.passes import threads as threads
    from functrans.passes.algebraic_simplification import simplify as simplify
    from functrans.passes.constant_folding import fold as fold
    from functrans.passes.contractions import contract as contract
    from functrans.passes.explanation import explain as explain
    from functrans.passes.factoring import factor as factor
    from functrans.passes.inlining import inline as inline
    from functrans.passes.inlining import inline_calls as inline_calls
    from functrans.passes.inlining import resolve as resolve
    from functrans.passes.loop_simplification import loops as loops
    from functrans.passes.loop_sums import written_sums as written_sums
    from functrans.passes.pipeline import chosen as chosen
    from functrans.passes.pipeline import optimize as optimize
    from functrans.passes.redundancy import common_subexpressions as common_subexpressions
    from functrans.passes.redundancy import dead_code as dead_code
    from functrans.passes.weighted_reductions import weighted_sums as weighted_sums
