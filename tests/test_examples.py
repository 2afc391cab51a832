"""The example of the README, run as it is, with the claims it makes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

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
