"""The documentation site: `make docs` builds it into build/site with Sphinx.

Pages are Markdown (MyST). The API reference is written into docs/api by each build and is not kept
in git. Everything the pages need is part of the site, so they also open from disk, offline.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

import make_api

project = "Vitascope"
author = "The Vitascope authors"
copyright = "The Vitascope authors, Apache-2.0"

extensions = ["myst_nb", "sphinx.ext.mathjax", "sphinx-mathjax-offline", "sphinx_copybutton"]
exclude_patterns = ["records", "figures"]
myst_enable_extensions = ["dollarmath", "attrs_inline"]
myst_heading_anchors = 4
myst_links_external_new_tab = False
nb_execution_mode = "cache"
nb_execution_cache_path = str(Path(__file__).parents[1] / "build" / "notebooks")
nb_execution_timeout = 900
nb_execution_raise_on_error = True
nb_output_stderr = "remove"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = "Vitascope"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
pygments_style = "friendly"
pygments_dark_style = "monokai"

make_api.main(Path(__file__).parent / "api")
