"""Which operators compute through a stub, and which stubs a backend may fill with the CPU's kernel.

`python tests/book/stub_operators.py` prints the page of the book about them. The facts come from the installed PyTorch. Its headers declare the stubs. For a stub that this backend fills,
the script empties the stub's slot in libtorch_cpu.so and calls operators: those that fail use the stub. For any other
stub, the page gives the operator that the stub is named after.
"""

from __future__ import annotations

import ctypes
import itertools
import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch

sys.path.append(str(Path(__file__).parents[1] / "support"))

from registered import call, operators_of, overload, positive, tensor_arguments

HEADERS = Path(torch.__file__).parent / "include" / "ATen" / "native"

# The pointer of DispatchStubImpl (ATen/native/DispatchStub.h) that holds the kernel, in a build of torch without XPU.
PRIVATEUSE1_SLOT = 6

# Stubs whose CPU kernels take one iterator and reduce. A reduction may ask the iterator's tensors for their addresses.
REDUCTIONS = {
    "and_stub", "argmax_stub", "argmin_stub", "max_values_stub", "mean_stub", "min_values_stub", "nansum_stub",
    "norm_stub", "or_stub", "powsum_stub", "prod_stub", "std_var_stub", "sum_stub", "xor_sum_stub",
}  # fmt: skip


class Stub(NamedTuple):
    """A stub's name, its header, and the C++ type of its kernel."""

    name: str
    header: str
    kernel: str

    @property
    def verdict(self) -> str:
        """Whether this backend may fill the stub with the CPU's kernel, or why not."""
        if "Generator" in self.kernel:
            return "no: takes a generator"
        if not re.match(r"void\s*\(\s*\*\s*\)\s*\(\s*(at::)?TensorIterator(Base)?\s*&", self.kernel):
            return "no: takes more"
        if re.search(r"\b(Tensor|TensorBase|TensorList)\b", self.kernel) or self.kernel.count("TensorIterator") > 1:
            return "no: takes more"
        if self.name in REDUCTIONS:
            return "no: reduces"
        return "its type allows it"


def stubs() -> list[Stub]:
    """All stubs that the headers declare and the library defines in the namespace at::native, by name."""
    found = {}
    for path in sorted(HEADERS.rglob("*.h")):
        text = re.sub(r"//[^\n]*", "", path.read_text())
        types = {name: kernel for name, kernel in re.findall(r"using\s+(\w+)\s*=\s*([^;]+);", text)}
        declarations = re.compile(r"^DECLARE_DISPATCH\(\s*(.*?),\s*(\w+)\s*\)\s*;?\s*$", re.MULTILINE | re.DOTALL)
        for kernel, name in declarations.findall(text):
            kernel = " ".join(types.get(kernel.strip(), kernel).split())
            found[name] = Stub(name, str(path.relative_to(HEADERS)), kernel)
    return [stub for _, stub in sorted(found.items()) if slots(stub.name) is not None]


def slots(name: str) -> Any:
    """The table of a stub in libtorch_cpu.so, or None if the library does not define the stub."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    try:
        return (ctypes.c_void_p * 7).in_dll(library, f"_ZN2at6native{len(name)}{name}E")
    except ValueError:
        return None


def registered() -> set[str]:
    """The stubs that this backend fills."""
    torch.zeros(1, device="openreg")
    return {stub.name for stub in stubs() if slots(stub.name)[PRIVATEUSE1_SLOT]}


def users() -> dict[str, list[str]]:
    """Stub -> the operators of OpenRegStructured.cpp that fail when this backend does not fill the stub."""
    found = {}
    names = [*operators_of("OpenRegStructured"), "kaiser_window"]  # a composite operator that calls a stub
    calls = [(overload(name), operands(overload(name))) for name in names]
    for stub in registered():
        table = slots(stub)
        kernel, table[PRIVATEUSE1_SLOT] = table[PRIVATEUSE1_SLOT], None
        try:
            found[stub] = [op.name().removeprefix("aten::") for op, tensors in calls if lacks_a_kernel(op, tensors)]
        finally:
            table[PRIVATEUSE1_SLOT] = kernel
    return found


def operands(operator: torch._ops.OpOverload) -> list[torch.Tensor]:
    """Tensors for a call of the operator."""
    tensors = [positive(3, seed=seed).to("openreg") for seed in range(tensor_arguments(operator))]
    mask = {"aten::masked_fill_.Scalar": 1, "aten::where.self": 0}.get(operator.name())
    if mask is not None:
        tensors[mask] = tensors[mask] > 0.5
    return tensors


def lacks_a_kernel(operator: torch._ops.OpOverload, tensors: list[torch.Tensor]) -> bool:
    """Whether a call of the operator finds an empty slot."""
    for rounding in (None, "floor", "trunc") if operator.name() == "aten::div.Tensor_mode" else (None,):
        try:
            call(operator, tensors, rounding_mode=rounding, window_length=5, device="openreg")
        except RuntimeError as error:
            assert "DispatchStub: missing kernel for openreg" in str(error), error
            return True
    return False


HEAD = """# Operators that can be registered through a stub

