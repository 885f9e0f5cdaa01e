"""Level 8: what tools need from a device: profiler, hooks that sanitizers use, C++ interfaces, device properties."""

import torch

from ..abilities import profiler_activity
from ..kit import NotOffered, busy, device_count, device_module, equal, interfaces, raises, same, start_python
from ..registry import Topic

profiles = Topic(
    "tools/profiler",
    why="Without device events, a profile shows only the launches on the host, and not where the device spends its "
    "time.",
    defined="torch/csrc/profiler/stubs/base.h: ProfilerStubs; libkineto IActivityProfiler",
    chapter="profiling",
)


@profiles.check()
def operators_are_listed(device):
    """torch.profiler lists the operators that ran on the device. With record_shapes=True the list has input shapes."""
    x = torch.ones(30, 40).to(device)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
        x @ x.t()
    events = {event.name: event for event in profile.events()}
    assert "aten::mm" in events or "aten::matmul" in events, sorted(events)
    product = events.get("aten::mm") or events["aten::matmul"]
    assert product.input_shapes[:2] == [[30, 40], [40, 30]], product.input_shapes


@profiles.check("profiler")
def device_events_are_recorded(device):
    """With the ProfilerActivity of the device, the profile has device events, and their times are not all 0."""
    activities = [torch.profiler.ProfilerActivity.CPU, profiler_activity(device)]
    x = torch.ones(200, 200).to(device)
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(3):
            x = x @ x / 200
        device_module(device).synchronize()
    found = [event for event in profile.events() if event.device_type != torch.autograd.DeviceType.CPU]
    assert found, "the profile has no device event"
    assert sum(event.time_range.elapsed_us() for event in found) > 0


@profiles.check("profiler")
def the_trace_links_launch_and_kernel(device):
    """The exported trace has kernels. Each kernel has a correlation or an External id, which links it to its launch."""
    import json
    import os
    import tempfile

    x = torch.ones(100, 100).to(device)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU, profiler_activity(device)]) as profile:
        x @ x
        device_module(device).synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        profile.export_chrome_trace(path)
        with open(path) as file:
            events = json.load(file)["traceEvents"]
    kernels = [event for event in events if event.get("cat") == "kernel"]
    assert kernels, sorted({str(event.get("cat")) for event in events})
    assert all("correlation" in event["args"] or "External id" in event["args"] for event in kernels), kernels[0]


@profiles.check(
    "profiler", "events", "streams", why="If a trace shows all kernels on one stream, nobody sees an overlap."
)
def kernels_are_shown_on_their_stream(device):
    """In the exported trace, kernels launched on two streams name two streams."""
    import json
    import os
    import tempfile

    x, side = torch.ones(100, 100).to(device), torch.Stream(device=device)
    torch.accelerator.synchronize(device)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU, profiler_activity(device)]) as profile:
        x @ x
        with side:
            x @ x
        torch.accelerator.synchronize(device)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        profile.export_chrome_trace(path)
        with open(path) as file:
            events = json.load(file)["traceEvents"]
    streams = {event["args"].get("stream") for event in events if event.get("cat") == "kernel"}
    if streams <= {None}:
        raise NotOffered("the trace's kernels name no stream")
    assert len(streams) > 1, streams


@profiles.check("events", "private_use")
def the_legacy_profiler_times_the_device(device):
    """torch.autograd.profiler with use_device, which uses ProfilerStubs, gives mm more device time than a view."""
    x = torch.ones(300, 300).to(device)
    with torch.autograd.profiler.profile(use_device=torch.device(device).type) as profile:
        for _ in range(3):
            x @ x
        torch.accelerator.synchronize()
        for _ in range(5):
            x.view(-1)
    times = {}
    for event in profile.function_events:
        times.setdefault(event.name, []).append(event.device_time_total)
    assert max(times["aten::mm"]) > max(10, 2 * min(times["aten::view"])), times


hooks = Topic(
    "tools/hooks",
    why="Sanitizers find races from the hooks that a backend calls for allocations, event records, waits and "
    "synchronizations.",
    defined="c10/core/impl/GPUTrace.h; torch/csrc/PyInterpreter.cpp; torch/cuda/_gpu_trace.py",
    chapter="streams",
    needs=("streams", "events"),
)

