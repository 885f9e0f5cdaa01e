"""A checkpoint of a GPU on a machine without a GPU: `torch.load` has no `map_location`, and no device is visible.

Seen in https://github.com/hkchengrex/Cutie/issues/37
Says: Attempting to deserialize object on a OPENREG device but torch.openreg.is_available() is False. If you are
running on a CPU-only machine, please use torch.load with map_location=torch.device('cpu') to map your storages to the
CPU.
"""

import io
import os
import subprocess
import sys

import torch

device = torch.accelerator.current_accelerator().type
file = io.BytesIO()
torch.save(torch.ones(2, device=device), file)
program = "import io, sys, torch; torch.load(io.BytesIO(sys.stdin.buffer.read()))"
hidden = {**os.environ, "OPENREG_VISIBLE_DEVICES": ""}
subprocess.run([sys.executable, "-c", program], input=file.getvalue(), env=hidden, check=True)
