"""The book: ``make docs`` builds it into build/docs. tests/book/test_docs.py runs what its pages show."""

import subprocess
import sys
from pathlib import Path

from sphinx.errors import ConfigError

import torch_openreg
from torch_openreg import _failure

if _failure.failure is not None:  # the pages show what the built package has
    raise ConfigError(str(_failure.failure))

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))

import api  # noqa: E402
import generated  # noqa: E402
import gpu_answers  # noqa: E402
import pictures  # noqa: E402
import tutorials  # noqa: E402

project = "torch_openreg"
author = "torch_openreg developers"
copyright = "torch_openreg developers, BSD-3-Clause"
release = torch_openreg.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton", "sphinx_design"]
exclude_patterns = ["README.md"]
suppress_warnings = ["misc.highlighting_failure"]  # transcripts end in the middle of a statement
templates_path: list[str] = []

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_typehints = "signature"
autodoc_typehints_format = "short"

# A prompt and what a program prints are not copied.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = "torch_openreg"
html_static_path = ["_static"]
html_css_files = ["book.css"]
html_js_files = ["book.js"]
html_copy_source = False
html_show_sphinx = False

# These files are written into docs, because the directives `raw` and `include` read files of the sources.
pictures.draw_all(ROOT / "docs" / "_pictures")
api.write_all(ROOT / "docs" / "_reference")
tutorials.write_all(ROOT / "docs" / "_tutorials")
RENDERED = {
    "cuda-surface.md": ["tests/cuda/cuda_surface.py"],
    "stub-operators.md": ["tests/book/stub_operators.py"],
    "device-model-refusals.md": ["-m", "tests.book.device_model_page"],
}
for page, program in RENDERED.items():
    printed = subprocess.run([sys.executable, *program], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    generated.write(ROOT / "docs" / page, printed)
gpu_answers.write(ROOT / "tests" / "cuda" / "cuda_answers", ROOT / "docs" / "_reference" / "gpu_answers.txt")
