"""A pytest plugin: PyTorch's tests for CUDA that ask for Triton, or for a build of PyTorch with CUDA, run on the device.

The device compiles to C++ loops, and PyTorch is a CPU build, whose version of CUDA is None. The tests of graphs need a
GPU, and not these two.
"""

from __future__ import annotations

import logging

import pytest
import torch
from torch._logging._internal import log_registry
from torch.testing._internal import common_utils, inductor_utils


@pytest.hookimpl(tryfirst=True)  # before gone.py makes a stub for HAS_CUDA, a name of older versions
def pytest_configure() -> None:
    here = torch.cuda.is_available()
    vars(common_utils).update(TEST_CUDA_GRAPH=here)
    vars(inductor_utils).update(HAS_CUDA=here, HAS_CUDA_AND_TRITON=here, HAS_GPU=here, HAS_GPU_AND_TRITON=here)
    if here:  # test_cuda.py takes the version apart, to skip tests with an old one
        torch.version.cuda = "13.0"
    # Tests look for a message in what they have put in place of sys.stderr. PyTorch's handlers keep the file that
    # sys.stderr was at import.
    for name in log_registry.get_log_qnames():
        for handler in logging.getLogger(name).handlers:
            handler.__class__ = type(logging.lastResort)
