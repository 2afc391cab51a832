"""Filters, time series, samplers and recurrent networks, written like `simulators`."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.models import Library
from benchmarks.simulators import Function, normal

# --- filters and time series ----------------------------------------------------------------------


def _tracking(lib: Library, noise: Any) -> tuple[Any, ...]:
    """Return the matrices of a model of positions and speeds in the plane, where positions are seen."""
    jnp = lib.np
    moves = jnp.eye(4) + 0.1 * jnp.eye(4, k=2)
    return moves, jnp.exp(noise[0]) * jnp.eye(4), jnp.eye(2, 4), jnp.exp(noise[1]) * jnp.eye(2)


def _filter_step(lib: Library, noise: Any) -> Function:
    jnp = lib.np
    moves, shaken, seen, blurred = _tracking(lib, noise)

    def step(state, y):
        mean, cov = state
        mean, cov = expected = moves @ mean, moves @ cov @ moves.T + shaken
        off = y - seen @ mean
        spread = seen @ cov @ seen.T + blurred
        gain = jnp.linalg.solve(spread, seen @ cov).T
        factor = jnp.linalg.cholesky(spread)
        surprise = 0.5 * off @ jnp.linalg.inv(spread) @ off + jnp.sum(jnp.log(jnp.diag(factor)))
        state = mean + gain @ off, cov - gain @ seen @ cov
        return state, (surprise, expected, state)

    return step


def kalman(lib: Library) -> Function:
    """Negative log likelihood of positions, (steps, 2), as a function of two log variances of noise."""

    def loss(noise, seen):
        start = lib.np.zeros(4), lib.np.eye(4)
        _, (surprise, _, _) = lib.lax.scan(_filter_step(lib, noise), start, seen)
        return lib.np.mean(surprise)

    return loss


def smoother(lib: Library) -> Function:
    """Mean squared distance of smoothed positions from those seen (Rauch, Tung and Striebel)."""
    jnp = lib.np

    def loss(noise, seen):
        moves, *_ = _tracking(lib, noise)
        start = jnp.zeros(4), jnp.eye(4)
        last, (_, expected, filtered) = lib.lax.scan(_filter_step(lib, noise), start, seen)

        def back(state, known):
            (mean_next, cov_next), (mean, cov) = known
            gain = jnp.linalg.solve(cov_next, moves @ cov).T
            smooth_mean, smooth_cov = state
            state = (mean + gain @ (smooth_mean - mean_next), cov + gain @ (smooth_cov - cov_next) @ gain.T)
            return state, state[0]

        ahead = lib.ft.tree.map(lambda a: a[1:], expected)
        here = lib.ft.tree.map(lambda a: a[:-1], filtered)
        _, means = lib.lax.scan(back, last, (ahead, here), reverse=True)
        return jnp.mean((means[:, :2] - seen[:-1]) ** 2)

    return loss


def hidden_markov(lib: Library) -> Function:
    """Negative log likelihood of symbols, by the forward algorithm in logarithms."""
    nn = lib.nn

    def loss(params, symbols):
        transition = nn.log_softmax(params["transition"], axis=1)
        emission = nn.log_softmax(params["emission"], axis=1)

        def step(alpha, symbol):
            return nn.logsumexp(alpha[:, None] + transition, axis=0) + emission[:, symbol], None

        start = nn.log_softmax(params["start"]) + emission[:, symbols[0]]
        alpha, _ = lib.lax.scan(step, start, symbols[1:])
        return -nn.logsumexp(alpha) / len(symbols)

    return loss


def garch(lib: Library) -> Function:
    """Negative log likelihood of returns whose variance follows the last return's square."""
    jnp = lib.np

    def loss(params, returns):
        base, shock, memory = jnp.exp(params)

        def step(variance, r):
            cost = jnp.log(variance) + r**2 / variance
            return base + shock * r**2 + memory * variance, cost

        _, costs = lib.lax.scan(step, jnp.var(returns), returns)
        return jnp.mean(costs)

    return loss


# --- a sampler ------------------------------------------------------------------------------------


def hmc(lib: Library, leapfrogs: int = 20) -> Function:
    """Squared mean of samples of a logistic regression, as a function of the step size; momenta and
    coins are given."""
    jnp = lib.np

    def loss(log_rate, x, y, momenta, coins):
        rate = jnp.exp(log_rate)

        def potential(w):
            logits = x @ w
            return jnp.sum(jnp.logaddexp(0.0, logits) - y * logits) + 0.5 * jnp.sum(w**2)

        slope = lib.ft.grad(potential)

        def leapfrog(_, state):
            w, p = state
            p = p - rate / 2 * slope(w)
            w = w + rate * p
            return w, p - rate / 2 * slope(w)

        def sample(w, given):
            momentum, coin = given
            new, p = lib.lax.fori_loop(0, leapfrogs, leapfrog, (w, momentum))
            before = potential(w) + 0.5 * jnp.sum(momentum**2)
            after = potential(new) + 0.5 * jnp.sum(p**2)
            w = jnp.where(jnp.log(coin) < before - after, new, w)
            return w, w

        _, samples = lib.lax.scan(sample, jnp.zeros(x.shape[1]), (momenta, coins))
        return jnp.sum(jnp.mean(samples, axis=0) ** 2)

    return loss


