"""checkpoint_without_map_location.py, repaired."""

import io
import os
import subprocess
import sys

import torch

device = torch.accelerator.current_accelerator().type
file = io.BytesIO()
torch.save(torch.ones(2, device=device), file)
program = "import io, sys, torch; torch.load(io.BytesIO(sys.stdin.buffer.read()), map_location='cpu')"
hidden = {**os.environ, "OPENREG_VISIBLE_DEVICES": ""}
subprocess.run([sys.executable, "-c", program], input=file.getvalue(), env=hidden, check=True)
