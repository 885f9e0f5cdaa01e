"""Triton's driver for the device."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NoReturn

import torch
from triton.backends.compiler import GPUTarget  # type: ignore[import-not-found]
from triton.backends.driver import DriverBase  # type: ignore[import-not-found]

from torch_openreg import _C, openreg
from torch_openreg._identity import device_type
from torch_openreg.simulator.triton import refuse


class _Utils:
    """What programs ask a driver about its devices."""

    @staticmethod
    def get_device_properties(device: int) -> dict[str, int]:
        """Bytes, counts, kHz and bits, as of CUDA's driver. A device model has its own numbers."""
        properties = openreg.get_device_properties(device)
        return {
            "max_shared_mem": properties.shared_memory_per_block_optin,
            "max_num_regs": properties.regs_per_multiprocessor,
            "multiprocessor_count": properties.multi_processor_count,
            "warpSize": properties.warp_size,
            "sm_clock_rate": properties.clock_rate,
            "mem_clock_rate": properties.memory_clock_rate,
            "mem_bus_width": properties.memory_bus_width,
        }


class Driver(DriverBase):
    """The device for Triton's autotuner, ``do_bench`` and the programs that ask for the target. It launches nothing."""

    utils = _Utils
    launcher_cls = staticmethod(refuse)  # of a kernel that triton.compile() has compiled

    @staticmethod
    def is_active() -> bool:
        return True

    def get_current_target(self) -> Any:
        properties = openreg.get_device_properties()
        return GPUTarget(device_type, properties.major * 10 + properties.minor, properties.warp_size)

    def get_active_torch_device(self) -> torch.device:
        return torch.device(device_type, openreg.current_device())

    def get_device_interface(self) -> ModuleType:
        return torch.get_device_module(device_type)

    def get_current_device(self) -> int:
        return openreg.current_device()

    def set_current_device(self, device: int) -> None:
        openreg.set_device(device)

    def get_current_stream(self, device: int) -> int:
        return _C._current_stream_handle(device)

    def get_device_capability(self, device: Any = None) -> tuple[int, int]:
        properties = openreg.get_device_properties(device)
        return properties.major, properties.minor

    def map_python_to_cpp_type(self, ty: str) -> str:
        return refuse(ty)

    def get_benchmarker(self) -> Callable[..., Any]:
        from triton.testing import do_bench  # type: ignore[import-not-found]

        return do_bench

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        """One element: the caches of the host are not those of the device."""
        return torch.empty(1, dtype=torch.int, device=device_type)

    def clear_cache(self, cache: torch.Tensor) -> None:
        cache.zero_()


class _NoCompiler:
    """Stands in Triton's table, where each driver has a compiler."""

    @staticmethod
    def supports_target(target: Any) -> bool:
        return bool(target.backend == "openreg")

    def __new__(cls, *args: object) -> NoReturn:
        refuse()


def add_driver(backends: ModuleType) -> None:
    """Adds the driver to Triton's table. The compiler for its target is Triton's, if Triton has one for that name."""
    backends.backends["torch_openreg"] = backends.Backend(compiler=_NoCompiler, driver=Driver)
