"""Builds the library against the PyTorch that is installed, so build with ``--no-build-isolation``."""

import os

# `import torch` would load a backend that is installed already, and a build must not need it.
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

STEP = int(os.environ.get("ABACUS_STEP", "1"))
SOURCES = ["csrc/device.cpp", "csrc/operators.cpp", "csrc/backend.cpp" if STEP < 3 else "csrc/step3/backend.cpp"]
if STEP == 2:
    SOURCES += ["csrc/step2/caching_allocator.cpp"]
if STEP >= 2:
    SOURCES += ["csrc/step2/fallback.cpp"]
if STEP == 3:
    SOURCES += ["csrc/step3/allocator.cpp", "csrc/step3/generator.cpp", "csrc/step3/queues.cpp"]

setup(
    ext_modules=[
        CppExtension(
            "torch_abacus._C",
            SOURCES,
            # hidden: a process may load two backends made from these sources; they must not see each other's symbols.
            extra_compile_args=["-std=c++20", "-fvisibility=hidden", "-DAT_PER_OPERATOR_HEADERS"],
        )
    ],
    cmdclass={"build_ext": BuildExtension.with_options(use_ninja=False)},
    # Always: setuptools would keep the library of another step, because its sources are no newer.
    options={"build_ext": {"force": True}},
)
