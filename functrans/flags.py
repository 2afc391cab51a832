"""JAX's configuration flags, which are ours too: `flags.jax_enable_x64`.

JAX adds them to its `config` object while it is imported, so type checkers do not know them.
"""

from __future__ import annotations

from typing import Any

import jax

flags: Any = jax.config
