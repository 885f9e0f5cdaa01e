"""Tensors on the device, copies, and what the host must not do. Run: python 01_first_tensor.py"""

# %% The statement "import torch" also loads the installed package torch_openreg, so a program imports only torch.
import torch

print(torch.accelerator.current_accelerator(), "x", torch.accelerator.device_count())

# %% A tensor is made on the device, or copied to it.
a = torch.arange(6.0, device="openreg").reshape(2, 3)
b = torch.ones(2, 3).to("openreg")
print(a + b)

# %% The kernels are the CPU's, so the numbers are equal to the CPU's, to the last bit.
torch.manual_seed(0)
on_device = torch.randn(1000, device="openreg").exp().sum()
torch.manual_seed(0)
on_cpu = torch.randn(1000).exp().sum()
assert on_device.item() == on_cpu.item()

# %% As on CUDA, an operator refuses tensors of two devices, but accepts a CPU tensor without dimensions as a number.
print(a * torch.tensor(2.0))
try:
    a * torch.ones(2, 3)
except RuntimeError as error:
    print(error)

# %% The host cannot read device memory. A copy to the CPU makes the values visible.
try:
    a.numpy()
except TypeError as error:
    print(error)
print(a.cpu().numpy())

# %% Each device has its own memory, with a capacity. The allocator counts the bytes that tensors occupy.
before = torch.openreg.memory_allocated()
big = torch.empty(1 << 20, device="openreg")  # 4 MiB
assert torch.openreg.memory_allocated() - before == 4 << 20
try:
    torch.empty(1 << 44, device="openreg")
except torch.OutOfMemoryError as error:
    print(str(error).split(". ")[0])

# %% There are two devices by default. One of them is current, and "openreg" means the current device.
with torch.openreg.device(1):
    c = torch.ones(2, device="openreg")
assert c.device == torch.device("openreg:1")
assert torch.equal(c.to("openreg:0").cpu(), c.cpu())
