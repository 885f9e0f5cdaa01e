"""Devices, their properties and generators, flags of tensors, type names, "
"and wrong arguments to the device's functions."""

from __future__ import annotations

import re
from typing import Any

import torch


def kinds(value: Any) -> Any:
    """The types in a value, without the values."""
    if isinstance(value, (tuple, list)):
        return [type(value).__name__, *(kinds(item) for item in value)]
    return type(value).__name__


def masked(text: str) -> str:
    """The text without what differs from one GPU to another."""
    return re.sub(r"0x[0-9a-f]+|\d+(\.\d+)?", "N", re.sub(r"(name|uuid)='?[^,')]*'?", r"\1=X", text))


def keys(value: Any) -> list[str]:
    return sorted(value)


def seeded(device: str, seed: int) -> torch.Generator:
    return torch.Generator(device).manual_seed(seed)


# Their types say enough: the values belong to a machine.
_INFORMATION = [
    "device_count()", "current_device()", "get_device_name()", "get_device_name(0)", "get_device_name(DEVICE)",
    "get_device_capability()", "mem_get_info()", "memory_allocated()", "max_memory_allocated()", "memory_reserved()",
    "max_memory_reserved()", "memory_cached()", "max_memory_cached()", "is_available()", "is_initialized()",
    "get_sync_debug_mode()", "get_rng_state()", "get_rng_state_all()", "initial_seed()", "seed()", "seed_all()",
    "default_generators", "get_arch_list()", "get_gencode_flags()", "memory_summary()", "memory_snapshot()",
    "memory_stats()", "memory_stats_as_nested_dict()", "host_memory_stats()", "is_bf16_supported()", "init()",
    "is_bf16_supported(including_emulation=False)", "is_tf32_supported()", "synchronize()", "empty_cache()",
    "ipc_collect()", "reset_peak_memory_stats()", "reset_accumulated_memory_stats()", "reset_max_memory_allocated()",
    "reset_max_memory_cached()", "reset_peak_host_memory_stats()", "reset_accumulated_host_memory_stats()",
    "memory.get_allocator_backend()", "memory.get_per_process_memory_fraction()", "current_blas_handle()", "cudart()",
    "current_stream()", "default_stream()", "get_device_properties(0)", "get_device_properties()", "Stream()",
    "MemPool()", "is_current_stream_capturing()", "has_half", "has_magma",
]  # fmt: skip

# Answers, or refusals, for arguments that are odd.
_ARGUMENTS = [
    *(f"set_device({a})" for a in ("7", "-1", "'cpu'", "'nonsense'", "1.5", "None", "DEVICE", "DEVICE + ':7'")),
    *(f"set_device({a})" for a in ("torch.device('meta')", "torch.device(DEVICE)", "[]", "2**40", "'0'", "'meta:0'")),
    *(f"get_device_name({a})" for a in ("7", "-1", "'cpu'", "DEVICE + ':7'")),
    *(f"get_device_properties({a})" for a in ("7", "-1", "'cpu'", "torch.device('cpu')", "1.5", "[]")),
    *(f"get_device_capability({a})" for a in ("7", "'cpu'")),
    *(f"synchronize({a})" for a in ("7", "'cpu'", "-1", "1.5", "DEVICE + ':7'")),
    *(f"mem_get_info({a})" for a in ("7", "'cpu'")),
    *(f"memory_allocated({a})" for a in ("7", "-1", "'cpu'")),
    *(f"memory_stats({a})" for a in ("7", "'cpu'", "'nonsense'")),
    *(f"reset_peak_memory_stats({a})" for a in ("7", "'cpu'", "-1")),
    "reset_accumulated_memory_stats(7)",
    "max_memory_reserved(7)",
    "memory_summary(7)",
    "memory_summary('cpu')",
    *(f"get_rng_state({a}).dtype" for a in ("7", "'cpu'", "-1")),
    *(f"manual_seed({a})" for a in ("'x'", "None", "2**64")),
    "manual_seed_all('x')",
    "set_rng_state(torch.zeros(3, dtype=torch.uint8))",
    "set_rng_state(torch.zeros(16))",
    "set_rng_state(torch.zeros(16, dtype=torch.uint8, device=DEVICE))",
    "set_rng_state(torch.zeros(16, dtype=torch.uint8), 7)",
    "set_rng_state([1])",
    "set_rng_state_all([])",
    *(f"can_device_access_peer({a})" for a in ("0, 0", "0, 7", "7, 0", "0, -1", "0, 'cpu'")),
    *(f"set_per_process_memory_fraction({a})" for a in ("2.0", "-0.1", "1", "'x'", "1.0", "1.0, 7", "1.0, 'cpu'")),
    "memory.get_per_process_memory_fraction(7)",
    *(f"current_stream({a})" for a in ("7", "'cpu'", "-1")),
    *(f"default_stream({a})" for a in ("7", "'cpu'")),
    *(f"set_sync_debug_mode({a})" for a in ("3", "'nonsense'", "-1", "1.5", "None")),
    "check_error(0)",
    "check_error(2)",
    "check_error(101)",
    "check_error('x')",
    "device(7).idx",
    "device('cpu').idx",
    "device(None).idx",
    "device(DEVICE).idx",
    "device_of(torch.ones(1)).idx",
    "device_of(torch.ones(1, device=DEVICE)).idx",
    "device_of(1).idx",
    "empty_cache(1)",
    "current_device(0)",
    "Stream(7)",
    "memory.caching_allocator_delete('x')",
    "memory.change_current_allocator(None)",
    "memory._set_allocator_settings('nonsense:1')",
    "memory._set_allocator_settings('max_split_size_mb:1')",
    "memory._set_allocator_settings('garbage_collection_threshold:2')",
    "memory._set_allocator_settings('expandable_segments:maybe')",
    "no_such_function()",
]

