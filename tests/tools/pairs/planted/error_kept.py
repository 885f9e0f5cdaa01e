"""The last error is kept for a log, and its traceback keeps the tensors of the failed call."""

import torch

device = torch.accelerator.current_accelerator()
last_error = None


def attempt(n):
    work = torch.ones(n, device=device)
    more = torch.ones(n, device=device)  # BUG
    return (work + more).sum().item()  # BUG


def run(n):
    global last_error
    for _ in range(2):
        try:
            return attempt(n)
        except torch.OutOfMemoryError as error:
            last_error = error  # BUG, not in the repair
            # REPAIR: last_error = str(error)
            print("out of memory, again")
            torch.accelerator.empty_cache()
    raise SystemExit("no memory")


print(sum(run(n) for n in (1 << 16, 1 << 17, 1 << 18)))
