"""A simulator fitted by its gradient, and where the time of a step goes.

    python examples/fit_simulator.py [--steps N] [--out fit_simulator.png]

A nerve cell (Hodgkin and Huxley 1952), driven by eight currents: 20 ms, 1,000 steps of Runge-Kutta.
From its voltage and noise Adam finds the conductances of sodium, potassium and leak. The recordings
are simulated, so the true values are known. `lib` is functrans or jax: both run this source.
"""

import argparse
import time
from functools import partial

import jax
import numpy as np
from matplotlib.figure import Figure

import functrans as ft

TRUE, GUESS = np.float32([120, 36, 0.3]), np.float32([90, 45, 0.5])  # mS/cm2
CURRENTS = np.linspace(4, 18, 8, dtype="float32")  # uA/cm2
DT, STEPS, NOISE = 0.02, 1000, 2.0  # ms, a number, mV
START = np.log(GUESS), np.zeros(3, "float32"), np.zeros(3, "float32"), np.float32(0)  # of Adam


def voltages(lib, logs):
    """The voltage after each step, (steps, currents), by the logarithms of the conductances."""
    jnp, exp = lib.numpy, lib.numpy.exp
    sodium, potassium, leak = exp(logs)

    def ramp(u):  # u / (1 - exp(-u)), which is 1 at 0
        u = jnp.where(jnp.abs(u) < 1e-3, 1e-3, u)
        return u / (1 - exp(-u))

    def slope(state):
        v, m, h, n = state
        ions = sodium * m**3 * h * (v - 50) + potassium * n**4 * (v + 77) + leak * (v + 54.4)
        dm = ramp((v + 40) / 10) * (1 - m) - 4 * exp(-(v + 65) / 18) * m
        dh = 0.07 * exp(-(v + 65) / 20) * (1 - h) - h / (1 + exp(-(v + 35) / 10))
        dn = 0.1 * ramp((v + 55) / 10) * (1 - n) - 0.125 * exp(-(v + 65) / 80) * n
        return jnp.stack([CURRENTS - ions, dm, dh, dn])

    def step(y, _):
        k1 = slope(y)
        k2 = slope(y + DT / 2 * k1)
        k3 = slope(y + DT / 2 * k2)
        k4 = slope(y + DT * k3)
        y = y + DT / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return y, y[0]

    rest = jnp.stack([jnp.full(len(CURRENTS), x) for x in (-65.0, 0.053, 0.596, 0.318)])
    return lib.lax.scan(step, rest, None, STEPS)[1]


def adam(lib, state, rate, recorded):
    """A step of Adam, and the mean squared error before it."""
    x, m, v, n = state
    error, g = lib.value_and_grad(lambda x: ((voltages(lib, x) - recorded) ** 2).mean())(x)
    n, m, v = n + 1, 0.8 * m + 0.2 * g, 0.9 * v + 0.1 * g**2
    x = x - rate * (m / (1 - 0.8**n)) / (lib.numpy.sqrt(v / (1 - 0.9**n)) + 1e-8)
    return (x, m, v, n), error


def fit(step, recorded, steps):
    """Conductances, how uncertain the noise leaves each, relative to it, and all errors."""
    state, errors = START, []
    for i in range(steps):
        state, error = step(state, np.float32(0.05 * (1 - i / steps)), recorded)
        errors.append(float(error))
    slopes = np.asarray(ft.jit(ft.jacfwd(partial(voltages, ft)))(state[0]), float).reshape(-1, 3)
    return np.exp(state[0]), NOISE * np.diag(np.linalg.inv(slopes.T @ slopes)) ** 0.5, errors


def show_profile(title, step, args):
    report = ft.profile(step, repeats=1)(*args)
    print(f"{title}: {sum(k.calls for k in report.kernels):,.0f} operations of XLA start")
    for row in report.lines[:3]:
        print(f"   {row.share:6.1%}  {row.name.partition('  ')[2] or 'one kernel; in it are'}")
        for line in row.inside[:4]:
            print(f"              {line.partition('  ')[2]}")


def in_turn(functions, args, rounds):
    """Milliseconds of a call of each, the median; they take turns, so all meet the same machine."""
    taken = np.zeros((rounds, len(functions)))
    for r, k in np.ndindex(taken.shape):
        begin = time.perf_counter()
        jax.block_until_ready(functions[k](*args))
        taken[r, k] = 1e3 * (time.perf_counter() - begin)
    return np.median(taken, axis=0)


def draw(path, recorded, fitted):
    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = figure.subplots()
    guess, found = [ft.jit(partial(voltages, ft))(np.log(g)) for g in (GUESS, fitted)]
    for k, color in ((0, "C0"), (3, "C1"), (7, "C2")):
        for values, style in ((recorded, ","), (guess, ":"), (found, "-")):
            axes.plot(DT * np.arange(STEPS), values[:, k], style, color=color, linewidth=1)
    axes.set(xlabel="ms", ylabel="mV", title="dots: recorded; dotted: first guess; lines: fitted")
    figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="fit_simulator.png", help="where the picture goes")
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    exact = np.asarray(ft.jit(partial(voltages, ft))(np.log(TRUE)))
    recorded = exact + np.random.default_rng(0).normal(0, NOISE, exact.shape).astype("float32")
    plain, step = ft.jit(partial(adam, ft), cpu="plain"), ft.jit(partial(adam, ft))
    args = START, np.float32(0.05), recorded
    show_profile('1. a step as XLA makes it by itself (cpu="plain")', plain, args)
    show_profile("2. a step with its loops as kernels", step, args)
    times = in_turn((plain, step, jax.jit(partial(adam, jax))), args, rounds=20)
    print("3. ms a step: {:.2f} plain, {:.2f} with kernels, {:.2f} by jax.jit".format(*times))
    fitted, uncertainty, errors = fit(step, recorded, options.steps)
    print(f"4. {options.steps} steps: mean squared error {errors[0]:.0f} -> {errors[-1]:.2f} mV^2")
    for row in zip(("sodium", "potassium", "leak"), TRUE, GUESS, fitted, uncertainty, strict=True):
        print("   {:9} true {:7.3f}, guess {:6.3f}, fitted {:7.3f} +- {:.2%}".format(*row))
    draw(options.out, recorded, fitted)
    print(f"picture in {options.out}")


if __name__ == "__main__":
    main()
