"""A checkpoint of a GPU on a machine without a GPU: `torch.load` has no `map_location`, and no device is visible.

Seen in https://github.com/hkchengrex/Cutie/issues/37
Says: Attempting to deserialize object on
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
