"""One tensor in two processes. Run: python 06_sharing_between_processes.py"""

import torch
import torch.multiprocessing as mp


# %% The other process gets a handle, and maps the same memory at an address of its own. Nothing is copied.
# LITERALINCLUDE START: WORKER
def double(requests, replies) -> None:
    for tensor in iter(requests.get, None):
        tensor.mul_(2)
        replies.put(tensor.sum().item())  # .item() waits, so the sender may read the tensor now
        del tensor  # until here the sender's allocator keeps the memory


# LITERALINCLUDE END: WORKER


def main() -> None:
    # %% The process is spawned, because a forked process cannot use a device that its parent has started.
    context = mp.get_context("spawn")
    requests, replies = context.SimpleQueue(), context.SimpleQueue()
    process = context.Process(target=double, args=(requests, replies), daemon=True)
    process.start()

    # LITERALINCLUDE START: SENDER
    x = torch.arange(4.0, device="openreg")
    requests.put(x)  # waits for the current stream, so that the other process finds the numbers
    assert replies.get() == 12.0
    print(x)
    # LITERALINCLUDE END: SENDER
    assert x.tolist() == [0.0, 2.0, 4.0, 6.0]

    # %% The sender may release the tensor at once. The memory stays until the receiver has released it too.
    before = torch.openreg.memory_allocated()
    requests.put(torch.ones(1 << 20, device="openreg"))
    assert torch.openreg.memory_allocated() - before == 4 << 20
    assert replies.get() == 2 << 20

    requests.put(None)
    process.join()
    torch.openreg.ipc_collect()  # otherwise the memory is freed at the next send, or if memory runs out
    assert torch.openreg.memory_allocated() == before
    print("all of it came back")


if __name__ == "__main__":
    main()
