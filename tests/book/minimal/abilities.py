"""What a user expects of a device: small programs that check their results. docs/minimal-operators.md names them."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ABILITIES: dict[str, Callable[[str], object]] = {}


def ability(name: str) -> Callable[[Callable[[str], object]], None]:
    """Adds a program. It gets the device's name, and raises if the device cannot do what `name` says."""

    def add(program: Callable[[str], object]) -> None:
        ABILITIES[name] = program

    return add


def equal(tensor: Tensor, expected: object) -> None:
    """Raises if the elements of `tensor` differ from `expected`, a list."""
    assert tensor.tolist() == expected, f"{tensor.tolist()} is not {expected}"


@ability("`torch.empty`")
def _(device: str) -> None:
    assert torch.empty(2, 3, device=device).shape == (2, 3)


@ability("`torch.zeros`, `ones`, `full`")
def _(device: str) -> None:
    equal(torch.zeros(2, device=device), [0, 0])
    equal(torch.ones(2, device=device), [1, 1])
    equal(torch.full((2,), 7, device=device), [7, 7])


@ability("`torch.arange`, `linspace`, `eye`")
def _(device: str) -> None:
    equal(torch.arange(3, device=device), [0, 1, 2])
    equal(torch.eye(2, device=device), [[1, 0], [0, 1]])


@ability("`torch.tensor(list, device=)`")
def _(device: str) -> None:
    equal(torch.tensor([1.5, 2.5], device=device), [1.5, 2.5])


@ability("`.to(device)`, `.cpu()`")
def _(device: str) -> None:
    assert torch.equal(torch.arange(4.0).to(device).cpu(), torch.arange(4.0))


@ability("copies from and into views")
def _(device: str) -> None:
    x = torch.arange(6.0).reshape(2, 3).to(device)
    assert torch.equal(x.t().cpu(), torch.arange(6.0).reshape(2, 3).t())
    x[:, 1].copy_(torch.zeros(2))
    equal(x, [[0, 0, 2], [3, 0, 5]])


@ability("`.item()`, `if tensor:`")
def _(device: str) -> None:
    assert torch.tensor([2.5]).to(device)[0].item() == 2.5
    assert bool(torch.ones(1).to(device))


@ability("`print(tensor)`")
def _(device: str) -> None:
    assert repr(torch.tensor([1.0, 2.0]).to(device)) == f"tensor([1., 2.], device='{device}:0')"


@ability("`x + y`, `x * 2`, `x.sum()`")
def _(device: str) -> None:
    x = torch.arange(3.0).to(device)
    equal(x + x, [0, 2, 4])
    equal((x * 2).sum(), 6)


@ability("`x += y`, `out=`")
def _(device: str) -> None:
    x = torch.arange(3.0).to(device)
    x += x
    equal(x, [0, 2, 4])
    equal(torch.add(x, x, out=torch.empty(3, device=device)), [0, 4, 8])


@ability("`out=` that must be resized")
def _(device: str) -> None:
    x = torch.arange(3.0).to(device)
    equal(torch.add(x, x, out=torch.empty(0, device=device)), [0, 2, 4])


@ability("`x @ y`, `cat`, `x[index]`, `sort`")
def _(device: str) -> None:
    x = torch.tensor([[2.0, 1.0], [4.0, 3.0]]).to(device)
    equal(x @ x, [[8, 5], [20, 13]])
    equal(torch.cat([x[0], x[1]]), [2, 1, 4, 3])
    equal(x[torch.tensor([1]).to(device)], [[4, 3]])
    equal(x.sort().values, [[1, 2], [3, 4]])


@ability("`x[1:]`, `x.t()`, `expand`, `unsqueeze`")
def _(device: str) -> None:
    x = torch.arange(4.0).to(device)
    equal(x[1:], [1, 2, 3])
    equal(x.unsqueeze(1).expand(4, 2).t(), [[0, 1, 2, 3]] * 2)


@ability("`view`, `flatten`")
def _(device: str) -> None:
    x = torch.arange(4.0).to(device)
    y = x.view(2, 2)
    y.copy_(torch.ones(2, 2))
    equal(x, [1, 1, 1, 1])
    equal(y.flatten(), [1, 1, 1, 1])


@ability("`reshape` (a view if possible)")
def _(device: str) -> None:
    x = torch.arange(4.0).to(device)
    x.reshape(2, 2).copy_(torch.ones(2, 2))
    equal(x, [1, 1, 1, 1])
    equal(x.reshape(2, 2).t().reshape(4), [1, 1, 1, 1])


@ability("`unfold`")
def _(device: str) -> None:
    equal(torch.arange(4.0).to(device).unfold(0, 2, 2), [[0, 1], [2, 3]])


@ability("`torch.view_as_real`, `view_as_complex`")
def _(device: str) -> None:
    z = torch.tensor([1 + 2j]).to(device)
    torch.view_as_real(z).copy_(torch.zeros(1, 2))
    equal(z, [0j])
    x = torch.zeros(1, 2).to(device)
    torch.view_as_complex(x).copy_(torch.tensor([1 + 2j]))
    equal(x, [[1, 2]])


@ability("views that keep the backend's own metadata of their base (`BackendMeta`)")
def _(device: str) -> None:
    x = torch.zeros(2, device=device)
    torch._utils.set_tensor_metadata(x, {"version_number": True})
    for view in (x.view(2), x.view(torch.int32), torch.ops.aten.alias(x), x[1:]):
        assert torch._utils.get_tensor_metadata(view).get("version_number"), "the view lost the metadata"