_CONTEXTS = [
    "with module.device(0): r = module.current_device()\nr",
    "with module.device(-1): r = module.current_device()\nr",
    "with module.device(7): r = module.current_device()\nr",
    "with module.device(None): r = module.current_device()\nr",
    "with module.device_of(torch.ones(1)): r = module.current_device()\nr",
    "with torch.device(DEVICE): r = [torch.ones(1).device, torch.empty_like(torch.ones(1, device='cpu')).device]\n"
    "[str(x) for x in r]",
    "with torch.device(DEVICE): r = [torch.tensor(1), torch.arange(2), torch.as_tensor([1]), torch.eye(1)]\nr",
    "with torch.device(DEVICE): r = [torch.from_numpy(torch.ones(1).cpu().numpy()), torch.randperm(1)]\nr",
    "with torch.device(DEVICE), torch.device('cpu'): r = str(torch.ones(1).device)\nr",
    "with torch.device(DEVICE + ':7'): r = torch.ones(1)\nr",
    "with torch.device(DEVICE): r = [torch.nn.Linear(1, 1).weight.device.type, torch.Generator().device.type]\nr",
    "with torch.device(DEVICE): r = [torch.get_default_device().type, torch.ones(1).pin_memory()]\nr",
    "torch.set_default_device(DEVICE)\ntry: r = [torch.get_default_device(), torch.ones(1), torch.tensor([1])]\n"
    "finally: torch.set_default_device(None)\n[str(r[0]), r[1:]]",
    "torch.set_default_device(DEVICE)\n"
    "try: r = str(next(iter(torch.utils.data.DataLoader([1, 2], shuffle=True, batch_size=2))).device)\n"
    "finally: torch.set_default_device(None)\nr",
    "torch.set_default_device(DEVICE)\ntry: r = str(torch.randperm(3, generator=torch.Generator(DEVICE)).device)\n"
    "finally: torch.set_default_device(None)\nr",
]

_DEVICES = [
    "d = torch.device(DEVICE, 0); [repr(d), str(d), d.type, d.index, d == torch.device(DEVICE), hash(d) == hash(d)]",
    "d = torch.device(DEVICE); [repr(d), str(d), d.index, {d: 1}.get(torch.device(DEVICE + ':0'))]",
    *(f"str(torch.device({a}))" for a in ("0", "7", "-1", "300", "DEVICE + ':-1'", "DEVICE + ':01'", "DEVICE + ':'")),
    *(f"str(torch.device({a}))" for a in ("DEVICE + ':x'", "DEVICE + ':0:0'", "DEVICE, -1", "DEVICE + ':0', 0")),
    "str(torch.device(DEVICE.upper()))",
    *(f"str(torch.device({a}))" for a in ("DEVICE + ':200'", "DEVICE, 200", "DEVICE + ' '", "DEVICE, 'x'")),
    "str(torch.device(torch.device(DEVICE, 0)))",
    "import pickle; str(pickle.loads(pickle.dumps(torch.device(DEVICE, 0))))",
    "import copy; [str(copy.deepcopy(torch.device(DEVICE))), torch.device(DEVICE).__reduce__()[1]]",
    *(f"torch.empty(1, device={a})" for a in ("DEVICE + ':7'", "DEVICE + ':99'", "7", "torch.device(DEVICE, 99)")),
    *(f"torch.ones(1).to({a})" for a in ("DEVICE + ':7'", "7", "-1", "'nonsense'", "DEVICE + ':-1'", "1.5", "None")),
    "torch.ones(1).to(0).device.type, torch.ones(1).to(DEVICE).get_device(), torch.ones(1).get_device()",
    "str(torch.ones(1, device=DEVICE).device), str(torch.empty(0, device=DEVICE).device), torch.ones(1, device=0)",
    "torch.ones(1, device=DEVICE).device == torch.device(DEVICE), torch.ones(1, device=DEVICE).device == DEVICE",
    "torch.empty(0, device=DEVICE + ':7')",
    "torch.tensor([1], device=DEVICE + ':7')",
    "torch.Generator(DEVICE + ':7')",
    "torch.nn.Linear(1, 1).to(DEVICE + ':7')",
    "torch.zeros(1, device='cpu:7').device.index",
    "torch.get_device_module(DEVICE).__name__ == module.__name__, "
    "torch.get_device_module().__name__ == module.__name__",
]

