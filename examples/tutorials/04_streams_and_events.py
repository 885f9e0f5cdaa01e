"""Overlap, waiting and measuring. Run: OPENREG_EXECUTION=async python 04_streams_and_events.py"""

# %% The work of one stream runs in order. The work of two streams has no order, unless an event makes one.
import torch

main = torch.openreg.current_stream()
side = torch.openreg.Stream()

# %% The side stream uses a tensor that the main stream makes, so it waits for the main stream ...
x = torch.randn(1000, 1000, device="openreg")
ready = main.record_event()
side.wait_event(ready)
with torch.openreg.stream(side):
    squares = (x * x).sum()
    # ... and the allocator must know that the side stream uses x, before it gives the memory to another tensor.
    x.record_stream(side)

# %% The main stream then waits for the result.
main.wait_stream(side)
squares.record_stream(main)
assert torch.allclose(squares.cpu(), x.cpu().square().sum())

# %% Two events with timing measure the time between them on the device.
start, end = torch.openreg.Event(enable_timing=True), torch.openreg.Event(enable_timing=True)
start.record()
y = x @ x
end.record()
end.synchronize()
print(f"1000 x 1000 matrix product: {start.elapsed_time(end):.2f} ms")
assert start.elapsed_time(end) > 0

# %% With non_blocking, the host does not wait for a copy from pinned memory. An event says when the copy is done.
buffer = torch.ones(1 << 20).pin_memory()
on_device = buffer.to("openreg", non_blocking=True)
uploaded = torch.openreg.current_stream().record_event()
uploaded.synchronize()
buffer.zero_()
assert on_device.sum().item() == 1 << 20
