"""What ends a process's use of a GPU, and what such a process hears afterwards. Each program has its own process."""

from __future__ import annotations

from collections.abc import Callable


def told(*calls: Callable[[], object]) -> list[str]:
    """The type and the first line of what each call raises, or "nothing"."""
    heard = []
    for call in calls:
        try:
            call()
            heard.append("nothing")
        except Exception as error:
            heard.append(f"{type(error).__qualname__}: {str(error).splitlines()[0]}")
    return heard


AFTER = "told(torch.accelerator.synchronize, lambda: torch.ones(2, device=DEVICE), lambda: torch.ones(2).to(DEVICE),"
AFTER += " lambda: good.cpu(), lambda: (good + 1).sum().item(), module.empty_cache, lambda: module.Stream(),"
AFTER += " lambda: module.Event().record(), module.memory_allocated, lambda: torch.ones(2).add(1))"

# Programs that make a kernel on the device find a wrong operand.
ASSERTS = {
    "index": "x[torch.tensor([9], device=DEVICE)]",
    "index_put": "x[torch.tensor([9], device=DEVICE)] = 1.0",
    "gather": "x.gather(0, torch.tensor([9], device=DEVICE))",
    "scatter": "x.scatter(0, torch.tensor([9], device=DEVICE), 1.0)",
    "index_select": "x.index_select(0, torch.tensor([9], device=DEVICE))",
    "take": "x.take(torch.tensor([9], device=DEVICE))",
    "embedding": "F.embedding(torch.tensor([9], device=DEVICE), torch.ones(4, 2, device=DEVICE))",
    "nll_loss": "F.nll_loss(torch.ones(2, 3, device=DEVICE), torch.tensor([0, 9], device=DEVICE))",
    "cross_entropy": "F.cross_entropy(torch.ones(2, 3, device=DEVICE), torch.tensor([0, 9], device=DEVICE))",
    "multinomial": "torch.multinomial(torch.tensor([-1.0, 1.0], device=DEVICE), 1)",
    "bernoulli": "torch.bernoulli(torch.tensor([2.0], device=DEVICE))",
    "binary_cross_entropy": "F.binary_cross_entropy(torch.tensor([2.0], device=DEVICE), torch.ones(1, device=DEVICE))",
    "one_hot": "F.one_hot(torch.tensor([9], device=DEVICE), 3)",
    "_assert_async": "torch._assert_async(torch.tensor(0, device=DEVICE))",
    "_assert_async with a message": "torch._assert_async(torch.tensor(0, device=DEVICE), 'said so')",
    "index_add": "x.index_add(0, torch.tensor([9], device=DEVICE), torch.ones(1, device=DEVICE))",
    "index_fill": "x.index_fill(0, torch.tensor([9], device=DEVICE), 1.0)",
    "index_copy": "x.index_copy(0, torch.tensor([9], device=DEVICE), torch.ones(1, device=DEVICE))",
    "bincount": "torch.bincount(torch.tensor([-1], device=DEVICE))",
    "multi_margin_loss": "F.multi_margin_loss(torch.ones(1, 3, device=DEVICE), torch.tensor([9], device=DEVICE))",
    "freed memory": "y = torch.ones(4, device=DEVICE); y.untyped_storage().resize_(0); y + 1",
}
GOOD = "good, x = torch.ones(2, device=DEVICE), torch.ones(4, device=DEVICE)\n"

PROGRAMS = [
    f"{GOOD}told(lambda: exec({code!r}, globals()), torch.accelerator.synchronize)" for code in ASSERTS.values()
]
# What a program that catches the error hears of each later call.
PROGRAMS += [f"{GOOD}{ASSERTS[name]}\n{AFTER}" for name in ("index", "scatter")]
# The whole text of the error, from a call that waits.
PROGRAMS += [
    f"{GOOD}{ASSERTS['index']}\ntorch.accelerator.synchronize()",
    f"{GOOD}{ASSERTS['index']}\nx.cpu()",
    f"{GOOD}{ASSERTS['index']}\nx.sum().item()",
    f"{GOOD}{ASSERTS['index']}\nmodule.synchronize()",
    f"{GOOD}{ASSERTS['_assert_async with a message']}\nmodule.synchronize()",
    f"{GOOD}{ASSERTS['index']}\nmodule.current_stream().synchronize()",
    f"{GOOD}{ASSERTS['index']}\ne = module.Event()\ne.record()\ne.synchronize()",
    # The attributes of the error.
    f"{GOOD}{ASSERTS['index']}\ntry:\n    module.synchronize()\nexcept Exception as error:\n    caught = error\n"
    "[type(caught).__mro__[1].__name__, getattr(caught, 'error_code', None)]",
    f"{GOOD}try:\n    {ASSERTS['index']}\n    module.synchronize()\nexcept torch.AcceleratorError as error:\n"
    "    caught = error\n"
    "type(caught).__name__",
]