# g: a generator of the device, with the seed 5.
_GENERATORS = [
    "[str(g.device), g.initial_seed(), g.get_offset(), g.get_state().tolist(), type(g).__name__]",
    "[repr(g)[:24], g == g, g == seeded(DEVICE, 5), torch.Generator(DEVICE).initial_seed()]",
    "torch.rand(1, device=DEVICE, generator=g); a = g.get_offset(); torch.rand(5000, device=DEVICE, "
    "generator=g); [a % 4]",
    "s = g.get_state(); a = torch.rand(3, device=DEVICE, generator=g); g.set_state(s); torch.equal(a, "
    "torch.rand(3, device=DEVICE, generator=g))",
    "torch.equal(torch.rand(3, device=DEVICE, generator=g), torch.rand(3, device=DEVICE, generator=seeded(DEVICE, 5)))",
    "g.get_state().dtype, g.get_state().device.type, g.get_state().numel(), torch.Generator().get_state().numel()",
    *(f"g.set_offset({a}); g.get_offset()" for a in ("8", "6", "-4", "2**64", "'x'", "1.5")),
    *(f"g.manual_seed({a}); g.initial_seed()" for a in ("0", "-1", "2**63", "2**64 - 1", "2**64", "-2**63 - 1")),
    *(f"g.manual_seed({a}); g.initial_seed()" for a in ("1.5", "'x'", "None", "True", "torch.tensor(3)")),
    "g.set_offset(8); g.manual_seed(7); g.get_offset()",
    "g.set_offset(8); g.get_state().tolist()",
    "g.set_state(torch.zeros(3, dtype=torch.uint8))",
    "g.set_state(torch.zeros(8, dtype=torch.uint8)); [g.initial_seed(), g.get_offset()]",
    "g.set_state(torch.zeros(17, dtype=torch.uint8))",
    "g.set_state(torch.zeros(16))",
    "g.set_state(torch.zeros(16, dtype=torch.uint8, device=DEVICE))",
    "g.set_state(torch.Generator().get_state())",
    "torch.Generator().set_state(g.get_state())",
    "g.set_state('x')",
    "g.set_state(torch.zeros(32, dtype=torch.uint8)[::2]); g.initial_seed()",
    "g.set_state(torch.tensor([1] + [0] * 7 + [2] + [0] * 7, dtype=torch.uint8)); [g.initial_seed(), g.get_offset()]",
    "g.set_state(torch.tensor([1] + [0] * 7 + [4] + [0] * 7, dtype=torch.uint8)); [g.initial_seed(), g.get_offset()]",
    "c = g.clone_state(); c.manual_seed(9); [g.initial_seed(), c.initial_seed(), str(c.device)]",
    "s = g.graphsafe_get_state(); s.manual_seed(9); [type(s).__name__, g.initial_seed(), s.initial_seed()]",
    "h = seeded(DEVICE, 9); g.graphsafe_set_state(h.graphsafe_get_state()); h.manual_seed(11); g.initial_seed()",
    "g.graphsafe_set_state(torch.zeros(16, dtype=torch.uint8))",
    "torch.Generator().graphsafe_get_state()",
    "torch.Generator().get_offset()",
    "torch.Generator().set_offset(4)",
    "type(g.seed()).__name__, g.get_offset()",
    "import pickle; p = pickle.loads(pickle.dumps(g)); [str(p.device), p.initial_seed(), p.get_offset()]",
    "import copy; copy.deepcopy(g)",
    "torch.rand(1, device=DEVICE, generator=torch.Generator())",
    "torch.rand(1, generator=g)",
    "torch.randperm(3, generator=g)",
    "torch.ones(1).normal_(generator=g)",
    "torch.ones(1, device=DEVICE).normal_(generator=torch.Generator())",
    "torch.rand(1, device=DEVICE, generator='x')",
    "torch.multinomial(torch.ones(3, device=DEVICE), 1, generator=torch.Generator())",
    "torch.bernoulli(torch.ones(3, device=DEVICE), generator=torch.Generator())",
    "torch.manual_seed(3); [module.initial_seed(), torch.initial_seed(), module.default_generators[0].get_offset()]",
    "module.manual_seed(4); torch.manual_seed(3); module.manual_seed(-1); module.initial_seed()",
    "module.manual_seed_all(6); [module.initial_seed(), module.get_rng_state().tolist()]",
    "module.manual_seed(1); s = module.get_rng_state(DEVICE); module.manual_seed(2); module.set_rng_state(s, "
    "DEVICE); module.initial_seed()",
    "module.manual_seed(1)\nwith torch.random.fork_rng(device_type=DEVICE): module.manual_seed(2)\n"
    "module.initial_seed()",
    "module.manual_seed(1)\nwith torch.random.fork_rng([7], device_type=DEVICE): pass",
    "module.manual_seed(1); a = torch.rand(2, device=DEVICE); o = module.default_generators[0].get_offset(); o",
    *(
        f"module.manual_seed(1); {call}; module.default_generators[0].get_offset()"
        for call in (
            "torch.randn(3, device=DEVICE)",
            "torch.randint(5, (3,), device=DEVICE)",
            "torch.randperm(3, device=DEVICE)",
            "torch.rand(0, device=DEVICE)",
            "F.dropout(torch.ones(3, device=DEVICE))",
            "F.dropout(torch.ones(3, device=DEVICE), 0.0)",
            "torch.ones(3, device=DEVICE).exponential_()",
            "torch.bernoulli(torch.ones(3, device=DEVICE))",
            "torch.multinomial(torch.ones(3, device=DEVICE), 1)",
            "torch.rand(3, dtype=torch.float64, device=DEVICE)",
        )
    ),
]  # fmt: skip