PyTorch's operators compute their inner loop through a *stub*, a table with one kernel for each device type. A backend
that fills its slot in a stub, and registers PyTorch's operator for its dispatch key, gets the operator's checks,
promotion, broadcasting and iteration from PyTorch (`csrc/simulator/borrowed/routes/OpenRegStructured.cpp`). A backend
with kernels of its own may fill every stub. This backend fills a slot with the CPU's kernel. That is correct only if
the kernel takes its addresses from one iterator and from nothing else (`csrc/simulator/borrowed/Stub.h`). The sections
of this page follow from this rule.

`make stubs` writes this page from PyTorch 2.13: the stubs are those that its headers declare in the namespace
`at::native`. The column "header" has paths in the folder `ATen/native`.
"""
# Verdict -> the title of its section, and what the section says.
SECTIONS = {
    "filled here": (
        "Filled by this backend with the CPU's kernel",
        "`tests/operators/test_registrations.py` compares the operators with the CPU at 4M elements. The operators\n"
        "are those of `OpenRegStructured.cpp` that fail without the kernel.",
    ),
    "its type allows it": (
        "Not filled, but the type of the CPU's kernel would allow it",
        "The kernel takes one iterator and numbers. Nothing but this C++ type was checked. The column has the\n"
        "operator after which the stub is named.",
    ),
    "no: takes more": (
        "The CPU's kernel takes tensors, pointers or two iterators, or there is none",
        "The kernel would use the addresses that tensors carry, or that its caller took from them. These are\n"
        "addresses of the device window. Only the addresses of the first iterator are translated\n"
        "(`csrc/simulator/borrowed/Stub.h`).\n"
        "This backend fills `_fused_sdp_choice_stub` with a function of its own, which computes nothing.",
    ),
    "no: reduces": (
        "The CPU's kernel reduces",
        "A reduction in two passes asks the iterator's tensors for their addresses, which are addresses of the device\n"
        "window. Not every one of these kernels makes two passes, but this backend fills none of these stubs.",
    ),
    "no: takes a generator": (
        "The CPU's kernel takes a generator",
        "The kernel expects the CPU's generator, but a tensor of the device comes with the device's generator.",
    ),
}


def named_after(stub: Stub) -> list[str]:
    """The aten operator that a stub is named after, if there is one."""
    name = re.sub("_stub$|_kernel$|Kernel$", "", stub.name)
    name = re.sub(r"(?<!^)(?<!_)([A-Z])", r"_\1", name).lower() if name[0].isupper() else name
    known = (f"{prefix}{name}" for prefix in ("", "_", "special_", "linalg_", "bitwise_"))
    return next(([found] for found in known if hasattr(torch.ops.aten, found)), [])


def in_code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def document() -> str:
    """The page."""
    tried = users()
    found = defaultdict(list)
    for stub in stubs():
        found["filled here" if tried.get(stub.name) else stub.verdict].append(stub)
    lines = [HEAD]
    for verdict, (title, text) in SECTIONS.items():
        lines += [f"## {title}", "", text, ""]
        if verdict.startswith("no"):
            lines += ["| header | stubs |", "|---|---|"]
            for header, group in itertools.groupby(sorted(found[verdict], key=header_of), header_of):
                lines.append(f"| {header} | {in_code(stub.name for stub in group)} |")
        else:
            lines += ["| stub | operators | header |", "|---|---|---|"]
            for stub in found[verdict]:
                operators = in_code(tried.get(stub.name) or named_after(stub))
                lines.append(f"| `{stub.name}` | {operators} | {stub.header} |")
        lines.append("")
    assert sum(map(len, found.values())) == len(stubs()) and found.keys() == SECTIONS.keys()
    return "\n".join(lines)


def header_of(stub: Stub) -> str:
    return stub.header


if __name__ == "__main__":
    print(document(), end="")
