"""Measures what a new process pays: imports and first calls, ours and JAX's in turn.

    python -m benchmarks.cold [PROCESSES]

Out: CPU milliseconds beyond `import jax, jax.numpy`, the median of so many processes each (15 unless
given, with warm bytecode), and the modules of ours that take longest to import (`python -X
importtime`).
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections import Counter

BEGIN = "import time, jax, jax.numpy as jnp; t = time.process_time(); "
END = "; print((time.process_time() - t) * 1e3)"
F = "lambda x: jnp.sin(x) * x"
ROWS = {
    "import functrans as ft, functrans.numpy": ("import functrans as ft, functrans.numpy", None),
    "jit(f), not called": (f"import functrans as ft; ft.jit({F})", f"jax.jit({F})"),
    "first jit(f)(1.0)": (f"import functrans as ft; ft.jit({F})(1.0)", f"jax.jit({F})(1.0)"),
    "first grad(f)(1.0)": (f"import functrans as ft; ft.grad({F})(1.0)", f"jax.grad({F})(1.0)"),
    "first jit(grad(f))(1.0)": (
        f"import functrans as ft; ft.jit(ft.grad({F}))(1.0)",
        f"jax.jit(jax.grad({F}))(1.0)",
    ),
    "first vmap(grad(f))(x)": (
        f"import functrans as ft; ft.vmap(ft.grad({F}))(jnp.ones(3))",
        f"jax.vmap(jax.grad({F}))(jnp.ones(3))",
    ),
}


def _python(*words: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, env=kept)


def milliseconds(statement: str) -> float:
    """Return the CPU time of a statement in a new process."""
    return float(_python("-c", BEGIN + statement + END).stdout.split()[-1])


def modules(statement: str, most: int = 12) -> list[tuple[float, str]]:
    """Return the milliseconds that importing each folder of ours takes by itself, the longest first."""
    lines = _python("-X", "importtime", "-c", f"import jax, jax.numpy as jnp; {statement}").stderr
    spent: Counter[str] = Counter()
    for line in lines.splitlines():
        parts = line.removeprefix("import time:").split("|")
        if len(parts) == 3 and parts[0].strip().isdigit():
            name = parts[2].strip()
            if name.startswith("functrans"):
                spent[".".join(name.split(".")[:3])] += int(parts[0]) / 1e3
    return [(ms, name) for name, ms in spent.most_common(most)]


def main() -> None:
    processes = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    print("| in a new process | functrans, CPU ms | JAX, CPU ms |\n|---|---:|---:|")
    for name, (ours, theirs) in ROWS.items():
        milliseconds(ours)  # writes the bytecode
        found: list[list[float]] = [[], []]
        for _ in range(processes):
            for times, statement in zip(found, (ours, theirs), strict=True):
                if statement is not None:
                    times.append(milliseconds(statement))
        shown = [f"{statistics.median(times):.0f}" if times else "" for times in found]
        print(f"| {name} | {shown[0]} | {shown[1]} |", flush=True)
    print("\n| module | import alone, ms |\n|---|---:|")
    for ms, module in modules(ROWS["first jit(grad(f))(1.0)"][0]):
        print(f"| `{module}` | {ms:.1f} |")


if __name__ == "__main__":
    main()
