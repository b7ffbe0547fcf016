"""How the documentation site is built: `make docs`."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))
# Notebooks: a small size, one picture format, and nothing that depends on the machine's own settings.
os.environ.setdefault("RATINGS", "synthetic:users=150,items=80,ratings=4000")
os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")

from hushrec import __version__

project = "hushrec"
author = "the authors of hushrec"
html_show_copyright = False
version = release = __version__

extensions = ["myst_nb", "hushrec_docs"]
exclude_patterns = ["_build", "_ext", "_static", "**.ipynb_checkpoints"]
highlight_language = "text"
maximum_signature_line_length = 88
add_module_names = True
toc_object_entries = False
# Types in signatures read as in the source; those of other libraries and short names have no page here.
nitpick_ignore_regex = [(r"py:.*", r"(?!hushrec\.).*")]

myst_heading_anchors = 4
nb_execution_mode = "cache"
nb_execution_cache_path = str(Path(__file__).parent / "_build" / "notebooks")
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_merge_streams = True
suppress_warnings = ["mystnb.unknown_mime_type"]

html_theme = "furo"
html_title = f"hushrec {__version__}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_sourcelink_suffix = ""  # _sources/fedrec.md, as llms.txt names it
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b5c6b", "color-brand-content": "#0b5c6b"},
    "dark_css_variables": {"color-brand-primary": "#7cc7d6", "color-brand-content": "#7cc7d6"},
}
