"""The code that inductor generates: the CPU's loops in C++, kernels that launch them, and Python that calls kernels."""

from __future__ import annotations

import functools
import re
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch._inductor import cpp_builder, exc
from torch._inductor.codegen import common, cpp, cpp_wrapper_cpu, wrapper, wrapper_fxir
from torch._inductor.codegen.cpp_utils import cexpr
from torch._inductor.utils import Placeholder, unique
from torch._inductor.virtualized import V

from torch_openreg._identity import device_type, identity
from torch_openreg.simulator.inductor import _config


# LITERALINCLUDE START: OP OVERRIDES
class OpenRegDeviceOpOverrides(common.DeviceOpOverrides):
    """The lines about devices and streams in the generated Python code."""

    def import_get_raw_stream_as(self, name: str) -> str:
        return f"from torch_openreg._C import _current_stream_handle as {name}"

    def set_device(self, device_idx: int) -> str:
        return "pass"  # the guard around this line has set the device

    def synchronize(self) -> str:
        return "torch.accelerator.synchronize()"

    def device_guard(self, device_idx: int) -> str:
        return f"torch.accelerator.device_index({device_idx})"

    def current_stream(self) -> str:
        return "torch.accelerator.current_stream()"


# LITERALINCLUDE END: OP OVERRIDES


@functools.cache
def _require_compiler() -> None:
    try:
        cpp_builder.get_cpp_compiler()
    except exc.InvalidCxxCompiler as error:
        raise RuntimeError(
            f'torch.compile generates C++ for device "{device_type}" and found no C++ compiler: install g++, name one '
            'in the environment variable CXX, or use torch.compile(backend="aot_eager").'
        ) from error


@functools.cache
def _launch_header() -> str:
    return Path(__file__).with_name("launch.h").read_text()


def _add_launch(source: str, kernel: str, device: torch.device, args: common.KernelArgs) -> str:
    """Returns C++: the function ``source`` under the name ``loops``, and a kernel that launches the function.

    The kernel has the arguments of ``source``, and after them the sizes that only its operands need.
    """
    head, _, function = source.rpartition('extern "C"')
    declaration, _, rest = function.partition("(")
    # The names of the arguments of `source`. All arguments that are pointers come before the sizes.
    loops_arguments = [definition.split()[-1] for definition in args.cpp_argdefs()[0]]
    operands = _operands(function, args)  # may add a size to `args`, so cpp_argdefs() is asked again
    definitions = args.cpp_argdefs()[0]
    addresses = [f"static_cast<{definition.rpartition(' ')[0]}>(at[{i}])" for i, definition in enumerate(definitions)]
    passed = [*addresses[: len(operands)], *loops_arguments[len(operands) :]]
    return "\n".join(
        (
            f'{head.rstrip()}\n#define TORCH_OPENREG_LIBRARY "{identity.library}"\n{_launch_header()}',
            f"static void loops({rest.rstrip()}\n",
            f'extern "C" {declaration.strip()}({", ".join(definitions)})',
            "{",
            f"    const openreg::Operand operands[] = {{{', '.join(operands)}}};",
            f'    openreg::launch({device.index or 0}, "{kernel}", operands, [=](void* const* at) {{',
            f"        loops({', '.join(passed)});",
            "    });",
            "}\n",
        )
    )


def _operands(function: str, args: common.KernelArgs) -> list[str]:
    """The initialisers of the operands, in the order of ``cpp_argdefs()``: address, size in bytes, access."""
    operands = []
    body = function[function.index("{") :]

    def add(buffer: str, name: str, access: str) -> None:
        operands.append(f"{{{name}, {_bytes(buffer, args)}, openreg::{access}}}")

    for inplaced in unique(args.inplace_buffers.values()):
        if not isinstance(inplaced, common.RemovedArg):
            # A fused kernel may make a buffer and then update it. The kernel reads only what it has written there, so
            # the access is a write.
            is_made_here = inplaced.other_names[0] in args.output_buffers
            add(inplaced.other_names[-1], inplaced.inner_name, "write" if is_made_here else "update")
    for buffer, name in args.input_buffers.items():
        if buffer not in args.inplace_buffers:
            add(buffer, name, "read")
    for buffer, output in args.output_buffers.items():
        if buffer not in args.inplace_buffers and not isinstance(output, common.RemovedArg):
            # An atomic addition reads what an earlier kernel wrote, unless this kernel fills the buffer before it.
            first_use = re.search(rf"(\batomic_add\w*(<[^()]*>)?\(&?)?\b{output}\b", body)
            add(buffer, output, "update" if first_use and first_use[1] else "write")
    return operands


def _bytes(name: str, args: common.KernelArgs) -> str:
    """A C++ expression for the bytes from the first element of a buffer to the end of its last element."""
    constant = V.graph.constants.get(name)
    if constant is None:
        buffer: Any = V.graph.get_buffer(name)
        size, stride = list(buffer.get_size()), list(buffer.get_stride())
    else:
        size, stride = list(constant.size()), list(constant.stride())
    if any(length == 0 for length in size):
        return "0"
    last = sympy.sympify(sum((length - 1) * step for length, step in zip(size, stride, strict=True)))
    values = {symbol: sympy.Symbol(args.size(symbol), integer=True) for symbol in last.free_symbols}
    return cexpr((last.xreplace(values) + 1) * V.graph.get_dtype(name).itemsize)


