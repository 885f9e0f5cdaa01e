"""PyTorch 2.13: inductor's code names a stream that it does not define, if the current stream is entered again."""

import torch


def pack(tensor):
    with torch.openreg.stream(torch.openreg.current_stream()):
        return tensor.cpu()


@torch.compile
def compute(x):
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor.to("openreg")):
        return (x.sin() * x).sum()


compute(torch.ones(8, device="openreg", requires_grad=True))
