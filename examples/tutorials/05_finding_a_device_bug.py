"""A missing synchronisation that shows only in chaos. Run: OPENREG_EXECUTION=chaos python 05_finding_a_device_bug.py"""

import os

# The variable must be set before the device starts. Queued work then runs only when the host waits for it, and the
# pinned destination of a copy is NaN until the copy is done.
os.environ.setdefault("OPENREG_EXECUTION", "chaos")

import torch

x = torch.ones(1 << 20, device="openreg")
results = [torch.zeros(1 << 20).pin_memory() for _ in range(20)]


# LITERALINCLUDE START: RACE
def download_and_forget(x: torch.Tensor, result: torch.Tensor) -> float:
    """The bug: the copy is queued, and its result is read before the copy has run. A GPU often hides the bug."""
    result.copy_(x, non_blocking=True)
    return result.mean().item()


def download_and_wait(x: torch.Tensor, result: torch.Tensor) -> float:
    result.copy_(x, non_blocking=True)
    torch.accelerator.current_stream().synchronize()
    return result.mean().item()


# LITERALINCLUDE END: RACE


# %% On the CPU, and with inline execution, both functions give 1.0. With chaos the first function gives wrong results.
wrong = [mean for result in results if (mean := download_and_forget(x, result)) != 1.0]
print(f"read too early: {len(wrong)} of {len(results)} results are wrong")
assert wrong

torch.accelerator.synchronize()
assert all(download_and_wait(x, result) == 1.0 for result in results)
print("with the synchronisation: none is")
