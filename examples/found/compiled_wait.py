"""PyTorch 2.13: inside of a compiled function, the work after an event's wait() does not wait for the event."""

import torch

side = torch.Stream("openreg")


@torch.compile
def compute(x):
    with side:
        y = (x * 2).sin()
        done = torch.Event("openreg")
        done.record()
    z = x.cos()
    done.wait()
    return y + z


compute(torch.ones(200, 300, device="openreg"))