@ability("`.contiguous()`, `.clone()`, `.double()`")
def _(device: str) -> None:
    x = torch.arange(4.0).reshape(2, 2).to(device).t()
    equal(x.contiguous().clone().double(), [[0, 2], [1, 3]])


@ability("`x.resize_()`")
def _(device: str) -> None:
    x = torch.arange(2.0).to(device)
    assert x.resize_(4).shape == (4,)
    equal(x[:2], [0, 1])


@ability("`x.set_(y)`")
def _(device: str) -> None:
    y = torch.arange(2.0).to(device)
    equal(torch.empty(0, device=device).set_(y), [0, 1])


@ability("copies between two types and two devices")
def _(device: str) -> None:
    x = torch.arange(3).to(device, torch.float32)
    equal(x, [0, 1, 2])
    equal(torch.empty(3, dtype=torch.double, device=f"{device}:1").copy_(x), [0, 1, 2])


@ability("`x.set_(storage)`")
def _(device: str) -> None:
    y = torch.arange(2.0).to(device)
    equal(torch.empty(0, device=device).set_(y.untyped_storage()), [0, 1])


@ability("`x.set_(storage, offset, size, stride)`")
def _(device: str) -> None:
    y = torch.arange(4.0).to(device)
    equal(torch.empty(0, device=device).set_(y.untyped_storage(), 1, (2,), (2,)), [1, 3])


@ability("`x.set_()`")
def _(device: str) -> None:
    x = torch.arange(2.0).to(device)
    assert x.set_().numel() == 0


@ability("`x.data = y`")
def _(device: str) -> None:
    x = torch.zeros(2).to(device)
    x.data = torch.ones(3).to(device)
    equal(x, [1, 1, 1])


@ability("`module.to(device)`, with the parameters of an earlier optimizer")
def _(device: str) -> None:
    module = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(module.parameters())
    module.to(device)
    assert module.weight.device.type == device
    trained = optimizer.param_groups[0]["params"]
    assert all(ours is its for ours, its in zip(trained, module.parameters(), strict=True)), "other parameters"


@ability("`x.record_stream(stream)`")
def _(device: str) -> None:
    torch.zeros(2).to(device).record_stream(torch.Stream(device))


@ability("`torch.save`, `torch.load`")
def _(device: str) -> None:
    file = io.BytesIO()
    torch.save(torch.arange(3.0).to(device), file)
    file.seek(0)
    equal(torch.load(file), [0, 1, 2])


@ability("`randn`, `bernoulli`, of the device's generator")
def _(device: str) -> None:
    torch.manual_seed(0)
    first = torch.randn(3, device=device)
    torch.manual_seed(0)
    assert first.tolist() == torch.randn(3, device=device).tolist()


@ability("backward of elementwise operators and products")
def _(device: str) -> None:
    x = torch.tensor([1.0, 2.0]).to(device).requires_grad_()
    ((x * x).sum() + x @ x).backward()
    equal(x.grad, [4, 8])  # type: ignore[arg-type]


@ability("backward through a zero gradient")
def _(device: str) -> None:
    x = torch.tensor([1.0, 2.0]).to(device).requires_grad_()
    torch.func.jvp(lambda t: t.detach() * 2 + t, (x.detach(),), (torch.ones(2).to(device),))
    (x.std() * 0 + x.sum()).backward()


@ability("a training step of a linear network")
def _(device: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 3)).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    x, y = torch.randn(5, 4).to(device), torch.tensor([0, 1, 2, 0, 1]).to(device)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[2] < losses[0]


@ability("a convolution")
def _(device: str) -> None:
    equal(F.conv2d(torch.ones(1, 1, 2, 2).to(device), torch.ones(1, 1, 2, 2).to(device)), [[[[4]]]])


@ability("attention")
def _(device: str) -> None:
    x = torch.ones(1, 1, 2, 4).to(device)
    equal(F.scaled_dot_product_attention(x, x, x), torch.ones(1, 1, 2, 4).tolist())


@ability("an LSTM")
def _(device: str) -> None:
    nn.LSTM(2, 3).to(device)(torch.ones(4, 1, 2).to(device))


def _try_out(names: list[str], rows: str, write_end: int) -> None:
    os.environ["OPENREG_ROWS"] = rows
    import torch_openreg  # noqa: F401

    for name in names:
        try:
            ABILITIES[name]("openreg")
            error = ""
        except Exception as failure:
            first = str(failure).strip().partition("\n")[0].partition(". ")[0]
            error = f"{type(failure).__name__}: {first}"
        os.write(write_end, (json.dumps([name, error]) + "\n").encode())


def run(rows: str) -> str:
    """Runs the programs in a forked child that loads the backend with these rows. After a crash a new child goes on.

    Returns what failed, as JSON: name -> the error, or "crash".
    """
    left, failed = list(ABILITIES), {}
    while left:
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read_end)
            try:
                _try_out(left, rows, write_end)
            finally:
                os._exit(0)
        os.close(write_end)
        with os.fdopen(read_end) as results:
            for line in results:
                name, error = json.loads(line)
                left.remove(name)
                if error:
                    failed[name] = error
        os.waitpid(child, 0)
        if left:
            failed[left.pop(0)] = "crash"
    return json.dumps(failed)
