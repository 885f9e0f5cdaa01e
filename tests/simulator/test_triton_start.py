"""OPENREG_TRITON, without Triton: a module of its name stands for it. tests/integrations/test_triton.py has Triton."""

from __future__ import annotations

from pathlib import Path

import programs
import pytest


@pytest.fixture
def modules(tmp_path: Path) -> str:
    """A folder with a package triton, which reads Triton's variable as late as Triton does."""
    package = tmp_path / "triton"
    package.mkdir()
    (package / "__init__.py").write_text("import triton.knobs, triton.language\n")
    (package / "knobs.py").touch()
    (package / "language.py").write_text("import os\n\ninterprets = os.environ.get('TRITON_INTERPRET')\n")
    return str(tmp_path)


READS = "import triton.language; print(triton.language.interprets)"


def test_the_variable_switches_tritons_interpreter_on(modules: str) -> None:
    for value, expected in (("interpret", "1"), ("refuse", "None")):
        settings = {"OPENREG_TRITON": value, "PYTHONPATH": modules}
        programs.python(f"import torch; {READS}", output=f"{expected}\n", errors="", **settings)


def test_a_variable_that_comes_too_late_is_reported(modules: str) -> None:
    settings = {"OPENREG_TRITON": "interpret", "PYTHONPATH": modules}
    result = programs.python(f"{READS}; import torch", status=0, **settings)
    assert "OPENREG_TRITON=interpret has no effect, because triton was imported before torch." in result.stderr


def test_another_value_is_refused() -> None:
    result = programs.python("import torch", OPENREG_TRITON="compile", TORCH_OPENREG_AUTOLOAD="strict")
    assert "OPENREG_TRITON is 'compile'. Set it to refuse (the default) or interpret, or unset it." in result.stderr
