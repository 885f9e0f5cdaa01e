"""Compares random sequences of collectives on the device, bit for bit, with the same sequences over gloo on the CPU.

    python -m tests.distributed.distributed_sequences --sequences 2000 --ranks 3

The seed of a sequence gives every rank the same operators, sizes, types, groups and streams, and the moments at which
it waits for asynchronous collectives. Values are small integers, so that the order of a summation changes no result.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import torch
import torch.distributed as dist
from torch import Tensor

DTYPES = (torch.float32, torch.float64, torch.float16, torch.int32, torch.int64, torch.uint8)
SIZES = (0, 1, 5, 64, 1000, 1025, 5000, 40_000)
OPERATORS = (
    "all_reduce",
    "broadcast",
    "reduce",
    "all_gather",
    "all_gather_into_tensor",
    "reduce_scatter_tensor",
    "all_to_all_single",
    "gather",
    "scatter",
    "ring",
    "batch",
    "collect",
    "barrier",
)


class Player:
    """Plays a sequence on one kind of device, in groups of its backend."""

    def __init__(self, device: torch.device, groups: list[tuple[list[int], Any]]) -> None:
        self.device = device
        self.groups = groups

    def play(self, seed: int) -> list[Tensor]:
        chance = random.Random(seed)
        self.stream = torch.Stream(self.device) if self.device.type != "cpu" else None
        self.pending: list[tuple[Tensor, list[Any], Any]] = []
        results = []
        for step in range(chance.randint(2, 8)):
            plan = {
                "op": chance.choice(OPERATORS),
                "numel": chance.choice(SIZES),
                "sent": chance.choice((*SIZES, 300_000)),  # the last one is longer than the pipe between two ranks
                "dtype": chance.choice(DTYPES),
                "group": chance.randrange(len(self.groups)),
                "root": chance.randrange(100),
                "reduction": chance.choice((dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.MIN)),
                "async": chance.random() < 0.5,
                "side": chance.random() < 0.3,
                "wait": chance.random() < 0.5,
                "splits": [[chance.randrange(4) for _ in range(8)] for _ in range(8)],
            }
            if self.stream is not None and plan["side"]:
                with self.stream:
                    result = self.step(plan, seed + step)
                torch.accelerator.current_stream().wait_stream(self.stream)
            else:
                result = self.step(plan, seed + step)
            results += result
            if plan["wait"]:
                self.wait()
        self.wait()
        return [result.cpu() for result in results]

    def wait(self) -> None:
        for _, works, _ in self.pending:
            for work in works:
                work.wait()
        self.pending.clear()

    def step(self, plan: dict[str, Any], seed: int) -> list[Tensor]:
        ranks, group = self.groups[plan["group"]]
        if dist.get_rank() not in ranks:
            return []
        size, me = len(ranks), ranks.index(dist.get_rank())
        root = plan["root"] % size
        numel, dtype, asynchronous = plan["numel"], plan["dtype"], plan["async"]

        def values(of: int, count: int) -> Tensor:
            return ((torch.arange(count) * (of + 1) + seed) % 3).to(dtype).to(self.device)

        def zeros(count: int) -> Tensor:
            return torch.zeros(count, dtype=dtype, device=self.device)

        options = {"group": group, "async_op": asynchronous}
        name = plan["op"]
        outputs: list[Tensor]
        kept: Any = None
        if name in ("all_reduce", "reduce"):
            outputs = [values(me, numel)]
            if name == "reduce":
                work = dist.reduce(outputs[0], ranks[root], plan["reduction"], **options)
            else:
                work = dist.all_reduce(outputs[0], plan["reduction"], **options)
            if name == "reduce" and me != root:
                kept, outputs = outputs, []  # on these ranks gloo leaves partial sums in the outputs
        elif name == "broadcast":
            outputs = [values(me, numel)]
            work = dist.broadcast(outputs[0], ranks[root], **options)
        elif name == "all_gather":
            outputs = [zeros(numel) for _ in range(size)]
            work = dist.all_gather(outputs, values(me, numel), **options)
        elif name == "all_gather_into_tensor":
            outputs = [zeros(numel * size)]
            work = dist.all_gather_into_tensor(outputs[0], values(me, numel), **options)
        elif name == "reduce_scatter_tensor":
            outputs = [zeros(numel)]
            work = dist.reduce_scatter_tensor(outputs[0], values(me, numel * size), **options)
        elif name == "all_to_all_single":
            rows = max(numel // 8, 1)
            sends = [plan["splits"][me][to] * rows for to in range(size)]
            arrivals = [plan["splits"][of][me] * rows for of in range(size)]
            outputs = [zeros(sum(arrivals))]
            work = dist.all_to_all_single(outputs[0], values(me, sum(sends)), arrivals, sends, **options)
        elif name == "gather":
            outputs = [zeros(numel) for _ in range(size)] if me == root else []
            work = dist.gather(values(me, numel), outputs or None, ranks[root], **options)
        elif name == "scatter":
            outputs = [zeros(numel)]
            parts = [values(to, numel) for to in range(size)] if me == root else None
            work = dist.scatter(outputs[0], parts, ranks[root], **options)
        elif name in ("ring", "batch", "collect") and size == 1:
            return []  # a rank sends nothing to itself
        elif name in ("ring", "batch"):
            numel = plan["sent"]
            outputs = [zeros(numel) for _ in range(2)]
            right, left = ranks[(me + 1) % size], ranks[(me - 1) % size]
            sent = [values(me + number, numel) for number in range(2)]
            if name == "ring":
                works = [dist.isend(sent[0], right, group), dist.irecv(outputs[0], left, group)]
                works += [dist.isend(sent[1], right, group), dist.irecv(outputs[1], left, group)]
            else:
                operations = [dist.P2POp(dist.isend, tensor, right, group) for tensor in sent]
                operations += [dist.P2POp(dist.irecv, tensor, left, group) for tensor in outputs]
                works = dist.batch_isend_irecv(operations)
            self.pending.append((outputs[0], works, [outputs, sent]))
            if not asynchronous:
                self.wait()
            return outputs
        elif name == "collect":  # the root takes the messages of the others as they come
            numel = max(plan["sent"], 1)  # gloo's send waits for ever if a recv from any takes an empty message
            # The root must not take a message that an earlier recv waits for, perhaps on another stream.
            self.wait()
            if self.stream is not None:
                torch.accelerator.synchronize()
            found = {}
            if me == root:
                for _ in range(size - 1):
                    tensor = zeros(numel)
                    found[dist.recv(tensor, group=group)] = tensor
            else:
                self.pending.append((zeros(0), [dist.isend(values(me, numel), ranks[root], group)], None))
            # Without this all_reduce, a fast rank's next message could arrive before a slow rank's of this step.
            everybody = zeros(1)
            dist.all_reduce(everybody, group=group)
            everybody.cpu()  # the host waits, because the next collect may be on another stream
            return [found[of] for of in sorted(found)]
        else:
            outputs = []
            work = dist.barrier(**options) if self.stream is not None else None
            asynchronous = asynchronous and work is not None
        if asynchronous:
            self.pending.append((outputs[0] if outputs else zeros(0), [work], kept))
        return outputs


_players: list[Player] = []


def play(first: int, count: int) -> int:
    """Plays `count` sequences on this rank. Returns the number of results that it compared."""
    if not _players:
        everybody = list(range(dist.get_world_size()))
        subsets = [everybody, everybody[:2], everybody[1:], everybody[::2]]
        device = torch.device("openreg", torch.accelerator.current_device_index())
        groups = [(ranks, dist.new_group(ranks, backend="cpu:gloo,openreg:occl")) for ranks in subsets]
        _players.extend(Player(kind, groups) for kind in (device, torch.device("cpu")))
    compared = 0
    for seed in range(first, first + count):
        actual, expected = (player.play(seed * 100) for player in _players)
        assert len(actual) == len(expected)
        for index, (a, b) in enumerate(zip(actual, expected, strict=True)):
            assert torch.equal(a, b), f"sequence {seed}, result {index}: {a} instead of {b}"
        compared += len(actual)
    return compared


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequences", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--modes", default="inline,async,chaos")
    parser.add_argument("--transports", default="auto,gloo")
    options = parser.parse_args()
    from distributed_group import Group

    for transport in options.transports.split(","):
        group = Group(options.ranks, environment={"OCCL_TRANSPORT": transport})
        for mode in options.modes.split(","):
            begin = time.monotonic()
            compared = 0
            for first in range(options.first, options.first + options.sequences, 100):
                count = min(100, options.first + options.sequences - first)
                compared += sum(group.run("distributed_sequences", "play", first, count, mode=mode, seconds=600))
            print(
                f"{transport} {mode}: {options.sequences} sequences, {compared} results equal, "
                f"{time.monotonic() - begin:.0f} s",
                flush=True,
            )
        group.close()


if __name__ == "__main__":
    main()
