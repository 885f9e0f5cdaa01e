"""Overlap, waiting and measuring. Run: OPENREG_EXECUTION=async python 04_streams_and_events.py"""

# %% Work of one stream runs in order; work of two streams does not, unless an event says so.
import torch

main = torch.openreg.current_stream()
side = torch.openreg.Stream()

# %% The side stream uses what the main stream makes, so it waits for it ...
x = torch.randn(1000, 1000, device="openreg")
ready = main.record_event()
side.wait_event(ready)
with torch.openreg.stream(side):
    squares = (x * x).sum()
    # ... and the allocator must know that x is in use there, before it gives the memory to somebody else.
    x.record_stream(side)

# %% The main stream in turn waits for the result.
main.wait_stream(side)
squares.record_stream(main)
assert torch.allclose(squares.cpu(), x.cpu().square().sum())

# %% Events with timing measure what lies between them on the device.
start, end = torch.openreg.Event(enable_timing=True), torch.openreg.Event(enable_timing=True)
start.record()
y = x @ x
end.record()
end.synchronize()
print(f"1000 x 1000 matrix product: {start.elapsed_time(end):.2f} ms")
assert start.elapsed_time(end) > 0

# %% A copy from pinned memory does not wait. The host may reuse the buffer when the event has passed, and not before.
buffer = torch.ones(1 << 20).pin_memory()
on_device = buffer.to("openreg", non_blocking=True)
uploaded = torch.openreg.current_stream().record_event()
uploaded.synchronize()
buffer.zero_()
assert on_device.sum().item() == 1 << 20
