"""Level 7: fake tensors (which have shapes but no data), captured graphs, and compiled programs."""

import torch

from ..kit import NotOffered, equal, raises, same
from ..registry import Topic

fakes = Topic(
    "compiled/fake",
    why="torch.compile first runs a program on fake tensors, which have no data. If a fake tensor has a wrong shape, "
    "stride or device, the compiled program is wrong.",
    defined="torch/_subclasses/fake_tensor.py; torch/_meta_registrations.py",
    chapter="compilation",
    needs=("storage",),
    issue="pytorch/pytorch#183396",
)


@fakes.check()
def fake_tensors_keep_the_device(device):
    """Under FakeTensorMode, the results of operators have the right shape, dtype and device, and take no memory."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    def dtypes(where):
        i, f = torch.ones(3, dtype=torch.int64, device=where), torch.ones(3, 3, device=where)
        return [t.dtype for t in (i / 2, i > 1, i.sum(), i + f, f @ f, f.to(torch.bfloat16) * 2, f.max(0).indices)]

    expected = dtypes("cpu")
    with FakeTensorMode():
        equal(dtypes(device), expected)
        x = torch.empty(1 << 20, 1 << 20, device=device)
        y = x @ x
        equal((tuple(y.shape), y.device.type), ((1 << 20, 1 << 20), torch.device(device).type))
        z = torch.nn.functional.conv2d(torch.empty(1, 3, 8, 8, device=device), torch.empty(4, 3, 3, 3, device=device))
        equal(tuple(z.shape), (1, 4, 6, 6))


@fakes.check()
def fake_tensors_check_devices(device):
    """Under FakeTensorMode, mixing the CPU and the device raises, as it does with data."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    if torch.device(device).type == "cpu":
        raise NotOffered("the device is the CPU, so there is no second device to mix with the CPU")
    with FakeTensorMode(), raises(RuntimeError, "(?i)device"):
        torch.empty(3, device=device) + torch.empty(3)


@fakes.check()
def strides_agree_with_fakes(device):
    """For a set of operators, the result under FakeTensorMode has the same strides as the result on the device."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    def calls(x, image):
        return [x + 1, x.t() + 1, x @ x.t(), x.sum(0), x.softmax(1), image * 2, x.cumsum(1), torch.cat([x, x], 1),
                torch.nn.functional.max_pool2d(image, 2), image.mean((2, 3)), x.sort(0)[0], x.clone(), x.t().contiguous()]  # fmt: skip

    def inputs():
        image = torch.ones(2, 4, 6, 6, device=device).to(memory_format=torch.channels_last)
        return torch.ones(3, 5, device=device), image

    real = [t.stride() for t in calls(*inputs())]
    with FakeTensorMode():
        equal([t.stride() for t in calls(*inputs())], real)


@fakes.check()
def a_meta_tensor_is_materialised(device):
    """A module made on meta gets memory on the device from to_empty(), and its weights from load_state_dict()."""
    with torch.device("meta"):
        model = torch.nn.Linear(3, 2)
    state = torch.nn.Linear(3, 2).state_dict()
    model.to_empty(device=device)
    model.load_state_dict(state)
    same(model(torch.ones(1, 3).to(device)), torch.nn.functional.linear(torch.ones(1, 3), **{"weight": state["weight"], "bias": state["bias"]}))  # fmt: skip


graphs = Topic(
    "compiled/graphs",
    why="torch.export and torch.compile capture a program as a graph. The graph names the devices of the tensors.",
    defined="torch/fx, torch/export, torch/_dynamo/device_interface.py",
    chapter="compilation",
)


@graphs.check()
def a_traced_graph_runs(device):
    """make_fx captures a function of tensors of the device, and the captured graph gives the function's result."""
    from torch.fx.experimental.proxy_tensor import make_fx

    def f(x):
        return (x * 2).relu().sum(0)

    x = torch.arange(-3.0, 3.0).to(device).reshape(2, 3)
    same(make_fx(f)(x)(x), f(x.cpu()))


@graphs.check("storage", quick=False)
def an_exported_program_runs(device):
    """torch.export of a module on the device gives a program with the module's outputs."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).to(device)
    x = torch.ones(3, 4).to(device)
    program = torch.export.export(model, (x,))
    same(program.module()(x), model(x).cpu())


@graphs.check("dynamo")
def the_eager_backend_runs(device):
    """torch.compile(backend="eager") captures a function in one graph and gives the right gradient."""
    torch._dynamo.reset()

    def f(x):
        return (x * 3).sin().sum()

    x = torch.ones(4).to(device).requires_grad_()
    torch.compile(f, backend="eager", fullgraph=True)(x).backward()
    same(x.grad, 3 * torch.cos(torch.full((4,), 3.0)))


@graphs.check("dynamo")
def functionalization_runs(device):
    """torch.compile(backend="aot_eager") of a function with an in-place operator on a view gives the right gradient."""
    torch._dynamo.reset()

    def f(x):
        y = x.clone()
        y[0].mul_(2)
        return (y.t() @ y).sum()

    x = torch.ones(3, 4).to(device).requires_grad_()
    z = torch.ones(3, 4, requires_grad=True)
    torch.compile(f, backend="aot_eager", fullgraph=True)(x).backward()
    f(z).backward()
    same(x.grad, z.grad)


inductor = Topic(
    "compiled/inductor",
    why="Programs use torch.compile to run faster. If Inductor has no code generator for the device, it raises.",
    defined="torch/_inductor/codegen/common.py: register_backend_for_device; torch/_dynamo/device_interface.py",
    chapter="compilation",
    needs=("compiler", "dynamo"),
    issue="pytorch/pytorch#185252",
)


@inductor.check(quick=False)
def a_compiled_function_agrees(device):
    """torch.compile of a pointwise function and a reduction gives eager's result and gradient."""
    torch._dynamo.reset()

    def f(x):
        return (x.sin() * x).softmax(-1).sum(0)

    x = torch.randn(8, 16, generator=torch.Generator().manual_seed(0))
    given, held = x.to(device).requires_grad_(), x.clone().requires_grad_()
    got, wanted = torch.compile(f)(given), f(held)
    same(got, wanted, rtol=1e-4, atol=1e-4)
    got.pow(2).sum().backward(), wanted.pow(2).sum().backward()
    same(given.grad, held.grad, rtol=1e-4, atol=1e-4)


@inductor.check(quick=False)
def a_compiled_module_trains(device):
    """In the fourth training step, a compiled module has the same loss as the eager module."""
    torch._dynamo.reset()
    losses = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 1)).to(device)
        call = torch.compile(model) if compiled else model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = torch.ones(5, 4).to(device)
        for _ in range(4):
            loss = (call(x) - 1).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses.append(loss.detach().cpu())
    same(losses[1], losses[0], rtol=1e-3, atol=1e-4)
