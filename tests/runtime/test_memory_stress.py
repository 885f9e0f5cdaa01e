"""Tensors of several threads, streams and devices under load, and the same program on 1, 2 and 8 devices.

The C++ programs of tests/device_library/stress do this below PyTorch, for longer and under sanitizers: ``make stress``.
"""

from __future__ import annotations

import os

import programs
import pytest
from comparison import PRELUDE

pytestmark = pytest.mark.slow

STRESS = """
import gc, random, sys, threading, time
SEED, SECONDS, THREADS = int(sys.argv[1]), float(sys.argv[2]), 8
torch.set_num_threads(1)
deadline = time.monotonic() + SECONDS
failures, actions, refused = [], [0] * THREADS, [0] * THREADS
mailbox, mailbox_lock = [], threading.Lock()

def work(number):
    pick = random.Random(SEED + number)
    streams = [torch.Stream(f"{DEVICE}:{i % 2}") for i in range(4)]
    kept = []                                   # (tensor, its value everywhere, the stream that wrote it last)

    def use(tensor, writer, stream):            # what a CUDA program must do before it uses a tensor
        stream.wait_stream(writer)
        tensor.record_stream(stream)

    def check(tensor, value, writer):
        with writer:
            found = tensor.cpu()
        if not torch.equal(found, torch.full_like(found, value)):
            raise AssertionError(f"{found.unique().tolist()[:5]} instead of {value}")

    while time.monotonic() < deadline or min(actions) <= 10 or not any(refused):
        actions[number] += 1
        choice, stream = pick.random(), pick.choice(streams)
        try:
            if len(kept) < 2 or choice < 0.3:
                size = 1 << 40 if pick.random() < 0.01 else pick.randrange(1, 1 << pick.randrange(1, 20))
                value = pick.randrange(1000)
                with stream:
                    kept.append((torch.full((size,), value, dtype=torch.int32, device=stream.device), value, stream))
            elif choice < 0.5 or len(kept) > 12:
                kept.pop(pick.randrange(len(kept)))
            elif choice < 0.65:
                i = pick.randrange(len(kept))
                tensor, value, writer = kept[i]
                if stream.device == tensor.device:
                    use(tensor, writer, stream)
                    with stream:
                        tensor.add_(1).mul_(2).remainder_(1009)
                    kept[i] = (tensor, (value + 1) * 2 % 1009, stream)
            elif choice < 0.75:                 # to the other device
                tensor, value, writer = pick.choice(kept)
                with writer:
                    step = pick.choice((1, 2))  # a strided copy runs on the launching thread
                    peer = tensor[::step].to(f"{DEVICE}:{1 - tensor.device.index}")
                kept.append((peer, value, torch.accelerator.current_stream(peer.device)))
                writer.synchronize()
            elif choice < 0.85:
                check(*pick.choice(kept))
            elif choice < 0.93:
                with mailbox_lock:
                    mailbox.append(kept.pop())
                    if len(mailbox) > 8:
                        kept.append(mailbox.pop(0))
            elif choice < 0.97:
                pick.choice([stream.synchronize, lambda: torch.accelerator.synchronize(stream.device)])()
            else:
                torch.accelerator.empty_cache()
        except torch.OutOfMemoryError:
            refused[number] += 1
            del kept[: len(kept) // 2]
    for entry in kept:
        check(*entry)

def guarded(number):
    try:
        work(number)
    except BaseException as error:
        failures.append(repr(error))

print("seed", SEED)
threads = [threading.Thread(target=guarded, args=(i,)) for i in range(THREADS)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
mailbox.clear(); gc.collect()
for device in (0, 1):
    torch.accelerator.synchronize(device)
    torch.empty(1, device=f"{DEVICE}:{device}")
print(failures, [openreg.memory_allocated(device) for device in (0, 1)], min(actions) > 10, sum(refused) > 0)
"""


@pytest.mark.parametrize("mode", ["inline", "async", "chaos"])
def test_threads_on_several_streams_and_devices_lose_no_value_and_no_memory(mode: str) -> None:
    seed = str(int.from_bytes(os.urandom(4), "little"))
    variables = {"OPENREG_EXECUTION": mode, "OPENREG_DEVICE_MEMORY": "48M", "OPENREG_CHAOS_SEED": seed}
    result = programs.python(PRELUDE + STRESS, seed, "3", status=0, **variables)
    assert result.stdout.splitlines() == [f"seed {seed}", "[] [0, 0] True True"], result.stderr


# Each device computes a part of a batch. The sum travels from device to device through peer copies.
RING = """
count = openreg.device_count()
torch.manual_seed(0)
x, w = torch.randint(-9, 10, (64, 64)).double(), torch.randint(-9, 10, (64, 64)).double()
parts = [part.to(f"{DEVICE}:{i}") for i, part in enumerate(x.chunk(count))]
weights = [w.to(f"{DEVICE}:{i}", non_blocking=True) for i in range(count)]
results = [part @ weight for part, weight in zip(parts, weights)]
total = torch.zeros(64, dtype=torch.double, device=DEVICE_0)
for result in results:
    total = total.to(result.device) + result.sum(0)
print([openreg.memory_allocated(i) > 0 for i in range(count)] == [True] * count)
print(torch.equal(torch.cat([r.cpu() for r in results]), x @ w), torch.equal(total.cpu(), (x @ w).sum(0)))
print(total.device.index, openreg.can_device_access_peer(0, 1) if count > 1 else None)
"""


@pytest.mark.parametrize("devices", [1, 2, 8])
def test_the_same_program_runs_on_any_number_of_devices(devices: int) -> None:
    result = programs.python(PRELUDE + RING, OPENREG_DEVICE_COUNT=str(devices), status=0)
    peers = "True" if devices > 1 else "None"
    assert result.stdout.splitlines() == ["True", "True True", f"{devices - 1} {peers}"]
