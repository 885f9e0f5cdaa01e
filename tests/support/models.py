"""Programs on a device model, for the tests of models under each name of the device."""

from __future__ import annotations

from pathlib import Path

import programs
from programs import Done

ROOT = Path(__file__).parents[2]


def python(code: str, model: str | None = None, **environment: str) -> Done:
    """Runs code in a new process. The code may use ``torch``, ``openreg`` and ``d``, the type of the device."""
    variables = {"OPENREG_MODEL": model} if model else {}
    head = "import torch\nfrom torch_openreg import openreg, _identity\nd = _identity.device_type\n"
    return programs.python(head + code, cwd=ROOT, clean=True, **(variables | environment))


def answer(code: str, model: str | None = None, **environment: str) -> str:
    result = python(code, model, **environment)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


ERROR = """
def error(function):
    try: function()
    except Exception as error: return f"{type(error).__name__}: {error}"
    return "nothing"
"""

TF32 = """
import copy
torch.manual_seed(0)
x = torch.randn(64, 64)
conv = torch.nn.Conv2d(4, 4, 3)
image = torch.randn(1, 4, 16, 16)
def round(t):  # to 10 bits, ties away from zero, in float64
    mantissa, exponent = torch.frexp(t.double())
    scaled = mantissa * 2**11
    return torch.ldexp(torch.sign(scaled) * torch.floor(scaled.abs() + 0.5) / 2**11, exponent).float()
def product(): return (x.to(d) @ x.to(d)).cpu()
def convolved(m): return copy.deepcopy(m).to(d)(image.to(d)).cpu()
rounded = copy.deepcopy(conv)
rounded.weight.data = round(conv.weight.data)
assert torch.equal(product(), x @ x)
print(torch.equal(convolved(conv), conv(image)), torch.equal(convolved(conv), rounded(round(image))))
torch.backends.cudnn.allow_tf32 = False
assert torch.equal(convolved(conv), conv(image))
torch.backends.cuda.matmul.allow_tf32 = True
print(torch.equal(product(), x @ x), torch.equal(product(), round(x) @ round(x)))
"""

GRADIENTS = """
torch.manual_seed(0)
def gradients(d):
    conv, image = torch.nn.Conv2d(4, 4, 3), torch.randn(1, 4, 16, 16)
    conv.to(d)(image.to(d)).square().sum().backward()
    return [each.grad.cpu() for each in conv.parameters()]
torch.manual_seed(0)
expected = gradients("cpu")
torch.manual_seed(0)
print(all(torch.allclose(a, b, 0.05, 0.05) and not torch.equal(a, b) for a, b in zip(gradients(d), expected)))
o = torch.ones(1, 1, 2, 2, dtype=torch.long, device=d)
try: torch.conv2d(o, o)
except RuntimeError as error: print(error)
"""
