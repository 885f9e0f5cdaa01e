"""``python -m torch_openreg doctor`` about the name cuda."""

from __future__ import annotations

from pathlib import Path

import programs
import pytest
from cuda_builds import AS_CUDA
from environments import Environment
from programs import Done


def doctor(environment: Environment, **variables: str) -> Done:
    command = (environment.python, "-m", "torch_openreg", "doctor")
    return programs.run(*command, cwd=environment.folder, new_interpreter=True, **variables)


@pytest.mark.slow
@AS_CUDA
def test_the_first_line_says_that_cuda_is_simulated(shared_environment: Environment) -> None:
    result = doctor(shared_environment, TORCH_OPENREG_AS="cuda")
    first, *_, verdict = result.stdout.splitlines()
    assert (
        first == "Device: cuda, provided by torch_openreg (TORCH_OPENREG_AS=cuda). It is simulated: this is not a GPU."
    )
    assert verdict.startswith("`import torch` works here, in ") and verdict.endswith(" s, with device 'cuda'.")
    assert (result.returncode, result.stderr) == (0, "") and "TORCH_OPENREG_AS=cuda\n" in result.stdout


@pytest.mark.slow
def test_a_face_that_fails_is_a_backend_that_finds_no_device(shared_environment: Environment) -> None:
    result = doctor(shared_environment, TORCH_OPENREG_AS="gpu")
    assert result.returncode == 1
    assert result.stdout.startswith("Device: none. `import torch` does not load torch_openreg here")
    assert (
        'loads, but finds no device: The device "openreg" is not available: torch_openreg failed in check_environment: '
        "ValueError: TORCH_OPENREG_AS is 'gpu'. Set it to openreg (the default) or cuda, or unset it\n"
    ) in result.stdout
    verdict = result.stdout.splitlines()[-1]
    assert verdict.startswith("`import torch` works here, in ") and verdict.endswith(" s, with no PrivateUse1 device.")


def test_a_build_of_pytorch_with_rocm_is_told_what_the_name_needs(
    shared_environment: Environment, tmp_path: Path
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('libc10.so: cannot open shared object file')\n")
    (tmp_path / "torch" / "version.py").write_text("__version__ = '2.99.0'\nhip: Optional[str] = '7.0'\n")
    result = doctor(shared_environment, PYTHONPATH=str(tmp_path))
    assert result.stdout.startswith(
        "Device: none. `import torch` does not load torch_openreg here, or torch_openreg fails.\n"
        "TORCH_OPENREG_AS=cuda needs a CPU build of PyTorch: pip install torch==2.99.0+cpu --index-url "
        "https://download.pytorch.org/whl/cpu\n"
    )