# x: a tensor of the device.
_TENSORS = [
    "sorted(n for n in dir(x) if n.startswith('is_') and isinstance(getattr(type(x), n), type(torch.Tensor.is_leaf)))",
    "{n: getattr(x, n) for n in ('is_cpu', 'is_meta', 'is_mps', 'is_xpu', 'is_leaf', 'is_sparse', "
    "'is_quantized', 'is_mkldnn')}",
    "getattr(x, 'is_' + DEVICE), getattr(x.cpu(), 'is_' + DEVICE), getattr(x.untyped_storage(), 'is_' + DEVICE)",
    "x.is_pinned(), x.cpu().is_pinned(), x.is_shared(), x.is_contiguous(), x.is_set_to(x), x.is_floating_point()",
    "u = x.untyped_storage(); [str(u.device), u.is_pinned(), u.is_shared(), u.nbytes(), len(u), "
    "u.resizable(), u.get_device()]",
    "x.untyped_storage().pin_memory()",
    "x.untyped_storage().share_memory_().is_shared(), x.share_memory_().is_shared()",
    "type(x.untyped_storage()).__name__, x.untyped_storage().type(), x.untyped_storage().is_sparse, "
    "str(x.storage_type())",
    "type(x.storage()).__name__, x.storage().type(), x.storage().pickle_storage_type(), x.storage().device.type",
    "repr(x.storage())",
    "repr(x.untyped_storage())",
    "x.untyped_storage()[0], x.untyped_storage().tolist(), x.storage()[0], x.storage().tolist()",
    "x.untyped_storage().cpu().device.type, getattr(x.cpu().untyped_storage(), DEVICE)().device.type",
    "x.type(), x.half().type(), x.bool().type(), x.bfloat16().type(), x.cfloat().type(), "
    "x.to_sparse().type(), x.char().type()",
    "x.type(torch.float64), x.type('torch.FloatTensor').device.type",
    "x.type('torch.' + DEVICE + '.DoubleTensor')",
    "x.cpu().type('torch.' + DEVICE + '.HalfTensor')",
    "x.type('torch.' + DEVICE + '.NonsenseTensor')",
    "x.type('torch.nonsense.FloatTensor')",
    "x.type(module.FloatTensor), isinstance(x, module.FloatTensor), isinstance(x.cpu(), module.FloatTensor)",
    "isinstance(x.half(), module.FloatTensor), isinstance(x, torch.FloatTensor), isinstance(x, torch.Tensor)",
    "module.FloatTensor([1.0, 2.0]), module.LongTensor(2).shape, module.FloatTensor.__name__, "
    "module.FloatTensor.__module__",
    "module.FloatTensor([1.0], device='cpu')",
    "torch.FloatTensor([1.0], device=DEVICE)",
    "torch.cuda.FloatTensor(2, device='cuda').shape, torch.cuda.FloatTensor.dtype, torch.cuda.FloatTensor.is_cuda",
    "torch.Tensor([1.0], device=DEVICE)",
    "torch.tensor(x)",
    "torch.Tensor(x).device.type, torch.as_tensor(x) is x, torch.as_tensor(x, device='cpu').device.type, x.new([1.0])",
    "x.new_tensor([1.0]), x.new_zeros(1, device='cpu').device.type, x.new_empty(0), x.new([1.0], device='cpu')",
    "torch.set_default_tensor_type('torch.' + DEVICE + '.FloatTensor')\ntry: r = torch.ones(1)\n"
    "finally: torch.set_default_tensor_type('torch.FloatTensor')\nr",
    "repr(x)",
    "repr(x.half()), repr(x.bool()), repr(torch.tensor(1.5, device=DEVICE)), repr(torch.empty(0, device=DEVICE))",
    "repr(x.clone().requires_grad_()), repr(x.clone().requires_grad_() * 1), repr(torch.nn.Parameter(x))",
    "repr(torch.empty(0, 2, dtype=torch.int32, device=DEVICE)), repr(x.to_sparse()), repr(x.cfloat())",
    "repr(torch.zeros(2000, device=DEVICE)), str(x), f'{x}', f'{x[0]}', f'{x[0]:.2f}', '%s' % x[0]",
    "repr([x]), repr(torch.nn.ParameterList([torch.nn.Parameter(x)])), repr(torch.nn.Linear(1, 1, device=DEVICE))",
    "repr(torch.nn.utils.rnn.pack_sequence([x]))",
    "x.numpy()",
    "x.__array__()",
    "import numpy; numpy.asarray(x)",
    "import numpy; numpy.add(x, 1)",
    "import numpy; torch.from_numpy(x)",
    "x.tolist(), x.sum().item(), float(x[0]), int(x[0]), bool(x[0]), len(x), list(x)",
    "[0, 1, 2][torch.tensor(1, device=DEVICE)], range(3)[torch.tensor(2, device=DEVICE)], "
    "hex(torch.tensor(10, device=DEVICE))",
    "bool(x)",
    "x.item()",
    "1.0 in x, 5.0 in x, hash(x) == id(x), x.__contains__(2.0)",
    "import math; math.sqrt(x[0])",
    "x.__dlpack_device__(), torch.from_dlpack(x).data_ptr() == x.data_ptr(), x.cpu().__dlpack_device__()",
    "type(x.__dlpack__()).__name__, torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x))",
    "x.clone().requires_grad_().__dlpack__()",
    "torch.from_dlpack(x, device='cpu')",
    "torch.from_dlpack(x, copy=True).data_ptr() == x.data_ptr()",
    "x.__dlpack__(stream='x')",
    "x.__dlpack__(stream=0)",
    "type(x.__dlpack__(stream=1)).__name__, type(x.__dlpack__(stream=-1)).__name__, "
    "type(x.__dlpack__(stream=2)).__name__",
    "x.__dlpack__(dl_device=(1, 0))",
    "x.__dlpack__(dl_device=(99, 0))",
    "x.cfloat().conj().__dlpack__()",
    "x.bool().__dlpack__() is not None, torch.from_dlpack(x.bool()), torch.from_dlpack(x.bfloat16())",
    "torch.utils.dlpack.DLDeviceType.kDLCUDA.value, torch.utils.dlpack.DLDeviceType.kDLCUDAHost.value",
    "torch.ones(1).pin_memory().__dlpack_device__()",
    "c = x.__cuda_array_interface__; 'torch.cuda'; {k: v for k, "
    "v in c.items() if k != 'data'} | {'data': c['data'][1]}",
    "c = x[::2].__cuda_array_interface__; 'torch.cuda'; [c['strides'], c['shape'], c['typestr'], c['version']]",
    "'torch.cuda'; x.clone().requires_grad_().__cuda_array_interface__",
    "'torch.cuda'; x.cpu().__cuda_array_interface__",
    "'torch.cuda'; x.to_sparse().__cuda_array_interface__",
    "'torch.cuda'; [x.to(t).__cuda_array_interface__['typestr'] for t in (torch.half, torch.bool, "
    "torch.uint8, torch.cfloat)]",
    "'torch.cuda'; x.bfloat16().__cuda_array_interface__['typestr']",
    "'torch.cuda'; x.new_empty(0).__cuda_array_interface__['data']",
    "'torch.cuda'; torch.as_tensor(type('A', (), {'__cuda_array_interface__': x.__cuda_array_interface__})(), "
    "device=DEVICE)",
]
_COPIES = [
    "x.to(DEVICE) is x, x.to(x.device) is x, x.to('cpu') is x, x.to(DEVICE, copy=True) is x, x.to(DEVICE, "
    "torch.float32) is x",
    "y = x.to('cpu', non_blocking=True); module.synchronize(); [y, y.is_pinned(), x.cpu().is_pinned()]",
    "p = torch.ones(2).pin_memory(); [p.is_pinned(), p.pin_memory() is p, p[1:].is_pinned(), "
    "p.clone().is_pinned(), p.to(DEVICE)]",
    "p = torch.ones(2).pin_memory(DEVICE); p.is_pinned(DEVICE), p.is_pinned('cpu')",
    "torch.ones(2).pin_memory('cpu')",
    "torch.ones(2).pin_memory('nonsense')",
    "x.pin_memory()",
    "torch.ones(2, device=DEVICE, pin_memory=True)",
    "torch.empty(2, pin_memory=True).is_pinned(), torch.empty(0, pin_memory=True).is_pinned(), "
    "torch.ones(0).pin_memory().is_pinned()",
    "torch.empty_like(x, device='cpu', pin_memory=True).is_pinned(), torch.zeros(1, pin_memory=True).numpy().tolist()",
    "torch.tensor([1], pin_memory=True).is_pinned(), torch.ones(2).pin_memory().untyped_storage().is_pinned()",
    "torch.ones(2).to_sparse().pin_memory().is_pinned()",
    "torch.ones(2).share_memory_().pin_memory().is_shared(), torch.ones(2).pin_memory().share_memory_().is_pinned()",
    "torch.nn.utils.rnn.pack_sequence([torch.ones(1)]).pin_memory().is_pinned()",
    "p = torch.ones(2).pin_memory(); p.resize_(100000); p.is_pinned()",
    "x.cuda() is x if DEVICE == 'cuda' else getattr(x, DEVICE)() is x",
    "getattr(x.cpu(), DEVICE)(0).device.type, getattr(x.cpu(), DEVICE)(DEVICE).device.type",
    "getattr(x.cpu(), DEVICE)('cpu')",
    "getattr(x.cpu(), DEVICE)(7)",
    "getattr(x.cpu(), DEVICE)(DEVICE + ':7')",
    "getattr(x.cpu(), DEVICE)(1.5)",
    "getattr(torch.nn.Linear(1, 1), DEVICE)().weight.device.type, getattr(torch.nn.Linear(1, 1), "
    "DEVICE)(0).weight.device.type",
    "getattr(torch.nn.Linear(1, 1), DEVICE)('cpu')",
    "getattr(torch.nn.Linear(1, 1), DEVICE)(7)",
    "x.copy_(torch.ones(3))",
    "x.copy_(torch.ones(2, dtype=torch.int64), non_blocking=True), x.cpu().copy_(x * 3), "
    "x.copy_(torch.ones(1).expand(2) * 4)",
    "x.set_(torch.ones(2))",
    "x.set_(torch.ones(2).untyped_storage())",
    "x.data = torch.ones(2); x.device.type",
    "x.clone().requires_grad_().grad = torch.ones(2)\n'kept'",
    "y = x.clone().requires_grad_(); y.grad = torch.ones(2)",
    "y = torch.ones(2, requires_grad=True); y.to(DEVICE).sum().backward(); [y.grad, y.to(DEVICE).is_leaf, "
    "y.to(DEVICE).grad_fn.name()]",
    "m = torch.nn.Linear(1, 1); w = m.weight; m.to(DEVICE); [m.weight is w, w.device.type]",
    "x.untyped_storage().copy_(torch.ones(2).untyped_storage()); x",
    "x.untyped_storage().resize_(0); [x.untyped_storage().nbytes(), x.shape]",
    "x.resize_(4).shape, x.untyped_storage().nbytes(), torch.ones(2, "
    "device=DEVICE).resize_(1).untyped_storage().nbytes()",
    "import pickle; y = pickle.loads(pickle.dumps(x)); [str(y.device), y]",
    "r = x.__reduce_ex__(2); [r[0].__name__, type(r[1][0]).__name__, str(r[1][0].device), r[1][1:5]]",
    "import copy; y = copy.deepcopy(x); [str(y.device), y.data_ptr() == x.data_ptr()]",
    "import io; b = io.BytesIO(); torch.save(x, b); b.seek(0); [torch.load(b), b.seek(0), torch.load(b, "
    "map_location='cpu')]",
    "import io; b = io.BytesIO(); torch.save(x.cpu(), b); b.seek(0); torch.load(b, map_location=DEVICE)",
    "import io; b = io.BytesIO(); torch.save(x.cpu(), b); b.seek(0); torch.load(b, map_location=DEVICE + ':7')",
    "import io; b = io.BytesIO(); torch.save(x, b); b.seek(0); torch.load(b, map_location={DEVICE + ':0': 'cpu'})",
    "import io; b = io.BytesIO(); torch.save(x, b); b.seek(0); torch.load(b, "
    "map_location={DEVICE + ':0': DEVICE + ':7'})",
    "import io; b = io.BytesIO(); torch.save(x, b); t = []; b.seek(0); torch.load(b, map_location=lambda s, "
    "l: t.append(l) or s); t",
    "import zipfile, io; b = io.BytesIO(); torch.save(x, b); z = zipfile.ZipFile(b)\n"
    "[n.rpartition('/')[2] for n in z.namelist()], (DEVICE + ':0').encode() in z.read(z.namelist()[0])",
    "torch.serialization.location_tag(x.untyped_storage()), "
    "torch.serialization.location_tag(x.cpu().untyped_storage())",
    "torch.utils.swap_tensors(x, torch.ones(2)); x.device.type",
]

