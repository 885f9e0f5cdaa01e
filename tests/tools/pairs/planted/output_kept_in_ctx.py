"""A Function keeps its output as an attribute of ctx, which is a cycle through C++."""

import torch

device = torch.accelerator.current_accelerator()


class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()  # BUG
        ctx.y = y  # BUG, not in the repair
        # REPAIR: ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        y = ctx.y  # BUG, not in the repair
        # REPAIR: (y,) = ctx.saved_tensors
        return grad * y


weight = torch.zeros(64, 64, device=device, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.01)
for _ in range(8):
    loss = Exp.apply(weight).mean()  # BUG
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"{loss.item():.4f}")
