"""The README as a package index shows it: links within the repository become addresses.

Everything else about the package is in pyproject.toml.
"""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent


def long_description() -> str:
    """Return the README, whose links and pictures lead to the repository from anywhere."""
    home = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"]["Repository"]
    text = (ROOT / "README.md").read_text("utf-8")
    text = re.sub(r"(\[[^\]\n]+\]\()(?!\w+:|#)", rf"\1{home}/blob/main/", text)
    return re.sub(r'( src=")(?!\w+:)', rf"\1{home}/raw/main/", text)


if __name__ == "__main__":  # a test reads this file where setuptools is not installed
    from setuptools import setup

    setup(long_description=long_description(), long_description_content_type="text/markdown")