_ACCELERATOR = [
    "torch.accelerator.is_available(), torch.accelerator.device_count(), torch.accelerator.current_device_index()",
    "a = torch.accelerator.current_accelerator(); [str(a), a.type, a.index, type(a).__name__]",
    "str(torch.accelerator.current_accelerator(check_available=True))",
    "torch.accelerator.set_device_index(7)",
    "torch.accelerator.set_device_index(-1); torch.accelerator.current_device_index()",
    "torch.accelerator.set_device_index('cpu')",
    "torch.accelerator.set_device_index(DEVICE + ':0'); torch.accelerator.current_device_index()",
    "torch.accelerator.set_device_index(1.5)",
    "torch.accelerator.synchronize(7)",
    "torch.accelerator.synchronize('cpu')",
    "torch.accelerator.synchronize(DEVICE)",
    "s = torch.accelerator.current_stream(); [type(s).__name__, s.device.type, s == module.current_stream()]",
    "torch.accelerator.current_stream(7)",
    "torch.accelerator.set_stream('x')",
    "with torch.accelerator.device_index(0): r = torch.accelerator.current_device_index()\nr",
    "with torch.accelerator.device_index(None): r = torch.accelerator.current_device_index()\nr",
    "with torch.accelerator.device_index(7): r = torch.accelerator.current_device_index()\nr",
    "with torch.accelerator.device_index('x'): r = 1\nr",
    "torch.accelerator.current_device_idx()",
    "torch.accelerator.memory_allocated() == module.memory_allocated(), torch.accelerator.memory_allocated(7)",
    "keys(torch.accelerator.memory_stats()) == keys(module.memory_stats())",
    "kinds(torch.accelerator.get_memory_info())",
    "torch.accelerator.memory_allocated('cpu')",
    "torch.accelerator.empty_cache(), torch.accelerator.reset_peak_memory_stats()",
    "torch._C._get_accelerator().type, torch._utils._get_available_device_type(), "
    "torch._utils._get_device_index(DEVICE, True)",
]

