"""Where JAX's versions differ. The tests hold for 0.10, 0.11 and 0.12."""

import jax

NEWER = jax.__version_info__ >= (0, 11)
NEWEST = jax.__version_info__ >= (0, 12)

# What XLA's flags are in the tests (conftest.py), for both versions. Workers of pytest fill the cores:
# a program in one part costs less than one that several threads compile.
ONE_PART = "--xla_cpu_parallel_codegen_split_count=1"
QUICK_FLAGS = (
    "--xla_backend_optimization_level=0 --xla_backend_extra_options=xla_cpu_disable_new_fusion_emitters "
    + ONE_PART
)

# Options of one program, which hold under users' flags too: a large one that runs once is compiled in a
# third of the time. The older emitters, which 0.11 takes from the environment only, do not know every
# operation: only for programs of common ones.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
if not NEWER:
    QUICK["xla_cpu_use_fusion_emitters"] = False

# Expressions of jax.numpy whose results are other ones since 0.11, or ours before.
EXPRESSIONS = {"jnp.log2(0.5)"} if NEWER else {"jnp.sinc(inf)"}

# Those whose derivatives are other ones before 0.12, or missing.
NOT_DERIVED = set() if NEWEST else {"jnp.sign(z)", "jnp.nextafter(x, y)"}


def is_derived(primitive: str, dtype: str) -> bool:
    """Does this JAX have the derivative? That of extremes of complex numbers it lost with 0.11."""
    of_complex = dtype.startswith("complex")
    return {
        **dict.fromkeys(("max", "min", "cummax", "cummin"), not (NEWER and of_complex)),
        "acosh": NEWER or not of_complex,  # its sign was wrong where the real part is negative
        "sign": NEWEST or not of_complex,
        "nextafter": NEWEST,
    }.get(primitive, True)
