"""Requests run in threads on streams of a pool, and their results are added on the default stream."""

import asyncio

import torch

device = torch.accelerator.current_accelerator()


async def answer(number, pool):
    stream = pool[number % len(pool)]

    def compute():
        stream.wait_stream(torch.accelerator.current_stream())
        with stream:
            x = torch.full((256,), number + 1.0, device=device)
            x = x.log().exp()
        # REPAIR: stream.synchronize()
        return x

    return await asyncio.to_thread(compute)


async def main():
    pool = [torch.Stream(device=device) for _ in range(2)]
    answers = [await answer(number, pool) for number in range(4)]
    print(torch.stack(answers).sum().item())  # BUG


asyncio.run(main())