_TRACED = """
import torch, torch._C
from torch.cuda import _gpu_trace as trace  # PyTorch keeps the callbacks of every device type there
seen = []
for name in dir(trace):
    if name.startswith("register_callback_for_"):
        getattr(trace, name)(lambda *args, name=name: seen.append(name.removeprefix("register_callback_for_")))
torch._C._activate_gpu_trace()
side = torch.Stream(device={device!r})
x = torch.ones(100000, device={device!r})
event = torch.accelerator.current_stream({device!r}).record_event()
side.wait_event(event)
event.synchronize()
side.synchronize()
torch.accelerator.synchronize({device!r})
del event, x
print(" ".join(sorted(set(seen))))
"""


@hooks.check()
def hooks_report_records_waits_and_synchronizations(device):
    """With GPU tracing active, callbacks report new events, new memory, event records, waits and synchronizations."""
    result = start_python(_TRACED.format(device=device))
    seen = result.stdout.split()
    if not seen and result.returncode == 0:
        raise NotOffered("the backend calls no trace hook")
    equal(result.returncode, 0)
    wanted = {"event_creation", "event_record", "event_wait", "event_synchronization", "memory_allocation",
              "stream_synchronization", "device_synchronization"}  # fmt: skip
    assert wanted <= set(seen), f"not reported: {sorted(wanted - set(seen))}"


@hooks.check()
def hooks_report_deletions(device):
    """With GPU tracing active, callbacks are called for the deletion of events and memory, and for new streams."""
    result = start_python(_TRACED.format(device=device))
    seen = result.stdout.split()
    if not seen and result.returncode == 0:
        raise NotOffered("the backend calls no trace hook")
    assert {"event_deletion", "memory_deallocation", "stream_creation"} <= set(seen), seen


@profiles.check("interfaces", "profiler_stubs", "events")
def the_stubs_answer_for_every_device(device):
    """ProfilerStubs: enabled() is true, onEachDevice() makes each device current in turn, synchronize() waits."""
    stubs = interfaces(device)
    assert stubs.stubs_enabled()
    equal(stubs.stubs_devices(), device_count(device))
    busy(device, 0.2)
    stubs.stubs_synchronize()
    assert torch.accelerator.current_stream(device).query(), "synchronize() returned before the work was done"


cpp = Topic(
    "tools/interfaces",
    why="C++ libraries and PyTorch itself call the guard, the hooks and the allocators directly, not through Python.",
    defined="c10/core/impl/DeviceGuardImplInterface.h; ATen/detail/AcceleratorHooksInterface.h; ATen/Context.h",
    chapter="device",
    needs=("interfaces",),
)


@cpp.check("module")
def everybody_counts_the_same_devices(device):
    """The guard and the hooks count as many devices as torch.TYPE.device_count()."""
    asked = interfaces(device)
    equal(asked.guard_device_count(), device_count(device))
    if asked.hooks_device_count() == 0:
        raise NotOffered("the hooks do not count devices")
    equal(asked.hooks_device_count(), device_count(device))


@cpp.check()
def the_hooks_say_that_the_device_is_available(device):
    """The hooks' isBuilt, isAvailable and, for a device in use, hasPrimaryContext are true."""
    x = torch.ones(1).to(device)
    asked = interfaces(str(x.device))
    assert asked.hooks_is_built() and asked.hooks_is_available() and asked.hooks_has_primary_context()


@cpp.check("two_devices")
def the_hooks_switch_devices(device):
    """The hooks' functions for the current device and torch.TYPE.current_device() read and change the same device."""
    module, type = device_module(device), torch.device(device).type
    zero, one = interfaces(f"{type}:0"), interfaces(f"{type}:1")
    try:
        one.hooks_set_current_device()
        equal((module.current_device(), one.hooks_current_device()), (1, 1))
        equal((zero.hooks_exchange_device(), module.current_device()), (1, 0))
        equal((one.hooks_maybe_exchange_device(), module.current_device()), (0, 1))
    finally:
        module.set_device(0)


@cpp.check("generator", "two_devices", chapter="generator")
def the_hooks_have_a_generator_for_each_device(device):
    """For each device, defaultGenerator() of C++ gives the generator that torch.TYPE.manual_seed() seeds there."""
    module, type = device_module(device), torch.device(device).type
    for index, seed in ((0, 123), (1, 456)):
        with module.device(index):
            module.manual_seed(seed)
    found = [interfaces(f"{type}:{index}").hooks_default_generators_seed() for index in (0, 1)]
    equal(found, [123, 456])


