"""Commands for simulated devices, which torch_openreg._cli finds."""

# Command -> one line of help.
HELP = {
    "check": "run a program many times, with every instrument, and say what is wrong with it",
    "dry": "does a program fit on that GPU: runs it without computing, and says what holds the memory",
    "models": "the accelerators that the device can imitate: lists, compares, says where the values of one come from",
    "run": "execute a program with other devices: `run --as cuda train.py` gives it simulated CUDA devices",
}
# Commands for which main() does not import torch first.
WITHOUT_TORCH = ("check", "dry", "models", "run")
