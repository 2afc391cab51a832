"""The names of `jax` that are JAX's own here, as type checkers, editors and `import *` see them."""

from jax import *

__all__ = [
    "Device", "NamedSharding", "P", "Ref", "ShapeDtypeStruct", "Shard", "block_until_ready",
    "check_tracer_leaks", "checking_leaks", "closure_convert", "config", "copy_to_host_async",
    "custom_gradient", "debug_infs", "debug_key_reuse", "debug_nans", "default_backend", "default_device",
    "default_matmul_precision", "default_prng_impl", "device_count", "device_get", "devices",
    "disable_jit", "distributed", "dlpack", "ds", "effects_barrier", "empty_ref", "enable_checks",
    "enable_custom_prng", "enable_x64", "explain_cache_misses", "float0", "free_ref", "freeze",
    "host_count", "host_id", "host_ids", "image", "legacy_prng_key", "live_arrays", "local_device_count",
    "local_devices", "log_compiles", "make_array_from_callback", "make_array_from_process_local_data",
    "make_array_from_single_device_arrays", "make_mesh", "make_user_context", "memory", "monitoring",
    "new_ref", "no_execution", "no_tracing", "numpy_dtype_promotion", "numpy_rank_promotion", "ops",
    "print_environment_info", "process_count", "process_index", "process_indices", "profiler", "ref",
    "reshard", "scipy", "set_mesh", "sharding", "smap", "softmax_custom_jvp", "stages", "thread_guard",
    "threefry_partitionable", "transfer_guard", "transfer_guard_device_to_device",
    "transfer_guard_device_to_host", "transfer_guard_host_to_device",
]  # fmt: skip
