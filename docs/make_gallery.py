"""`python docs/make_gallery.py [NAME ...]` runs the examples of the gallery, prints what they say.

Their pictures go to docs/gallery, small enough to be kept with the source. examples/README.md shows
them; tests/pages/test_gallery.py checks that each is there.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "gallery"
WIDTH, COLOURS = 640, 128
NAMES = ("private_flax", "equinox_kernel", "pinn", "meta_learning", "neural_ode", "fit_simulator")


def made(name: str) -> Path:
    """The small picture of an example, which is run for it."""
    with tempfile.TemporaryDirectory() as folder:
        large, small = Path(folder, f"{name}.png"), PICTURES / f"{name}.png"
        script = ROOT / "examples" / f"{name}.py"
        subprocess.run([sys.executable, script, "--out", large], check=True)
        picture = Image.open(large).convert("RGB")
        size = (WIDTH, round(picture.height * WIDTH / picture.width))
        picture.resize(size, Image.Resampling.LANCZOS).quantize(COLOURS).save(small, optimize=True)
    return small


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    for name in sys.argv[1:] or NAMES:
        print(f"\n{name}", flush=True)
        picture = made(name)
        print(f"{picture.relative_to(ROOT)}: {picture.stat().st_size:,} bytes", flush=True)