# LITERALINCLUDE START: SCHEDULING
class OpenRegScheduling(cpp.CppScheduling):
    """The CPU's code generator.

    While it generates code, inductor is told that the current device is the CPU, because inductor looks up parts of the
    code generator by the name of the device.
    """

    def __init__(self, scheduler: Any) -> None:
        super().__init__(scheduler)
        if scheduler:
            _require_compiler()

    @staticmethod
    def _as_cpu() -> AbstractContextManager[None]:
        return V.graph.set_current_device(torch.device("cpu"))

    def codegen_node(self, node: Any) -> None:
        with self._as_cpu():
            super().codegen_node(node)

    def codegen_template(self, *args: Any, **kwargs: Any) -> Any:
        with self._as_cpu():
            return super().codegen_template(*args, **kwargs)

    def flush(self) -> None:
        with self._as_cpu():
            super().flush()

    def ready_to_flush(self) -> bool:
        # The call of a kernel must not move behind the lines that change the stream or record an event.
        return super().ready_to_flush() or self._uses_streams

    @functools.cached_property
    def _uses_streams(self) -> bool:
        if not self.scheduler:
            return False
        # The operators that record an event or wait for one have no device, if the graph has one stream only.
        events = (node.is_extern() and node.get_device() is None for node in self.scheduler.nodes)
        return self.scheduler._has_multi_stream_nodes() or any(events)

    def define_kernel(self, src_code: str, nodes: Any, kernel_args: common.KernelArgs | None = None) -> str:
        graph = V.graph.graph_id
        name = f"{'' if graph is None else f'graph_{graph}_'}{Placeholder.DESCRIPTIVE_NAME}"
        device = next(device for node in nodes if (device := node.get_device()) is not None)
        source = _add_launch(src_code, name, device, kernel_args or self.kernel_group.args)
        return super().define_kernel(source, nodes, kernel_args)


# LITERALINCLUDE END: SCHEDULING


# LITERALINCLUDE START: WRAPPER
class _DeviceCalls:
    """The Python code that allocates buffers and calls kernels."""

    def make_allocation(self, name: str, device: torch.device, dtype: torch.dtype, *args: Any, **kwargs: Any) -> str:
        line = super().make_allocation(name, device, dtype, *args, **kwargs)  # type: ignore[misc]
        if device.type == device_type:
            line = line.replace("= empty_strided(", "= empty_strided_openreg(", 1)
            line = line.replace(f"= empty_strided_{device_type}(", "= empty_strided_openreg(", 1)
            line = line.replace(f"device='{device_type}', dtype={dtype}", f"{dtype}", 1)
        return line

    # standalone_compile tunes Triton kernels while it compiles. The device has no Triton kernels.
    def write_triton_header_once(self) -> None:
        pass

    def generate_and_run_autotune_block(self) -> None:
        pass

    def _generate_kernel_call_helper(
        self, kernel_name: str, call_args: Any, *, device: Any = None, **kwargs: Any
    ) -> None:
        device = device or V.graph.get_current_device_or_throw()
        if device.type == device_type:
            device = torch.device("cpu")  # generates a plain call: the kernel finds its stream itself
        super()._generate_kernel_call_helper(kernel_name, call_args, device=device, **kwargs)  # type: ignore[misc]


class OpenRegPythonWrapper(_DeviceCalls, wrapper.PythonWrapperCodegen):  # type: ignore[misc]
    """The Python code of a graph."""

    @staticmethod
    def create(is_subgraph: bool, subgraph_name: Any, parent_wrapper: Any, partition_signatures: Any = None) -> Any:
        if is_subgraph:
            return OpenRegSubgraphWrapper(subgraph_name, parent_wrapper, partition_signatures)
        return OpenRegPythonWrapper()

    def write_header(self) -> None:
        super().write_header()
        self.header.splice("from torch_openreg._C import _empty_strided as empty_strided_openreg")


class OpenRegSubgraphWrapper(_DeviceCalls, wrapper.SubgraphPythonWrapperCodegen):  # type: ignore[misc]
    """The Python code of a graph within another graph, such as a branch of ``torch.cond``."""


# LITERALINCLUDE END: WRAPPER


class OpenRegCppWrapper(cpp_wrapper_cpu.CppWrapperCpu):
    """Raises for ``cpp_wrapper`` and for AOTInductor without a package, which generate C++ instead of the Python code."""

    @staticmethod
    def create(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            f'torch._inductor.config.cpp_wrapper and torch._export.aot_compile are not supported for device "{device_type}": '
            "use torch.compile, or torch._inductor.aoti_compile_and_package for a file."
        )


# LITERALINCLUDE START: REGISTER
def register() -> None:
    """Makes inductor generate code for the device."""
    # This call registers PyTorch's overrides, of which some may be for our type. Our registration replaces these.
    common.get_device_op_overrides("cpu")
    common.register_device_op_overrides(device_type, OpenRegDeviceOpOverrides())
    common.register_backend_for_device(
        device_type,
        OpenRegScheduling,
        OpenRegPythonWrapper,
        OpenRegCppWrapper,
        wrapper_fxir.WrapperFxCodegen,
        device_custom_config=_config,  # type: ignore[arg-type]
    )


# LITERALINCLUDE END: REGISTER
