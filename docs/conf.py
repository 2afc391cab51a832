"""The documentation site: `python -m sphinx -W -n -b html docs docs/_build` builds it.

Nothing is fetched from a network. Before the pages are read, the pictures that their code draws are
made (make_pictures.py) and a page is written for each namespace (make_reference.py).
"""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import make_reference  # noqa: E402

project = "functrans"
author = "the functrans authors"
html_title = "functrans"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["_build", "_generated", "reference/_*"]
language = "en"

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
suppress_warnings = ["epub.unknown_project_files"]
pygments_style, pygments_dark_style = "a11y-high-contrast-light", "github-dark"
highlight_language = "text"

autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_numpy_docstring = False
autodoc_preserve_defaults = True
nitpick_ignore_regex = [("py:.*", r"(?!functrans\b).*")]  # types of Python, NumPy and JAX

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/favicon.svg"
html_extra_path = ["_generated/extra"]  # HTML pages that the tools of functrans wrote
html_copy_source = html_show_sourcelink = html_show_copyright = False
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def make(app, config):
    """Make what the pages show; a new process, because their code changes settings of JAX."""
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent), "MPLBACKEND": "Agg"}
    subprocess.run([sys.executable, HERE / "make_pictures.py"], check=True, env=environment)
    make_reference.write()


def setup(app):
    app.connect("config-inited", make)
    app.connect("autodoc-process-docstring", make_reference.docstring, priority=100)
    app.connect("missing-reference", make_reference.error_page)