_FLAGS = [
    *(
        f"torch.backends.cuda.{name}({value!r}); 'torch.cuda'"
        for name, value in (
            ("preferred_linalg_library", "nonsense"),
            ("preferred_blas_library", "nonsense"),
            ("preferred_rocm_fa_library", "nonsense"),
            ("enable_flash_sdp", "x"),
            ("enable_math_sdp", 1),
            ("allow_fp16_bf16_reduction_math_sdp", "x"),
        )
    ),
    "torch.backends.cuda.is_built(), torch.backends.cuda.preferred_linalg_library().name, "
    "torch.backends.cuda.flash_sdp_enabled()",
    "[getattr(torch.backends.cuda, n + '_sdp_enabled')() for n in ('flash', 'math', 'mem_efficient', 'cudnn')]",
    "torch.backends.cuda.matmul.allow_tf32, torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
    "torch.backends.cuda.matmul.fp32_precision, torch.backends.cudnn.fp32_precision, "
    "torch.backends.cudnn.conv.fp32_precision",
    "torch.backends.cuda.matmul.allow_tf32 = 'x'",
    "torch.backends.cuda.matmul.nonsense",
    "torch.backends.cuda.matmul.nonsense = 1",
    "torch.backends.cuda.matmul.fp32_precision = 'nonsense'",
    "torch.backends.cuda.matmul.allow_fp16_accumulation = 'x'",
    "torch.backends.cudnn.fp32_precision = 'nonsense'",
    "torch.backends.cudnn.conv.fp32_precision = 'bf16'",
    "torch.backends.cuda.cufft_plan_cache[7].max_size",
    "torch.backends.cuda.cufft_plan_cache['x']",
    "torch.backends.cuda.cufft_plan_cache.size = 1",
    "torch.backends.cuda.cufft_plan_cache.max_size, torch.backends.cuda.cufft_plan_cache[0].max_size",
    "torch.backends.cuda.cufft_plan_cache.max_size = -1",
    "torch.backends.cuda.cufft_plan_cache.nonsense = 1",
    "torch.backends.cudnn.enabled, torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic, "
    "torch.backends.cudnn.allow_tf32",
    "torch.backends.cudnn.is_available(), kinds(torch.backends.cudnn.version()), torch.backends.cudnn.benchmark_limit",
    "torch.backends.cudnn.enabled = 'x'",
    "torch.backends.cudnn.benchmark = 1",
    "torch.backends.cudnn.is_acceptable(torch.ones(1, device=DEVICE)), "
    "torch.backends.cudnn.is_acceptable(torch.ones(1))",
    "torch.backends.cudnn.is_acceptable(torch.ones(1, device=DEVICE, dtype=torch.int32))",
    "with torch.backends.cudnn.flags(enabled=False): r = [torch.backends.cudnn.enabled, "
    "torch.backends.cudnn.benchmark]\nr",
    "with torch.nn.attention.sdpa_kernel([]): pass",
    "q = torch.ones(1, 1, 2, 8, device=DEVICE)\n"
    "with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION): "
    "F.scaled_dot_product_attention(q, "
    "q, q)",
    "torch.set_float32_matmul_precision('nonsense')",
    "torch.get_float32_matmul_precision()",
    "torch.set_float32_matmul_precision('high')\ntry: r = torch.backends.cuda.matmul.allow_tf32\n"
    "finally: torch.set_float32_matmul_precision('highest')\n[r, torch.backends.cuda.matmul.allow_tf32]",
    "kinds(torch.version.cuda), torch.version.hip, torch.cuda.is_available()",
    "torch.cuda.get_device_capability() >= (7, 0), torch.cuda.is_tf32_supported(), torch.cuda.has_magma",
    "torch.cuda._is_compiled(), torch.cuda.has_half, kinds(torch.cuda.cudart().cudaGetErrorString)",
    "torch.cuda.cudart().cudaMemGetInfo(7)",
    "str(torch.cuda.cudart().cudaError.success), torch.cuda.CudaError.__mro__[1].__name__, "
    "torch.cuda.DeferredCudaCallError.__name__",
    "str(torch.cuda.CudaError(2))",
]  # fmt: skip