# --- recurrent networks ---------------------------------------------------------------------------


def gru(lib: Library) -> Function:
    """Squared last state of one sequence, (steps, inputs)."""
    jnp, nn = lib.np, lib.nn

    def loss(params, xs):
        def step(h, x):
            reset, update = jnp.split(nn.sigmoid(x @ params["wg"] + h @ params["ug"]), 2)
            new = jnp.tanh(x @ params["w"] + (reset * h) @ params["u"])
            return update * h + (1 - update) * new, None

        h, _ = lib.lax.scan(step, jnp.zeros(params["u"].shape[0]), xs)
        return jnp.sum(h**2)

    return loss


def lstm(lib: Library) -> Function:
    """Squared last state of one sequence, (steps, inputs)."""
    jnp, nn = lib.np, lib.nn

    def loss(params, xs):
        def step(state, x):
            h, c = state
            gates = x @ params["w"] + h @ params["u"] + params["b"]
            i, f, g, o = jnp.split(gates, 4)
            c = nn.sigmoid(f) * c + nn.sigmoid(i) * jnp.tanh(g)
            return (nn.sigmoid(o) * jnp.tanh(c), c), None

        zeros = jnp.zeros(params["u"].shape[0])
        (h, _), _ = lib.lax.scan(step, (zeros, zeros), xs)
        return jnp.sum(h**2)

    return loss


# --- carries --------------------------------------------------------------------------------------


def scalars(lib: Library, n: int, steps: int = 300) -> Function:
    """Sum of a ring of `n` oscillators after `steps`; each is a scalar of its own in the carry."""
    sin = lib.np.sin

    def loss(start, frequency):
        def step(state, _):
            behind = state[1:] + state[:1]
            pairs = zip(state, behind, strict=True)
            return tuple(x + 0.01 * (frequency + sin(y - x)) for x, y in pairs), None

        state, _ = lib.lax.scan(step, tuple(start[i] for i in range(n)), None, length=steps)
        return sum(x**2 for x in state)

    return loss


def attitude(lib: Library, steps: int = 1000) -> Function:
    """The axes of a turning body: a 3 x 3 matrix in the carry."""
    jnp = lib.np

    def loss(spin):
        x, y, z = spin
        turn = jnp.eye(3) + 0.001 * jnp.array([[0 * x, -z, y], [z, 0 * x, -x], [-y, x, 0 * x]])
        axes = lib.lax.fori_loop(0, steps, lambda _, axes: axes @ turn, jnp.eye(3))
        return jnp.sum(axes * jnp.arange(9.0).reshape(3, 3))

    return loss


# --- inputs ---------------------------------------------------------------------------------------


def track(steps: int = 200) -> np.ndarray:
    """Positions in the plane, seen with noise."""
    t = 0.1 * np.arange(steps)[:, None]
    return np.concatenate([np.sin(t), np.cos(0.7 * t)], axis=1) + 0.1 * normal(steps, 2)


def markov_params(states: int = 6, symbols: int = 4) -> dict[str, np.ndarray]:
    return {
        "transition": normal(states, states),
        "emission": normal(states, symbols, seed=1),
        "start": normal(states, seed=2),
    }


def symbols(steps: int = 500, kinds: int = 4) -> np.ndarray:
    return np.random.default_rng(0).integers(0, kinds, steps).astype("int32")


def regression(rows: int = 200, columns: int = 5, samples: int = 10) -> tuple[np.ndarray, ...]:
    """Rows, labels, momenta and coins for the sampler."""
    x = normal(rows, columns)
    y = (x @ np.linspace(-1, 1, columns) + 0.5 * normal(rows, seed=1) > 0).astype(float)
    coins = np.random.default_rng(2).uniform(0, 1, samples)
    return x, y, normal(samples, columns, seed=3), coins


def gated_params(gates: int, inputs: int = 8, width: int = 16) -> dict[str, np.ndarray]:
    """Parameters of `gates` gates side by side: for the inputs, for the state, and a bias."""
    return {
        "w": normal(inputs, gates * width) / inputs**0.5,
        "u": normal(width, gates * width, seed=1) / width**0.5,
        "b": np.zeros(gates * width),
    }


def gru_params(inputs: int = 8, width: int = 16) -> dict[str, np.ndarray]:
    gates, new = gated_params(2, inputs, width), gated_params(1, inputs, width)
    return {"wg": gates["w"], "ug": gates["u"], "w": new["w"], "u": new["u"]}
