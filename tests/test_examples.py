"""The examples of the README, run as they are, with the claims they make."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import functrans as ft

ROOT = Path(__file__).parent.parent


@pytest.fixture
def digits(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    import train_digits

    yield train_digits
    sys.modules.pop("train_digits", None)


def test_train_digits(digits, tmp_path):
    data = digits.load()
    images, labels, test_images, test_labels = data
    assert len(images) + len(test_images) == 1797
    assert digits.compare_gradients(images, labels) < 1e-6

    params, state, step, losses, accuracy = digits.train(
        "conv net", digits.conv_net, digits.CONV, data, epochs=25
    )
    assert accuracy >= 0.97
    assert losses[-1] < 0.1 * losses[0]

    chosen, lengths = digits.hardest(params, test_images, test_labels)
    assert list(lengths[chosen]) == sorted(lengths, reverse=True)[:5]
    assert digits.check_step(step, params, state, images[:64], labels[:64]) < 1e-4

    picture = tmp_path / "digits.png"
    digits.draw(str(picture), {"conv net": losses}, test_images, test_labels, chosen, lengths)
    assert picture.stat().st_size > 10_000


@pytest.fixture
def own(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    import own_transformation

    yield own_transformation
    sys.modules.pop("own_transformation", None)


@pytest.mark.parametrize("name", ["MLP", "conv net"])
def test_interval_bounds(own, name):
    images, labels, test_images, test_labels = own.load()
    params = own.train(name, images, labels)
    assert own.accuracy(name, params, test_images, test_labels) > 0.94
    shares = []
    for epsilon in (0.002, 0.01, 0.03):
        share, box = own.certify(name, params, test_images, test_labels, epsilon)
        shares.append(share)
        for i in range(3):
            seen = own.sample(name, params, test_images[i], epsilon, n=1000, seed=i)
            assert (box.low[i] <= seen.low + 1e-5).all()
            assert (seen.high <= box.high[i] + 1e-5).all()
            # as wide as they must be, within the factor that corners of a box are rarely met
            assert (box.high[i] - box.low[i]).mean() < 10 * (seen.high - seen.low).mean()
    assert shares[0] > 0.9
    assert shares[1] > 0.7
    assert shares == sorted(shares, reverse=True)


def test_interval_bounds_of_other_functions(own):
    box = own.Box(np.float32([-1.0, 2.0]), np.float32([1.0, 3.0]))

    def f(x):
        return ft.jit(lambda y: 3.0 - 2.0 * y)(x)

    ((low, high),) = own.bounds(f)(box)
    assert list(low) == [1.0, -3.0]
    assert list(high) == [5.0, -1.0]
    assert own.bounds(f)(2.0) == [-1.0]  # an array is just computed
    with pytest.raises(NotImplementedError, match="sin"):
        own.bounds(ft.numpy.sin)(box)
    width = ft.grad(lambda w: own.bounds(lambda x: (w * x).sum())(box)[0].high)
    assert width(2.0) == 4.0


@pytest.mark.parametrize("name", ["MLP", "conv net"])
def test_mixed_precision(own, name):
    images, labels, test_images, test_labels = own.load()
    error, program = own.gradient_error(name, own.initial(name), images[:256], labels[:256])
    assert 1e-5 < error < 0.02  # bfloat16 rounds by 0.4 %; some maxima change sides
    ft.ir.check(program)
    assert ft.ir.equal(ft.ir.parse(str(program), program.values), program)
    products = [e for e in program.equations if e.primitive.name in own.BILINEAR - {"mul"}]
    assert len(products) >= 4
    assert {str(v.type.dtype) for e in products for v in e.inputs} == {"bfloat16"}
    assert {str(v.type.dtype) for e in products for v in e.outputs} == {"float32"}

    params = own.train(name, images, labels, own.mixed_precision)
    assert own.accuracy(name, params, test_images, test_labels) > 0.94


def test_mixed_precision_inside_of_loops(own):
    def f(w, xs):
        return ft.lax.scan(lambda c, x: (ft.numpy.tanh(w @ c + x), None), xs[0], xs)[0]

    rng = np.random.default_rng(0)
    w, xs = rng.normal(size=(8, 8)).astype("float32"), rng.normal(size=(5, 8)).astype("float32")
    program = own.mixed_precision(ft.make_ir(f)(w, xs))
    assert "bf16[8,8]" in str(program)
    (low,) = ft.evaluate(program, [w, xs])
    full = f(w, xs)
    assert 1e-6 < np.abs(low - full).max() < 0.05
