"""What pytest imports (pyproject.toml): becomes the plugin _pytest.py of a sub-package of torch_openreg, if there is one.

The plugin is found by its path, because an import of torch_openreg imports torch, and some of the plugin's options must
be known before.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

for _path in Path(__file__).parent.glob("torch_openreg/*/_pytest.py"):
    # As a package, so that the plugin can import the files beside it.
    _spec = importlib.util.spec_from_file_location(__name__, _path, submodule_search_locations=[str(_path.parent)])
    assert _spec is not None and _spec.loader is not None
    sys.modules[__name__] = _module = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(_module)