_PROPERTIES = [
    "p = module.get_device_properties(0); {n: kinds(getattr(p, n)) for n in dir(p) if n[0] != '_'}",
    "p = module.get_device_properties(0); [p.warp_size, p.major >= 7, p.is_integrated, p.is_multi_gpu_board, "
    "type(p).__name__]",
    "p = module.get_device_properties(0); [type(p).__module__, p == p, p == module.get_device_properties(0), "
    "hash(p) == hash(p)]",
    "p = module.get_device_properties(0); [(p.major, p.minor) == module.get_device_capability(), "
    "p.name == module.get_device_name()]",
    "p = module.get_device_properties(0); p.total_memory == module.mem_get_info()[1]",
    "masked(repr(module.get_device_properties(0)))",
    "len(str(module.get_device_properties(0).uuid)), type(module.get_device_properties(0).uuid).__name__",
    "module.get_device_properties(0).nonsense",
    "module.get_device_properties(0).name = 'x'",
    "type(module.get_device_properties(0))()",
    "import pickle; pickle.dumps(module.get_device_properties(0))",
    "keys(module.memory_stats())",
    "keys(module.host_memory_stats())",
    "keys(module.memory_stats_as_nested_dict())",
    "x = torch.ones(1, device=DEVICE); [keys(s) for s in module.memory_snapshot()][0]",
    "x = torch.ones(1, device=DEVICE); [keys(b) for s in module.memory_snapshot() for b in s['blocks']][0]",
    "x = torch.ones(1, device=DEVICE); keys(module.memory._snapshot())",
    "x = torch.ones(1, device=DEVICE); "
    "sorted({b['state'] for s in module.memory_snapshot() for b in s['blocks']} | {'inactive'})",
    "x = torch.ones(1, device=DEVICE); s = module.memory_snapshot()[0]; [s['device'], s['segment_type'], "
    "s['stream'], s['is_expandable']]",
    "module.memory_summary(abbreviated=True).count('\\n'), module.memory_summary(0, "
    "True) == module.memory_summary(DEVICE, True)",
    "type(module.default_generators).__name__, len(module.default_generators) == module.device_count()",
    "x = torch.ones(1, device=DEVICE); a = module.memory_allocated(); del x; [a - module.memory_allocated()]",
    "module.is_initialized(), module._is_in_bad_fork()",
]

PROGRAMS: list[str] = [
    *_PROPERTIES,
    *(f"kinds(module.{call})" for call in _INFORMATION),
    *(f"module.{call}" for call in _ARGUMENTS),
    *_CONTEXTS,
    *_DEVICES,
    *("g = seeded(DEVICE, 5)\n" + program for program in _GENERATORS),
    *("x = torch.tensor([1.0, 2.0], device=DEVICE)\n" + program for program in _TENSORS + _COPIES),
    *_ACCELERATOR,
    *_FLAGS,
]
