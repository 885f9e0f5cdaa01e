"""The identity of a device of the type "cuda"."""

from __future__ import annotations

from torch_openreg._identity import DeviceIdentity

IDENTITY = DeviceIdentity(
    type="cuda",
    dispatch_key="CUDA",
    one="a cuda device",
    kind="simulated device",  # a real GPU has the type "cuda" too
    note="It is simulated: this is not a GPU.",
    phases="torch_openreg._cuda._phases:PHASES",
    library="libtorch_openreg_cuda.so",
    operators={
        "aten::convolution_overrideable": "aten::_convolution",
        "aten::convolution_backward_overrideable": "aten::convolution_backward",
    },
    taken_in="HIP",
)
