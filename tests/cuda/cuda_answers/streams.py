"""Streams and events: attributes, equality, priorities, contexts, timing, and refused uses."""

from __future__ import annotations

import re
from typing import Any

import torch


def masked(value: Any) -> str:
    """The repr without handles and ids."""
    return re.sub(r"0x[0-9a-f]+|\d{2,}", "N", repr(value))


def busy(device: str, module: Any) -> None:
    """Occupies the current stream for a tenth of a second or more."""
    if hasattr(module, "_sleep"):
        module._sleep(200_000_000)
        return
    matrix = torch.zeros(1500, 1500, device=device)
    for _ in range(4):
        matrix = matrix @ matrix


# s, t: two streams of the device; e: an event; x: a tensor.
_STREAMS = [
    "masked(s), masked(module.current_stream()), masked(module.default_stream())",
    "sorted(n for n in dir(s) if n[0] != '_')",
    "sorted(n for n in dir(e) if n[0] != '_')",
    "[type(s).__name__, isinstance(s, torch.Stream), str(s.device), s.device_index, s.priority, s.query(), "
    "s.device_type]",
    "[type(module.Stream).__name__, module.Stream.__mro__[1].__name__, module.Event.__mro__[1].__name__]",
    "d = module.default_stream(); [d.stream_id, d.priority, d.query(), str(d.device), "
    "d == module.current_stream(), d is s]",
    "module.current_stream() is module.current_stream(), module.current_stream() == module.default_stream()",
    "s == t, s == s, s != t, s == 1, s == None, s == module.Stream(stream_id=s.stream_id, device_index=0, "
    "device_type=s.device_type)",
    "hash(s) == hash(s), hash(s) == hash(t), len({s, t, s}), s in [t], s in [s]",
    "s < t",
    "s.nonsense",
    "s.priority = 1",
    "s.stream_id = 1",
    "s.mine = 1; s.mine",
    "import pickle; pickle.dumps(s)",
    "import copy; copy.copy(s) == s",
    "import copy; copy.deepcopy(s)",
    "bool(s), callable(s), s.synchronize(), s.query()",
    "module.Stream.priority_range()",
    "s.priority_range()",
    "[module.Stream(priority=p).priority for p in (-100, -5, -2, -1, 0, 1, 2, 100)]",
    "[module.Stream(0, p).priority for p in (-1, 0)], module.Stream(priority=True).priority",
    "module.Stream(priority='high')",
    "module.Stream(priority=1.5)",
    "module.Stream(priority=2**40).device_index",
    "module.Stream(device=7)",
    "module.Stream(device=-1).device_index",
    "module.Stream(device='cpu')",
    "module.Stream(device=DEVICE).device_index, module.Stream(torch.device(DEVICE, 0)).device_index",
    "module.Stream(device=DEVICE + ':7')",
    "module.Stream(device=None).device_index, module.Stream(device=1.5).device_index",
    "module.Stream(nonsense=1).device_index",
    "module.Stream(stream_id=1).device_index",
    "module.Stream(stream_id=0, device_index=0, device_type=s.device_type) == module.default_stream()",
    "module.Stream(stream_id=0, device_index=7, device_type=s.device_type).device_index",
    "module.Stream(stream_ptr=0) == module.default_stream()",
    "len({module.Stream().stream_id for _ in range(40)}), "
    "len({module.Stream(priority=-1).stream_id for _ in range(40)})",
    "torch.Stream().device_index",
    "u = torch.Stream(); [type(u).__name__, str(u.device), u == module.current_stream(), "
    "repr(u)[:40].count('torch.Stream')]",
    "u = torch.Stream(DEVICE); [type(u).__name__, u.device_index, u.query(), u.synchronize(), u.native_handle > 0]",
    "u = torch.Stream(DEVICE)\ntry: r = module.set_stream(u)\nfinally: module.set_stream(module.default_stream())\nr",
    "u = torch.Stream(DEVICE); x.record_stream(u); u.wait_stream(s); s.wait_stream(u); u == s",
    "u = torch.Stream(DEVICE)\nwith u: r = [module.current_stream() == u, "
    "module.current_stream().stream_id == u.stream_id]\nr",
    "u = torch.Stream(DEVICE)\nwith module.stream(u): r = module.current_stream().stream_id == u.stream_id\nr",
    "torch.Stream(DEVICE + ':7').device_index",
    "torch.Stream('cpu')",
    "torch.Stream(device=DEVICE, priority=-1).device_index",
    "torch.Stream(stream_id=0, device_index=0, device_type=s.device_type) == module.default_stream()",
    "torch.Stream(s)",
    "u = torch.Stream(DEVICE); v = u.record_event(); [type(v).__name__, str(v.device), v.query() in (True, False)]",
    "u = torch.Stream(DEVICE); v = torch.Event(DEVICE, enable_timing=True); v.record(u); s.wait_event(v); "
    "v.synchronize(); v.query()",
    "v = torch.Event(DEVICE); v.record(s); v.wait(t); v.wait(); v.synchronize(); [v.query(), type(v).__name__]",
    "torch.Event('cpu')",
    "torch.Event(DEVICE + ':7')",
    "torch.Event().device.type",
    "v = torch.Event(DEVICE); w = torch.Event(DEVICE); v.record(); w.record(); w.synchronize(); v.elapsed_time(w)",
    "v = torch.Event(DEVICE); w = torch.Event(DEVICE); v.elapsed_time(w)",
    "v = torch.Event(DEVICE); [v.query(), v.event_id, v.synchronize(), masked(v)]",
    "v = torch.Event(DEVICE); v.ipc_handle()",
    # Current streams and contexts.
    "with module.stream(s): r = [module.current_stream() == s, "
    "module.default_stream() == s]\nr + [module.current_stream() == s]",
    "with module.stream(s):\n    with module.stream(t): r = [module.current_stream() == t]\n"
    "    r.append(module.current_stream() == s)\nr",
    "with s:\n    with t: r = [module.current_stream() == t]\n    r.append(module.current_stream() == s)\nr",
    "with s as u: r = [u is s, module.current_stream() == s]\nr",
    "with module.stream(s) as u: r = repr(u)\nr",
    "with module.stream(None): r = module.current_stream() == module.default_stream()\nr",
    "with module.StreamContext(None): r = module.current_stream() == module.default_stream()\nr",
    "c = module.stream(s); [type(c).__name__, c.stream is s, c.idx]",
    "with module.stream(s):\n    with module.stream(module.default_stream()): r = module.current_stream() == "
    "module.default_stream()\nr",
    "with module.stream('x'): pass",
    "with module.stream(7): pass",
    "try:\n    with module.stream(s): raise ValueError\n"
    "except ValueError: r = module.current_stream() == module.default_stream()\nr",
    "c = module.stream(s)\nfor _ in range(2):\n    with c: r = module.current_stream() == s\n[r, "
    "module.current_stream() == s]",
    "with s:\n    with s: r = module.current_stream() == s\n    q = module.current_stream() == s\n[r, q, "
    "module.current_stream() == s]",
    "module.set_stream(s)\ntry: r = module.current_stream() == s\n"
    "finally: module.set_stream(module.default_stream())\nr",
    "module.set_stream(None)",
    "module.set_stream('x')",
    "module.set_stream(torch.Stream(DEVICE))\nr = module.current_stream() == module.default_stream()\n"
    "module.set_stream(module.default_stream())\nr",
    "import threading\nr = []\nwith module.stream(s):\n"
    "    h = threading.Thread(target=lambda: r.append(module.current_stream() == s))\n"
    "    h.start(); h.join()\nr",
    "with module.device(0), module.stream(s): r = [module.current_stream(0) == s, "
    "module.current_stream(DEVICE) == s]\nr",
    "with module.stream(s):\n    with module.device(0): r = module.current_stream() == s\nr",
    "torch.cuda.current_stream().cuda_stream, torch.cuda.default_stream().cuda_stream, s.cuda_stream > 0, "
    "s.cuda_stream == t.cuda_stream",
    "'torch.cuda'; s.cuda_stream == s.native_handle if hasattr(s, 'native_handle') else None",
    "'torch.cuda'; [type(s._as_parameter_).__name__, type(e._as_parameter_).__name__, e.cuda_event, "
    "s.__cuda_stream__()[0]]",
    "x = torch.cuda.ExternalStream(s.cuda_stream); [x == s, x.cuda_stream == s.cuda_stream, x.priority, "
    "str(x.device), hash(x) == hash(s)]",
    "masked(torch.cuda.ExternalStream(s.cuda_stream))",
    "torch.cuda.ExternalStream(0) == torch.cuda.default_stream(), torch.cuda.ExternalStream(0).query()",
    "torch.cuda.ExternalStream('x')",
    "torch.cuda.ExternalStream(s.cuda_stream, device=7)",
    "torch.cuda.ExternalStream(s.cuda_stream, device='cpu')",
    "u = torch.cuda.ExternalStream(s.cuda_stream)\nwith torch.cuda.stream(u): r = [torch.cuda.current_stream() == u, "
    "(x + 1).sum().item()]\nr",
    "u = torch.cuda.get_stream_from_external(s.cuda_stream); [u.cuda_stream == s.cuda_stream, type(u).__name__]",
    # Events.
    "[e.query(), e.synchronize(), e.wait(), e.wait(s), masked(e)]",
    "e.record(); e.synchronize(); masked(e).startswith('<' + module.Event.__module__), type(e).__name__, str(e.device)",
    "e.device, module.Event().event_id if hasattr(e, 'event_id') else None",
    "e.elapsed_time(e)",
    "v = module.Event(enable_timing=True); v.elapsed_time(module.Event(enable_timing=True))",
    "v, w = module.Event(enable_timing=True), module.Event(enable_timing=True); v.record(); v.elapsed_time(w)",
    "v, w = module.Event(enable_timing=True), module.Event(enable_timing=True); w.record(); w.synchronize(); "
    "v.elapsed_time(w)",
    "v = module.Event(enable_timing=True); v.record(); e.record(); module.synchronize(); v.elapsed_time(e)",
    "v = module.Event(enable_timing=True); v.record(); e.record(); module.synchronize(); e.elapsed_time(v)",
    "v, w = module.Event(enable_timing=True), module.Event(enable_timing=True); v.record(); busy(DEVICE, "
    "module); w.record()\n"
    "try: v.elapsed_time(w)\nfinally: module.synchronize()",
    "v, w = module.Event(enable_timing=True), module.Event(enable_timing=True); v.record(); busy(DEVICE, "
    "module); w.record()\n"
    "module.synchronize(); [v.elapsed_time(w) > 0, w.elapsed_time(v) < 0, v.elapsed_time(v), "
    "type(v.elapsed_time(w)).__name__]",
    "busy(DEVICE, module); e.record(); r = [e.query(), module.current_stream().query()]; e.synchronize(); "
    "r + [e.query()]",
    "with s: busy(DEVICE, module); e.record()\nr = [e.query(), s.query(), t.query()]; s.synchronize(); "
    "r + [e.query(), s.query()]",
    "with s: busy(DEVICE, module); e.record()\ne.record(t); t.synchronize(); r = e.query(); module.synchronize(); r",
    "with s: busy(DEVICE, module)\nt.wait_stream(s); r = [s.query(), t.query()]; t.synchronize(); "
    "r + [s.query(), t.query()]",
    "with s: busy(DEVICE, module); e.record()\nt.wait_event(e); r = t.query(); module.synchronize(); [r, t.query()]",
    "with s: busy(DEVICE, module); e.record()\ne.wait(t); e.wait(); r = [t.query(), module.current_stream().query()]\n"
    "module.synchronize(); r + [t.query()]",
    "with s: busy(DEVICE, module)\nt.wait_event(e); r = t.query(); module.synchronize(); r",
    "with s: busy(DEVICE, module)\ns.wait_stream(s); r = s.query(); module.synchronize(); [r, s.query()]",
    "busy(DEVICE, module); r = [s.query(), module.default_stream().query()]; module.synchronize(); r",
    "with s: busy(DEVICE, module)\nr = [module.default_stream().query(), s.query()]; module.synchronize(); r",
    "e.record(None)",
    "v = s.record_event(); [type(v).__name__, s.record_event(e) is e, v.query() in (True, False), v.synchronize()]",
    "s.record_event('x')",
    "s.wait_event('x')",
    "s.wait_event(None)",
    "s.wait_event(s)",
    "s.wait_stream('x')",
    "s.wait_stream(None)",
    "s.wait_stream(e)",
    "s.wait_event(torch.Event('cpu'))",
    "s.synchronize(1)",
    "module.Event(True, True, True).query()",
    "module.Event(enable_timing=True, interprocess=True).query()",
    "module.Event('x').query(), module.Event(nonsense=1)",
    "module.Event(external=True).query()",
    "module.Event(enable_timing=1, blocking='x').query()",
    "e.ipc_handle()",
    "v = module.Event(interprocess=True); [type(v.ipc_handle()).__name__, len(v.ipc_handle()), v.query()]",
    "v = module.Event(interprocess=True); v.record(); v.synchronize(); len(v.ipc_handle())",
    "v = module.Event(enable_timing=False, interprocess=True); v.record(); v.synchronize(); v.elapsed_time(v)",
    "v = module.Event(interprocess=True); module.Event.from_ipc_handle(0, v.ipc_handle())",
    "module.Event.from_ipc_handle(0, b'x')",
    "module.Event.from_ipc_handle('cpu', bytes(64))",
    "module.Event.from_ipc_handle(7, bytes(64))",
    "module.Event.from_ipc_handle(torch.device(DEVICE, 0), 'x')",
    "import pickle; pickle.dumps(e)",
    "import copy; copy.deepcopy(e)",
    "e == module.Event(), e == e, hash(e) == hash(e), bool(e)",
    # record_stream.
    "x.record_stream(s), x[:1].record_stream(module.default_stream()), x.new_empty(0).record_stream(s)",
    "x.record_stream('x')",
    "x.record_stream(None)",
    "x.record_stream(7)",
    "x.record_stream(e)",
    "x.cpu().record_stream(s)",
    "x.cpu().pin_memory().record_stream(s)",
    "x.to_sparse().record_stream(s)",
    "x.record_stream(torch.Stream('cpu'))",
    "x.untyped_storage().record_stream(s)",
    "y = torch.ones(300, device=DEVICE); p = y.data_ptr(); del y; torch.ones(300, device=DEVICE).data_ptr() == p",
    "y = torch.ones(300, device=DEVICE); p = y.data_ptr(); del y\nwith s: r = torch.ones(300, "
    "device=DEVICE).data_ptr() == p\nr",
    "y = torch.ones(300, device=DEVICE); p = y.data_ptr()\nwith s: busy(DEVICE, module)\ny.record_stream(s); del y\n"
    "z = torch.ones(300, device=DEVICE); r = z.data_ptr() == p; module.synchronize(); r",
    # Autograd.
    "seen = []\nw = x.clone().requires_grad_()\nwith s: y = (w * 2).sum(); "
    "y.register_hook(lambda g: seen.append(module.current_stream() == s))\n"
    "w.register_hook(lambda g: seen.append(module.current_stream() == s))\ny.backward(); seen + [w.grad]",
    "seen = []\n"
    "class Twice(torch.autograd.Function):\n"
    "    @staticmethod\n"
    "    def forward(ctx, x): return x * 2\n"
    "    @staticmethod\n"
    "    def backward(ctx, g):\n"
    "        seen.append([module.current_stream() == q for q in (s, t, module.default_stream())])\n"
    "        return g * 2\n"
    "w = x.clone().requires_grad_()\n"
    "with s: y = Twice.apply(w)\n"
    "with t: z = Twice.apply(y)\n"
    "z.sum().backward(); seen + [w.grad]",
    "w = x.clone().requires_grad_()\nwith s: y = (w * 2).sum()\n"
    "with t: y.backward()\n[w.grad, module.current_stream() == module.default_stream()]",
    "w = x.clone().requires_grad_()\nwith s: y = (w.cpu() * 2).sum()\ny.backward(); w.grad",
    "seen = []\nw = x.clone().requires_grad_(); y = (w * 2).sum()\n"
    "w.register_post_accumulate_grad_hook(lambda p: seen.append(module.current_stream() == module.default_stream()))\n"
    "with s: y.backward()\nseen",
    # Device functions.
    "module.is_current_stream_capturing()",
    "with s: r = module.is_current_stream_capturing()\nr",
    "sorted(n for n in dir(module.CUDAGraph) if n[0] != '_'); 'torch.cuda'",
    "'torch.cuda'; g = torch.cuda.CUDAGraph(); g.replay()",
    "'torch.cuda'; g = torch.cuda.CUDAGraph(); g.reset()",
    "'torch.cuda'; g = torch.cuda.CUDAGraph(); g.pool()",
    "'torch.cuda'; g = torch.cuda.CUDAGraph(); g.debug_dump('/nonsense/x')",
    "p = torch.cuda.graph_pool_handle(); [type(p).__name__, len(p), p == torch.cuda.graph_pool_handle()]",
    "module.get_sync_debug_mode()",
    "try:\n    module.set_sync_debug_mode('warn'); r = [module.get_sync_debug_mode()]; module.set_sync_debug_mode(2)\n"
    "    r.append(module.get_sync_debug_mode())\nfinally: module.set_sync_debug_mode('default')\n"
    "r + [module.get_sync_debug_mode()]",
    "try: module.set_sync_debug_mode('warn'); r = [x.sum().item(), s.synchronize(), e.synchronize(), "
    "module.synchronize()]\n"
    "finally: module.set_sync_debug_mode(0)\nr",
    "try: module.set_sync_debug_mode('error'); s.synchronize(); x.cpu()\nfinally: module.set_sync_debug_mode(0)",
    *(f"module.set_sync_debug_mode({a})" for a in ("'Warn'", "7", "2.0", "[]")),
    "module.synchronize(None), module.synchronize(0), module.synchronize(DEVICE), "
    "module.synchronize(device=torch.device(DEVICE))",
    "module.synchronize(torch.device('cpu'))",
    "module.synchronize([])",
    "module.synchronize('nonsense')",
    "'torch.cuda'; module._sleep(-1); module.synchronize()",
    "'torch.cuda'; module._sleep('x')",
    "'torch.cuda'; module._sleep(1.5)",
    "'torch.cuda'; module._sleep()",
    "p = torch.zeros(2).pin_memory(); p.copy_(x, non_blocking=True); module.current_stream().synchronize(); p",
    "with s: y = x * 2\nmodule.current_stream().wait_stream(s); y + 1",
]  # fmt: skip

_SETUP = "s, t, e = module.Stream(), module.Stream(), module.Event(); x = torch.tensor([1.0, 2.0], device=DEVICE)\n"
PROGRAMS: list[str] = [
    _SETUP + ("# torch.cuda\n" + program.replace("'torch.cuda'; ", "").replace("; 'torch.cuda'", ""))
    if "'torch.cuda'" in program
    else _SETUP + program
    for program in _STREAMS
]
