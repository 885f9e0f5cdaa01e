"""What the caching allocator reports while a program allocates and frees. Each program has a process of its own."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

KIB, MIB = 1 << 10, 1 << 20
COUNTERS = (
    "allocated_bytes.all.current",
    "allocated_bytes.large_pool.current",
    "allocated_bytes.small_pool.peak",
    "allocation.all.allocated",
    "allocation.all.freed",
    "reserved_bytes.all.current",
    "reserved_bytes.all.peak",
    "segment.all.current",
    "segment.large_pool.allocated",
    "active_bytes.all.current",
    "active.all.current",
    "inactive_split_bytes.all.current",
    "inactive_split.all.peak",
    "requested_bytes.all.current",
    "num_alloc_retries",
    "num_ooms",
    "num_device_alloc",
    "num_device_free",
)


# Where a block lies decides about these. A freed block of up to 1 MiB is merged with its neighbours later than by CUDA.
PLACED = ("reserved", "segment", "inactive", "device_alloc", "device_free")


def comparable(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer without the counters that depend on where blocks lie, and without requested sizes of free blocks."""
    value = answer.get("value")
    if not isinstance(value, list) or not value or not isinstance(value[0], list):
        return answer
    if len(value) > 100:
        kept = [i for i, name in enumerate(COUNTERS) if not any(word in name for word in PLACED)]
        return answer | {"value": [[row[i] for i in kept] for row in value]}
    if len(value[0]) == 2 and isinstance(value[0][0], list):
        return answer | {
            "value": [[head, [[s, 0 if state == "inactive" else r, state] for s, r, state in b]] for head, b in value]
        }
    return answer


class Diary:
    """Keeps tensors by name, and notes the allocator's counters after each step."""

    def __init__(self, device: str, module: ModuleType) -> None:
        self.device, self.module = device, module
        self.kept: dict[str, torch.Tensor] = {}
        self.noted: list[list[int]] = []

    def note(self) -> None:
        stats = self.module.memory_stats()
        self.noted.append([stats[name] for name in COUNTERS])

    def take(self, name: str, size: int) -> None:
        """Allocates `size` bytes."""
        self.kept[name] = torch.empty(size, dtype=torch.uint8, device=self.device)
        self.note()

    def free(self, *names: str) -> None:
        for name in names:
            del self.kept[name]
        self.note()

    def empty(self) -> None:
        self.module.empty_cache()
        self.note()


def segments(module: ModuleType) -> list[Any]:
    """The snapshot without addresses: for each segment its pool, size and the sizes, states of its blocks."""
    return sorted(
        [
            [s["segment_type"], s["total_size"], s["allocated_size"], s["active_size"], s["requested_size"]],
            [[b["size"], b["requested_size"], b["state"]] for b in s["blocks"]],
        ]
        for s in module.memory_snapshot()
    )


SIZES = (
    "[1, 511, 512, 513, 1023, 4 * KIB, MIB - 1, MIB, MIB + 1, 2 * MIB, 5 * MIB, 10 * MIB - 1, 10 * MIB, 10 * MIB + 1,"
)
SIZES += " 19 * MIB, 20 * MIB, 21 * MIB + 3, 33 * MIB]"

# A hundred steps: sizes of both pools, splits, joins of neighbours, best fit, reuse of a larger block, and the cache.
SCRIPT = """
d = Diary(DEVICE, module)
d.take("a", 1)
d.take("b", 512)
d.take("c", 513)
d.take("d", 100 * KIB)
d.take("e", 900 * KIB)
d.take("f", MIB)
d.take("g", MIB + 1)
d.take("h", 3 * MIB)
d.take("i", 9 * MIB)
d.take("j", 10 * MIB)
d.take("k", 11 * MIB)
d.take("l", 50 * MIB + 1)
d.free("b")
d.take("b", 400)
d.free("d", "e")
d.take("d", 990 * KIB)
d.free("g")
d.take("g", 2 * MIB)
d.take("m", 2 * MIB)
d.free("h")
d.free("i")
d.take("n", 12 * MIB)
d.take("o", 6 * MIB)
d.take("p", 5 * MIB)
d.empty()
d.free("l")
d.take("q", 49 * MIB)
d.take("r", 30 * MIB)
d.free("q")
d.take("s", 20 * MIB)
d.take("t", 20 * MIB)
d.take("u", 9 * MIB)
d.free("s")
d.free("t")
d.take("v", 41 * MIB)
d.empty()
d.free("a", "b", "c")
d.take("a", 1536)
d.take("b", 1537)
d.free("f")
d.take("f", 700 * KIB)
d.take("w", 300 * KIB)
d.take("x", 300 * KIB)
d.free("w")
d.take("w", 299 * KIB)
d.free("x", "w", "f")
d.take("x", 600 * KIB)
d.free("j")
d.take("j", 7 * MIB)
d.take("y", 3 * MIB)
d.take("z", 2 * MIB)
d.free("j", "z")
d.take("j", 9 * MIB)
d.empty()
d.free("y")
d.free("k")
d.take("k", 10 * MIB + 1)
d.take("aa", 10 * MIB - 1)
d.take("ab", 10 * MIB - 512)
d.free("aa")
d.take("ac", 8 * MIB)
d.take("ad", MIB)
d.take("ae", MIB + 512)
d.free("ab")
d.empty()
d.take("af", 200 * MIB)
d.free("af")
d.take("ag", 100 * MIB)
d.take("ah", 60 * MIB)
d.take("ai", 39 * MIB)
d.free("ag")
d.take("aj", 101 * MIB)
d.free("ah")
d.take("ak", 150 * MIB)
d.free("ai")
d.take("al", 160 * MIB)
d.empty()
for i in range(20):
    d.take(f"small{i}", 70 * KIB * (i + 1))
for i in range(0, 20, 2):
    d.free(f"small{i}")
d.empty()
for i in range(10):
    d.take(f"large{i}", 3 * MIB * (i + 1))
for i in range(9, -1, -3):
    d.free(f"large{i}")
d.take("last", 13 * MIB)
d.free(*list(d.kept))
d.empty()
d.noted
"""

