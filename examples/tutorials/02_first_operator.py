"""An operator of your own, in C++ and in Python, with its backward. Run: python 02_first_operator.py"""

# %% The kernel in 02_first_operator.cpp is compiled with the headers of the package.
from pathlib import Path

import torch
from torch.utils.cpp_extension import load

import torch_openreg

folder = Path(__file__).parent
(libraries,) = torch_openreg.library_paths()
load(
    name="first_operator",
    sources=[str(folder / "02_first_operator.cpp")],
    extra_include_paths=torch_openreg.include_paths(),
    extra_cflags=["-std=c++20"],
    extra_ldflags=[f"-L{libraries}", "-ltorch_openreg", "-lopenreg"],
    is_python_module=False,
)
cube = torch.ops.tutorial.cube

x = torch.tensor([1.0, 2.0, 3.0], device="openreg", requires_grad=True)
print(cube(x.detach()))


# %% The meta kernel gives the shape without the values, for torch.compile and torch.export. The derivative follows.
@torch.library.register_fake("tutorial::cube")
def cube_meta(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def keep_input(ctx, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
    ctx.save_for_backward(*inputs)


def backward(ctx, gradient: torch.Tensor) -> torch.Tensor:
    (x,) = ctx.saved_tensors
    return gradient * 3 * x * x


torch.library.register_autograd("tutorial::cube", backward, setup_context=keep_input)
cube(x).sum().backward()
print(x.grad)
assert x.grad.tolist() == [3.0, 12.0, 27.0]

# %% PyTorch checks the schema and the meta kernel. (Its check of the autograd registration knows only CPU, CUDA, XPU.)
torch.library.opcheck(cube.default, (x,), test_utils=("test_schema", "test_faketensor"))


# %% An operator can be written in Python, too. square() has a kernel for one device type only: a CPU tensor raises.
@torch.library.custom_op("tutorial::square", mutates_args=(), device_types="openreg")
def square(x: torch.Tensor) -> torch.Tensor:
    return x * x


assert square(x.detach()).tolist() == [1.0, 4.0, 9.0]
try:
    square(torch.ones(2))
except NotImplementedError as error:
    print(str(error).split(". ")[0])