@cpp.check("storage", "two_devices", chapter="memory", why="torch::from_blob() asks on which device an address lies.")
def the_hooks_find_the_device_of_an_address(device):
    """getDeviceFromPtr gives the device on which a tensor's memory lies."""
    type = torch.device(device).type
    tensors = [torch.ones(9, device=f"{type}:{index}") for index in (0, 1)]
    equal([interfaces(device).hooks_device_of_pointer(x.data_ptr()) for x in tensors], [0, 1])


@cpp.check("streams", chapter="streams")
def the_default_stream_stays_the_default(device):
    """getDefaultStream gives the default stream also while another stream is the current stream."""
    asked = interfaces(str(torch.ones(1).to(device).device))
    before, stream = asked.guard_default_stream(), torch.Stream(device=device)
    with stream:
        equal(asked.guard_default_stream(), before)
        assert torch.accelerator.current_stream(device).stream_id != before


@cpp.check(
    "streams", chapter="streams", why="A future's callbacks run on streams of this pool, beside the caller's work."
)
def there_is_a_pool_of_streams(device):
    """getStreamFromGlobalPool never gives the default stream, and does not always give the same stream."""
    asked = interfaces(str(torch.ones(1).to(device).device))
    found = [asked.guard_stream_from_pool(high) for high in (False, False, True)]
    assert asked.guard_default_stream() not in found and len(set(found)) > 1, found


@cpp.check("storage", chapter="memory", why="Allocator::clone(), which copies lazily cloned tensors, calls copy_data.")
def the_device_allocator_copies(device):
    """copy_data of the device's allocator copies bytes of the device."""
    x, y = torch.arange(1000.0).to(device), torch.zeros(1000).to(device)
    torch.accelerator.synchronize(device)
    interfaces(device).device_allocator_copy(y.data_ptr(), x.data_ptr(), x.nbytes)
    torch.accelerator.synchronize(device)
    same(y, torch.arange(1000.0))


@cpp.check("pinned", chapter="memory")
def the_host_allocator_copies(device):
    """copy_data of the allocator of pinned memory copies bytes of the host."""
    x, y = torch.arange(1000.0).pin_memory(), torch.zeros(1000, pin_memory=True)
    try:
        interfaces(device).host_allocator_copy(y.data_ptr(), x.data_ptr(), x.nbytes)
    except RuntimeError as error:
        if "Not implemented for copy_data" in str(error):  # as on CUDA; PyTorch itself copies without this function
            raise NotOffered("the allocator of pinned memory has no copy_data") from error
        if "no allocator is registered" in str(error):
            raise NotOffered("no allocator of pinned memory is registered") from error
        raise
    same(y, x)


facts = Topic(
    "tools/facts",
    why="Programs choose tile sizes, dtypes and code paths by the properties of the device.",
    defined="torch/cuda/__init__.py: get_device_properties, get_device_name, get_device_capability",
    chapter="device",
    needs=("module", "not_the_host"),
)


@facts.check()
def the_device_has_a_name(device):
    """get_device_name gives a text, and get_device_properties has a name and the total memory."""
    module = device_module(device)
    if not hasattr(module, "get_device_properties"):
        raise NotOffered("the module has no get_device_properties")
    properties = module.get_device_properties(0)
    assert isinstance(module.get_device_name(0), str) and properties.name == module.get_device_name(0)
    assert properties.total_memory > 0


@facts.check("streams")
def the_module_synchronizes(device):
    """torch.TYPE.synchronize() waits for the work. It can be called without an argument, with an index or a device."""
    module = device_module(device)
    y = busy(device, 0.05)
    event = torch.accelerator.current_stream(device).record_event()
    module.synchronize()
    assert event.query()
    module.synchronize(0)
    module.synchronize(torch.device(device))
    same(y, torch.ones(256, 256))


@facts.check("streams")
def synchronizations_can_be_forbidden(device):
    """After torch.TYPE.set_sync_debug_mode("error"), nonzero raises because it waits; after "default", it works."""
    module = device_module(device)
    if not hasattr(module, "set_sync_debug_mode"):
        raise NotOffered("the module has no set_sync_debug_mode")
    x = torch.ones(3, device=device)
    module.set_sync_debug_mode("error")
    try:
        with raises(RuntimeError, "synchroniz"):
            x.nonzero()
    finally:
        module.set_sync_debug_mode("default")
    equal(x.nonzero().numel(), 3)


@facts.check("two_devices")
def peers_are_known(device):
    """can_device_access_peer returns a bool for two devices."""
    module = device_module(device)
    if not hasattr(module, "can_device_access_peer"):
        raise NotOffered("the module has no can_device_access_peer")
    assert isinstance(module.can_device_access_peer(0, 1), bool)