PROGRAMS = [
    SCRIPT,
    SCRIPT.replace("d.noted", "COUNTERS"),
    # One allocation of each size, in a fresh process: what is counted and what is reserved.
    f"kept, out = [], []\nfor size in {SIZES}:\n"
    "    kept.append(torch.empty(size, dtype=torch.uint8, device=DEVICE))\n"
    "    out.append([size, module.memory_allocated(), module.memory_reserved(), module.max_memory_allocated()])\nout",
    # Each size alone.
    f"out = []\nfor size in {SIZES}:\n"
    "    x = torch.empty(size, dtype=torch.uint8, device=DEVICE)\n"
    "    out.append([size, module.memory_allocated(), module.memory_reserved()])\n"
    "    del x\n    module.empty_cache()\nout",
    f"kept = [torch.empty(size, dtype=torch.uint8, device=DEVICE) for size in {SIZES}]\nsegments(module)",
    f"kept = [torch.empty(size, dtype=torch.uint8, device=DEVICE) for size in {SIZES}]\ndel kept[::2]\n"
    f"segments(module)",
    f"kept = [torch.empty(size, dtype=torch.uint8, device=DEVICE) for size in {SIZES}]\ndel kept[1::2]\n"
    "module.empty_cache()\nsegments(module)",
    "sorted(module.memory_stats())",
    "[module.memory_allocated(), module.memory_reserved(), module.max_memory_allocated(), "
    "module.max_memory_reserved()]",
    "x = torch.empty(0, device=DEVICE)\n[module.memory_allocated(), module.memory_reserved(), x.data_ptr()]",
    "x = torch.ones(1000, device=DEVICE)\ny = x.view(10, 100)[2:].t()\ndel x\nmodule.memory_allocated()",
    "x = torch.ones(1000, device=DEVICE)\nx.untyped_storage().resize_(100000)\n"
    "[module.memory_allocated(), x.untyped_storage().nbytes()]",
    "x = torch.ones(1000, device=DEVICE)\nx.untyped_storage().resize_(0)\n"
    "[module.memory_allocated(), module.memory_reserved()]",
    "x = torch.empty(30 * MIB, dtype=torch.uint8, device=DEVICE)\ndel x\nmodule.reset_peak_memory_stats()\n"
    "y = torch.empty(5 * MIB, dtype=torch.uint8, device=DEVICE)\n"
    "[module.max_memory_allocated(), module.max_memory_reserved(), module.memory_reserved()]",
    "x = torch.empty(30 * MIB, dtype=torch.uint8, device=DEVICE)\nmodule.reset_accumulated_memory_stats()\ndel x\n"
    "s = module.memory_stats()\n"
    "[s['allocation.all.allocated'], s['allocation.all.freed'], s['allocated_bytes.all.freed'], "
    "s['segment.all.freed']]",
    # A stream has blocks of its own, and gets no block that another stream freed.
    "side = module.Stream()\nx = torch.empty(3 * MIB, dtype=torch.uint8, device=DEVICE)\ndel x\nout = []\n"
    "with module.stream(side):\n    y = torch.empty(3 * MIB, dtype=torch.uint8, device=DEVICE)\n"
    "    out.append([module.memory_allocated(), module.memory_reserved()])\ndel y\n"
    "z = torch.empty(3 * MIB, dtype=torch.uint8, device=DEVICE)\n"
    "out.append([module.memory_allocated(), module.memory_reserved()])\nout",
    # A block with an event that is not complete is not free, but is not allocated either.
    "side = module.Stream()\nx = torch.empty(3 * MIB, dtype=torch.uint8, device=DEVICE)\nx.record_stream(side)\n"
    "module.synchronize()\ndel x\nmodule.synchronize()\ny = torch.empty(3 * MIB, dtype=torch.uint8, device=DEVICE)\n"
    "[module.memory_allocated(), module.memory_reserved()]",
    # Training: the memory of parameters, gradients and an optimizer.
    "net = torch.nn.Sequential(*[torch.nn.Linear(64, 64, device=DEVICE) for _ in range(4)])\n"
    "out = [module.memory_allocated()]\noptimizer = torch.optim.Adam(net.parameters(), foreach=False)\n"
    "for p in net.parameters():\n    p.grad = torch.zeros_like(p)\nout.append(module.memory_allocated())\n"
    "optimizer.step()\nout.append(module.memory_allocated())\noptimizer.zero_grad()\n"
    "out.append(module.memory_allocated())\nout",
    # Saved tensors of autograd.
    "x = torch.ones(MIB, device=DEVICE, requires_grad=True)\nout = [module.memory_allocated()]\ny = x.exp()\n"
    "out.append(module.memory_allocated())\nz = y.sin()\nout.append(module.memory_allocated())\ndel y\n"
    "out.append(module.memory_allocated())\nz.sum().backward()\nout.append(module.memory_allocated())\ndel z\n"
    "out.append(module.memory_allocated())\nout",
    # The limit of a process.
    "total = module.mem_get_info()[1]\nmodule.set_per_process_memory_fraction(64 * MIB / total)\nout = []\n"
    "for size in (20 * MIB, 20 * MIB, 30 * MIB, 40 * MIB, 64 * MIB, 65 * MIB):\n    x = None\n    try:\n"
    "        x = torch.empty(size, dtype=torch.uint8, device=DEVICE)\n        out.append('fits')\n"
    "    except torch.OutOfMemoryError:\n        out.append('does not fit')\n"
    "    s = module.memory_stats()\n"
    "    out.append([s['num_ooms'], s['num_alloc_retries'], s['reserved_bytes.all.current']])\n"
    "out",
    "import re\ntotal = module.mem_get_info()[1]\nmodule.set_per_process_memory_fraction(64 * MIB / total)\n"
    "x = torch.empty(30 * MIB, dtype=torch.uint8, device=DEVICE)\n"
    "try:\n    torch.cuda.caching_allocator_alloc(100 * MIB)\nexcept torch.OutOfMemoryError as error:\n"
    "    said = str(error)\n"
    "re.sub(r'(total capacity of|of which|this process has) [\\d.]+ [KMG]iB|Process \\d+ has "
    "[\\d.]+ [KMG]iB memory in use. ',"
    " r'\\1 N', said)",
    "torch.empty(1 << 61, dtype=torch.uint8, device=DEVICE)",
    "torch.empty(1 << 63, dtype=torch.uint8, device=DEVICE)",
    "torch.empty(-1, device=DEVICE)",
    "module.set_per_process_memory_fraction(1.5)",
    "module.set_per_process_memory_fraction('a')",
    "pool = module.MemPool()\nout = [pool.use_count()]\nwith module.use_mem_pool(pool):\n"
    "    x = torch.empty(30 * MIB, dtype=torch.uint8, device=DEVICE)\n    out.append(pool.use_count())\n"
    "out.append(pool.use_count())\nout.append(module.memory_reserved())\nmodule.empty_cache()\n"
    "out.append(module.memory_reserved())\ndel x\nout.append(module.memory_reserved())\nmodule.empty_cache()\n"
    "out.append(module.memory_reserved())\ndel pool\nout.append(module.memory_reserved())\nmodule.empty_cache()\n"
    "out.append(module.memory_reserved())\nout",
    "pool = module.MemPool()\nx = torch.empty(3 * MIB, dtype=torch.uint8, device=DEVICE)\ndel x\n"
    "with module.use_mem_pool(pool):\n    y = torch.empty(3 * MIB, dtype=torch.uint8, device=DEVICE)\n"
    "z = torch.empty(3 * MIB, dtype=torch.uint8, device=DEVICE)\n"
    "[module.memory_reserved(), len(pool.snapshot()), len(module.memory_snapshot())]",
    "module.memory._record_memory_history()\nx = torch.empty(3 * MIB, dtype=torch.uint8, device=DEVICE)\ndel x\n"
    "module.empty_cache()\nmodule.synchronize()\nshot = module.memory._snapshot()\n"
    "[[t['action'], t['size']] for t in shot['device_traces'][0]]",
    "module.memory._record_memory_history(stacks='python')\nx = torch.empty(100, device=DEVICE)\n"
    "y = torch.empty(100, device=DEVICE)\ndel x\nshot = module.memory._snapshot()\n"
    "[sorted(shot), sorted(shot['segments'][0]), sorted(shot['segments'][0]['blocks'][0]),"
    " [[t['action'], t['size'], sorted(t)] for t in shot['device_traces'][0]]]",
    "sorted(torch.cuda.host_memory_stats())",
    "x = torch.empty(1000, pin_memory=True)\ns = torch.cuda.host_memory_stats()\n"
    "[s[k] for k in ('allocation.current', 'allocated_bytes.current', 'allocations.current', "
    "'segment.current') if k in s]",
    "out = []\nfor size in (1, 511, 512, 1000, 4096, 5000, 100000, 3 * MIB):\n"
    "    x = torch.empty(size, dtype=torch.uint8, pin_memory=True)\n    s = torch.cuda.host_memory_stats()\n"
    "    out.append({k: v for k, v in s.items() if k in ('allocated_bytes.current', "
    "'allocated_bytes.peak', 'num_host_alloc')})\n"
    "out",
    "p = torch.cuda.caching_allocator_alloc(1000)\nout = [type(p).__name__, torch.cuda.memory_allocated()]\n"
    "torch.cuda.caching_allocator_delete(p)\nout.append(torch.cuda.memory_allocated())\nout",
    "torch.cuda.caching_allocator_delete(12345)",
    "torch.cuda.memory._set_allocator_settings('nonsense:1')",
    "torch.cuda.memory._set_allocator_settings('max_split_size_mb:1')",
    "torch.cuda.memory._set_allocator_settings('max_split_size_mb:5')",
    "torch.cuda.memory._set_allocator_settings('roundup_power2_divisions:3')",
    "torch.cuda.memory._set_allocator_settings('garbage_collection_threshold:2.0')",
    "torch.cuda.memory._set_allocator_settings('backend:other')",
    "torch.cuda.memory._set_allocator_settings('expandable_segments:maybe')",
    "torch.cuda.memory._set_allocator_settings('')",
    "torch.cuda.memory._set_allocator_settings('max_split_size_mb')",
    "torch.cuda.memory._set_allocator_settings('roundup_power2_divisions:[256:1,512:2,>:4]')",
    "module.memory._set_allocator_settings('roundup_power2_divisions:4')\nout = []\n"
    "for size in (600, 1000, 1100, 5000, 70000, MIB + 1, 3 * MIB, 11 * MIB, 37 * MIB):\n"
    "    x = torch.empty(size, dtype=torch.uint8, device=DEVICE)\n"
    "    out.append([size, module.memory_allocated(), module.memory_reserved()])\nout",
    "module.memory._set_allocator_settings('max_split_size_mb:30')\nd = Diary(DEVICE, module)\nd.take('a', 50 * MIB)\n"
    "d.free('a')\nd.take('b', 40 * MIB)\nd.take('c', 5 * MIB)\nd.free('b')\nd.take('e', 10 * MIB)\n"
    "d.take('f', 45 * MIB)\n"
    "d.noted",
    "d = Diary(DEVICE, module)\nd.take('a', 30 * MIB)\nd.free('a')\nmodule.empty_cache()\n"
    "module.reset_peak_memory_stats()\n"
    "module.memory_summary(abbreviated=True)",
    "module.memory_summary()",
    "x = torch.empty(1000, device=DEVICE)\nmodule.memory_summary()",
    "import gc\nx = torch.empty(1000, device=DEVICE)\n"
    "module.memory_allocated(DEVICE + ':0'), module.memory_allocated(0)",
    "module.memory_allocated(7)",
    "module.memory_stats(7)",
    "module.max_memory_allocated(7)",
    "module.reset_peak_memory_stats(7)",
    "module.memory_allocated('cpu')",
    "module.mem_get_info(7)",
    "[type(n).__name__ for n in module.mem_get_info()]",
    "torch.cuda.list_gpu_processes()",
    "torch.cuda.get_allocator_backend()",
    "torch.cuda.memory.get_allocator_backend()",
    "x = torch.empty(3 * MIB, dtype=torch.uint8, device=DEVICE)\nx.record_stream(torch.cuda.Stream())\n"
    "s = torch.cuda.memory_snapshot()\n[sorted(s[0]), sorted(s[0]['blocks'][0])]",
]
