"""A temporary of a helper function is used on a side stream and freed without record_stream()."""

import torch


def on_side_stream(side, value):
    scratch = value * 3
    side.wait_stream(torch.accelerator.current_stream())
    with side:
        result = scratch.cumsum(0)
    # REPAIR: scratch.record_stream(side)
    return result  # BUG


def main():
    device = torch.accelerator.current_accelerator()
    side = torch.Stream(device=device)
    value = torch.ones(2048, device=device)
    results = []
    for _ in range(4):
        results.append(on_side_stream(side, value))  # BUG
        value = value + 1  # BUG
    side.synchronize()
    torch.accelerator.current_stream().wait_stream(side)
    print([result[-1].item() for result in results])


if __name__ == "__main__":
    main()
