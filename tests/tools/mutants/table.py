"""The mutants of the backend: each is one change, chosen at run time by BACKEND_MUTANT=name.

The changes are data. `sources()` gives the text of every file with a change; the sources themselves know nothing of
mutants. The changes are systematic: each virtual override of the guard, the hooks, the allocators, the generator and
the profiler's stubs gives the base class's answer or a plausible wrong one; each ordering primitive does nothing; each
row of a table of registrations, stubs, rules or checks is left out; each environment variable is ignored.

A table of many rows is changed in one place, in the function that reads or registers a row (`TABLES`). The names of
these mutants are read from the sources.
"""

from __future__ import annotations

import fnmatch
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
RUNTIME = "csrc/runtime/OpenReg"
MEMORY = "csrc/runtime/memory/OpenReg"
ROUTES = "csrc/simulator/borrowed/routes/"
DEVICE = "third_party/openreg/csrc/"


@dataclass(frozen=True)
class Mutant:
    """One change of ``file``.

    Either ``code`` is added behind the text ``after`` and runs only if the mutant is on. Or ``code`` replaces the text
    ``find``, and asks MUTANT itself whether the mutant is on.
    """

    name: str
    kind: str
    file: str
    after: str = ""
    find: str = ""
    code: str = ""
    # The checks that are run first, because they are the likeliest to find the mutant.
    first: str = "*"
    # The checks that could find the mutant at all. "" if the mutant ignores a variable that no check sets.
    within: str = "*"


# Added at the beginning of each changed file. MUTANT(name) asks the environment once in each place where it stands.
PREAMBLE = """#ifndef MUTANT // a unity build compiles several files as one
#include <cstdlib>
#include <cstring>
namespace {
[[maybe_unused]] bool mutant_is(const char* name) {
  const char* const chosen = std::getenv("BACKEND_MUTANT");
  return chosen && std::strcmp(chosen, name) == 0;
}
// Whether the mutant is `kind` of the row `name`. at::_ops writes add.Tensor as add_Tensor, so both are the same here.
[[maybe_unused]] bool mutant_of(const char* kind, const char* name) {
  const char* chosen = std::getenv("BACKEND_MUTANT");
  if (!chosen || std::strncmp(chosen, kind, std::strlen(kind)) != 0) {
    return false;
  }
  if (std::strncmp(name, "aten::", 6) == 0) {
    name += 6;
  }
  const auto joined = [](char c) { return c == '.' ? '_' : c; };
  for (chosen += std::strlen(kind); *chosen && joined(*chosen) == joined(*name); ++chosen, ++name) {
  }
  return *chosen == '\\0' && *name == '\\0';
}
} // namespace
#define MUTANT(name) ([] { static const bool on = mutant_is(name); return on; }())
#endif
#line 1 "{file}"
"""

# Override -> the code that the mutant runs instead, at the beginning of the function.
GUARD = {
    "DeviceType OpenRegGuardImpl::type() const {": "return DeviceType::CPU;",
    "Device OpenRegGuardImpl::exchangeDevice(Device device) const {": "return device_at(current_device());",
    "Device OpenRegGuardImpl::getDevice() const {": "return device_at(0);",
    "void OpenRegGuardImpl::setDevice(Device device) const {": "return;",
    "void OpenRegGuardImpl::uncheckedSetDevice(Device device) const noexcept {": "return;",
    "DeviceIndex OpenRegGuardImpl::deviceCount() const noexcept {": "return 1;",
    "DeviceCapability OpenRegGuardImpl::getDeviceCapability(Device) const {": "TORCH_CHECK(false, \"not implemented\");",
    "void OpenRegGuardImpl::synchronizeDevice(const DeviceIndex device) const {": "return;",
    "Stream OpenRegGuardImpl::getStream(Device device) const {": "return getDefaultOpenRegStream(device.index());",
    "Stream OpenRegGuardImpl::getDefaultStream(Device device) const {": "return getCurrentOpenRegStream(device.index());",
    "Stream OpenRegGuardImpl::getStreamFromGlobalPool(Device device, bool isHighPriority) const {":
        "return getDefaultOpenRegStream(device.index());",
    "Stream OpenRegGuardImpl::getNewStream(Device device, int priority) const {":
        "return getDefaultOpenRegStream(device.index());",
    "Stream OpenRegGuardImpl::exchangeStream(Stream stream) const {": "return getCurrentOpenRegStream(stream.device_index());",
    "void* OpenRegGuardImpl::getStreamNativeHandle(const Stream stream) const {": "return nullptr;",
    "bool OpenRegGuardImpl::queryStream(const Stream& stream) const {": "return true;",
    "void OpenRegGuardImpl::synchronizeStream(const Stream& stream) const {": "return;",
    "bool OpenRegGuardImpl::isStreamCapturing(const Stream& stream) const {": "return true;",
    "bool OpenRegGuardImpl::queryEvent(void* event) const {": "return true;",
    "void OpenRegGuardImpl::synchronizeEvent(void* event) const {": "return;",
    "void OpenRegGuardImpl::block(void* event, const Stream& stream) const {": "return;",
    "double OpenRegGuardImpl::elapsedTime(void* start, void* end, const DeviceIndex) const {": "return 0;",
    "void OpenRegGuardImpl::destroyEvent(void* event, const DeviceIndex) const noexcept {": "return;",
    "void OpenRegGuardImpl::recordDataPtrOnStream(const DataPtr& data, const Stream& stream) const {": "return;",
}  # fmt: skip
HOOKS = {
    "bool OpenRegHooks::isBuilt() const {": "return false;",
    "bool OpenRegHooks::isAvailable() const {": "return false;",
    "bool OpenRegHooks::hasPrimaryContext(DeviceIndex device) const {": "return false;",
    "void OpenRegHooks::init() const {": "return;",
    "DeviceIndex OpenRegHooks::deviceCount() const {": "return 1;",
    "DeviceIndex OpenRegHooks::getCurrentDevice() const {": "return 0;",
    "void OpenRegHooks::setCurrentDevice(DeviceIndex device) const {": "return;",
    "DeviceIndex OpenRegHooks::exchangeDevice(DeviceIndex device) const {": "return device;",
    "DeviceIndex OpenRegHooks::maybeExchangeDevice(DeviceIndex device) const {": "return device;",
    "const at::Generator& OpenRegHooks::getDefaultGenerator(DeviceIndex device) const {":
        "return default_generator(0);",
    "at::Generator OpenRegHooks::getNewGenerator(DeviceIndex device) const {": "return default_generator(device);",
    "Device OpenRegHooks::getDeviceFromPtr(void* data) const {": "return Device(DeviceType::PrivateUse1, 0);",
    "bool OpenRegHooks::isPinnedPtr(const void* data) const {": "return false;",
    "at::Allocator* OpenRegHooks::getPinnedMemoryAllocator() const {": "return c10::GetAllocator(c10::DeviceType::CPU);",
    "void OpenRegHooks::resizePrivateUse1Bytes(const c10::Storage& storage, size_t size) const {": "return;",
}  # fmt: skip
GENERATOR = {
    "void OpenRegGeneratorImpl::set_current_seed(uint64_t seed) {": "return;",
    "uint64_t OpenRegGeneratorImpl::current_seed() const {": "return 0;",
    "uint64_t OpenRegGeneratorImpl::seed() {": "return 1;",
    "void OpenRegGeneratorImpl::set_offset(uint64_t offset) {": "return;",
    "uint64_t OpenRegGeneratorImpl::get_offset() const {": "return 0;",
    "void OpenRegGeneratorImpl::set_state(const c10::TensorImpl& state) {": "return;",
    "c10::intrusive_ptr<c10::TensorImpl> OpenRegGeneratorImpl::get_state() const {":
        "return at::detail::createCPUGenerator().unsafeGetGeneratorImpl()->get_state();",
    "void OpenRegGeneratorImpl::graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& other) {": "return;",
    "c10::intrusive_ptr<c10::GeneratorImpl> OpenRegGeneratorImpl::graphsafe_get_state() const {":
        "return c10::intrusive_ptr<c10::GeneratorImpl>::reclaim(clone_impl());",
    "OpenRegGeneratorImpl* OpenRegGeneratorImpl::clone_impl() const {":
        "return new OpenRegGeneratorImpl(device().index(), engine_);",
    "c10::DeviceType OpenRegGeneratorImpl::device_type() {": "return DeviceType::CPU;",
}  # fmt: skip
DEVICE_ALLOCATOR = {
    "DataPtr OpenRegDeviceAllocator::allocate(size_t size) {": "return allocate_on(size, 0);",
    "DeleterFnPtr OpenRegDeviceAllocator::raw_deleter() const {": "return nullptr;",
    "void OpenRegDeviceAllocator::copy_data(void* destination, const void* source, size_t size) const {": "return;",
    "bool OpenRegDeviceAllocator::initialized() {": "return false;",
    "void OpenRegDeviceAllocator::emptyCache(MempoolId_t pool) {": "return;",
    "void OpenRegDeviceAllocator::recordStream(const DataPtr& data, c10::Stream stream) {": "return;",
    "CachingDeviceAllocator::DeviceStats OpenRegDeviceAllocator::getDeviceStats(DeviceIndex device) {": "return {};",
    "void OpenRegDeviceAllocator::resetAccumulatedStats(DeviceIndex device) {": "return;",
    "void OpenRegDeviceAllocator::resetPeakStats(DeviceIndex device) {": "return;",
    "std::pair<size_t, size_t> OpenRegDeviceAllocator::getMemoryInfo(DeviceIndex device) {":
        "return {size_t{1} << 34, size_t{1} << 34};",
    "double OpenRegDeviceAllocator::memory_fraction(DeviceIndex device) {": "return 1;",
    "void OpenRegDeviceAllocator::set_memory_fraction(double fraction, DeviceIndex device) {": "return;",
    "void OpenRegDeviceAllocator::use_pool(DeviceIndex device, MempoolId_t id) {": "return;",
    "void OpenRegDeviceAllocator::release_pool(DeviceIndex device, MempoolId_t id) {": "return;",
    "int OpenRegDeviceAllocator::pool_use_count(DeviceIndex device, MempoolId_t id) {": "return 1;",
    "void OpenRegDeviceAllocator::set_pool_policy(DeviceIndex device, MempoolId_t id, bool use_on_oom, bool no_split) {":
        "return;",
    "void OpenRegDeviceAllocator::begin_allocate_to_pool(\n    DeviceIndex device, MempoolId_t id, std::function<bool(Stream)> filter) {":
        "return;",
    "void OpenRegDeviceAllocator::end_allocate_to_pool(DeviceIndex device, MempoolId_t id) {": "return;",
    "void OpenRegDeviceAllocator::record_history(std::optional<HistoryOptions> options, bool clear) {": "return;",
    "bool OpenRegDeviceAllocator::history_enabled() {": "return false;",
    "MemorySnapshot OpenRegDeviceAllocator::snapshot(MempoolId_t pool, bool traces) {":
        "{ MemorySnapshot none; none.device_traces.resize(device_count()); return none; }",
    "std::shared_ptr<GatheredContext> OpenRegDeviceAllocator::context_of(const void* address) {": "return nullptr;",
    "void OpenRegDeviceAllocator::attach_out_of_memory_observer(OutOfMemoryObserver observer) {": "return;",
}  # fmt: skip
HOST_ALLOCATOR = {
    "  void copy_data(void* destination, const void* source, size_t size) const override {": "return;",
    "  void allocate_host_memory(size_t size, void** pointer) override {": "{ *pointer = std::malloc(size); return; }",
    "  void free_block(at::HostBlock<Stream>* block) override {": "return;",
    "  void record_stream(std::optional<std::vector<HostEvent>>& events, Stream stream) override {": "return;",
    "  bool query_event(HostEvent& event) override {": "return true;",
    "  Stream get_current_stream() const override {": "return getDefaultOpenRegStream(-1);",
    "  bool stream_is_capturing(Stream stream) const override {": "return false;",
    "  at::DataPtr allocate(size_t size) override {": "return c10::GetAllocator(c10::DeviceType::CPU)->allocate(size);",
    "  bool record_event(void* pointer, void* context, Stream stream) override {": "return false;",
    "  void empty_cache() override {": "return;",
    "  at::HostStats get_stats() override {": "return at::HostStats();",
    "  void reset_accumulated_stats() override {": "return;",
    "  void reset_peak_stats() override {": "return;",
}
STUBS = {
    "  bool enabled() const override {": "return false;",
    "  void record(DeviceIndex* device, VoidEvent* event, int64_t* cpu_ns) const override {": "return;",
    "  float elapsed(const VoidEvent* start, const VoidEvent* end) const override {": "return 0;",
    "  void onEachDevice(std::function<void(int)> fn) const override {": "return;",
    "  void synchronize() const override {": "return;",
}

GRAPH = {
    "void DeviceGraph::capture_begin(at::MempoolId_t pool, at::GraphCaptureMode mode) {": "return;",
    "void DeviceGraph::capture_end() {": "return;",
    "void DeviceGraph::instantiate() {": "return;",
    "void DeviceGraph::replay() {": "return;",
    "void DeviceGraph::reset() {": "return;",
    "at::MempoolId_t DeviceGraph::pool() const {": "return {0, 0};",
    "void DeviceGraph::debug_dump(const std::string& path) {": "return;",
}

# Overrides without a mutant, by their names, and the reason.
WITHOUT_MUTANT = {
    "mark": "does nothing: the device has no tool that shows marks and ranges",
    "rangePush": "does nothing, as mark",
    "rangePop": "does nothing, as mark",
    "~DeviceGraph": "calls reset(), which has a mutant",
    "enable_debug_mode": "sets what debug_dump(), which has a mutant, needs",
}

# Ordering: the name of the mutant, the file, the function, and the code that the mutant runs instead.
ORDERING = (
    ("device.orEventRecord", "event.cpp", "orError_t orEventRecord(orEvent_t event, orStream_t stream) {", "return orSuccess;"),
    ("device.orEventQuery", "event.cpp", "orError_t orEventQuery(orEvent_t event) {", "return orSuccess;"),
    ("device.orEventQuery.never", "event.cpp", "orError_t orEventQuery(orEvent_t event) {", "return orErrorNotReady;"),
    ("device.orEventSynchronize", "event.cpp", "orError_t orEventSynchronize(orEvent_t event) {", "return orSuccess;"),
    ("device.orEventElapsedTime", "event.cpp", "orError_t orEventElapsedTime(float* ms, orEvent_t start, orEvent_t end) {",
     "{ *ms = 1; return orSuccess; }"),
    ("device.orStreamWaitEvent", "event.cpp",
     "orError_t orStreamWaitEvent(orStream_t stream, orEvent_t event, unsigned int flags) {", "return orSuccess;"),
    ("device.orDeviceSynchronize", "stream.cpp", "orError_t orDeviceSynchronize(void) {", "return orSuccess;"),
    ("device.orStreamQuery", "stream.cpp", "orError_t orStreamQuery(orStream_t stream) {", "return orSuccess;"),
    ("device.orStreamQuery.never", "stream.cpp", "orError_t orStreamQuery(orStream_t stream) {",
     "return orErrorNotReady;"),
    ("device.orStreamSynchronize", "stream.cpp", "orError_t orStreamSynchronize(orStream_t stream) {",
     "return orSuccess;"),
    ("device.orMemcpyWithStream", "copy.cpp",
     "orError_t orMemcpyWithStream(void* dst, const void* src, size_t size, orMemcpyKind kind, orStream_t stream) {",
     "return orMemcpyAsync(dst, src, size, kind, stream);"),
)  # fmt: skip

REPLACED = (
    Mutant("device.copy.source_read_late", "ordering", DEVICE + "copy.cpp", find="return task.stage() ? queue(",
           code="return (MUTANT(\"device.copy.source_read_late\") || task.stage()) ? queue(", first="streams/copies/*"),
    Mutant("device.copy.target_not_waited_for", "ordering", DEVICE + "copy.cpp",
           find="if (wait || to.type == orMemoryTypeUnregistered) {",
           code="if ((wait || to.type == orMemoryTypeUnregistered) && !MUTANT(\"device.copy.target_not_waited_for\")) {",
           first="streams/*"),
    Mutant("stream.wait_for", "ordering", RUNTIME + "Stream.cpp", after="void wait_for(orStream_t waiting, Stream other) {",
           code="return;", first="streams/*"),
    Mutant("stream.current_ignored", "ordering", RUNTIME + "Stream.cpp",
           after="OpenRegStream getCurrentOpenRegStream(DeviceIndex device) {",
           code="return getDefaultOpenRegStream(device);", first="tools/profiler/*"),
    Mutant("stream.one_queue", "ordering", RUNTIME + "Stream.cpp",
           after="OpenRegStream getStreamFromPool(int priority, DeviceIndex device) {",
           code="return make_stream(checked(device), 1);", first="streams/*"),
    Mutant("generator.no_order_between_streams", "ordering", RUNTIME + "Generator.cpp",
           find="if (engine_->last_use && engine_->stream != stream) {",
           code="if (!MUTANT(\"generator.no_order_between_streams\") && engine_->last_use && engine_->stream != stream) {",
           first="trains/random/*"),
    Mutant("generator.not_waited_for", "ordering", RUNTIME + "Generator.cpp", find="if (C10_UNLIKELY(last_use != nullptr)) {",
           code="if (!MUTANT(\"generator.not_waited_for\") && last_use != nullptr) {", first="trains/random/*"),
    Mutant("guard.record", "guard", RUNTIME + "Guard.cpp", find="  OPENREG_CHECK(orEventRecord(handle, native_stream));",
           code="  if (!MUTANT(\"guard.record\")) OPENREG_CHECK(orEventRecord(handle, native_stream));", first="streams/*"),
    Mutant("guard.record.without_timing", "guard", RUNTIME + "Guard.cpp", find="flag == EventFlag::BACKEND_DEFAULT;",
           code="flag == EventFlag::BACKEND_DEFAULT && !MUTANT(\"guard.record.without_timing\");", first="streams/waiting/*"),
    Mutant("guard.record.any_device", "guard", RUNTIME + "Guard.cpp", find="device == -1 || device == stream.device_index(),",
           code="MUTANT(\"guard.record.any_device\") || device == -1 || device == stream.device_index(),",
           first="streams/errors/*"),
    Mutant("device.findUnjoined", "graph", DEVICE + "graph_capture.cpp",
           after="const Stream* findUnjoined(const Capture& capture, const Stream& joining, size_t condition = kAlways) {",
           code="return nullptr;", first="streams/graphs/*"),
    Mutant("device.waitForPoint", "graph", DEVICE + "graph_capture.cpp",
           after="orError_t waitForPoint(const StreamPtr& stream, const CapturePoint& point) {", code="return orSuccess;",
           first="streams/graphs/*"),
    Mutant("device.refuse", "graph", DEVICE + "graph_capture.cpp",
           after="orError_t refuse(Capture& capture, const char* what) {", code="return orSuccess;", first="streams/graphs/*"),
    Mutant("generator.begin_capture", "graph", RUNTIME + "Generator.cpp",
           after="void OpenRegGeneratorImpl::begin_capture(uint64_t capture) {", code="return;", first="streams/graphs/*"),
    *(
        Mutant(f"sanitizer.{name}", "graph", "csrc/simulator/sanitizer/Replays.cpp", after=signature, code=code, within="")
        for name, signature, code in (
            ("find_races_in_graph",
             "    CapturedGraph& graph, size_t number, const ShadowBlock& block, const Access& access, std::vector<Report>& found) {",
             "return;"),
            ("check_captured", "bool check_captured(const CapturedNode& node, const Access& access, std::vector<Report>& found) {",
             "return true;"),
            ("check_inputs", "void check_inputs(const CapturedGraph& graph, const Access& replay, std::vector<Report>& found) {",
             "return;"),
            ("check_scalars", "void check_scalars(const CapturedGraph& graph, const Access& replay, std::vector<Report>& found) {",
             "return;"),
            ("note_captured_numbers", "void note_captured_numbers(const std::vector<double>& numbers) {", "return;"),
        )
    ),
    Mutant("guard.registration", "row", RUNTIME + "Registration.cpp", find="C10_REGISTER_GUARD_IMPL(PrivateUse1, OpenRegGuardImpl);",
           code="static const bool guard_registered = [] { if (!MUTANT(\"guard.registration\")) { static const "
           "c10::impl::DeviceGuardImplRegistrar r(DeviceType::PrivateUse1, new OpenRegGuardImpl); } return true; }();",
           first="loads/names/*"),
    Mutant("hooks.registration", "row", RUNTIME + "Registration.cpp", find="  at::RegisterPrivateUse1HooksInterface(new OpenRegHooks);",
           code="  if (!MUTANT(\"hooks.registration\")) at::RegisterPrivateUse1HooksInterface(new OpenRegHooks);",
           first="loads/names/*"),
    Mutant("host_allocator.registration", "row", RUNTIME + "Registration.cpp",
           find="REGISTER_HOST_ALLOCATOR(DeviceType::PrivateUse1, host_allocator());",
           code="const bool host_allocator_registered = [] { if (!MUTANT(\"host_allocator.registration\")) "
           "at::setHostAllocator(DeviceType::PrivateUse1, host_allocator()); return true; }();", first="trains/loading/*"),
    Mutant("allocator.registration", "row", RUNTIME + "Registration.cpp",
           find="REGISTER_ALLOCATOR(DeviceType::PrivateUse1, device_allocator());",
           code="const bool allocator_registered = [] { if (!MUTANT(\"allocator.registration\")) "
           "c10::SetAllocator(DeviceType::PrivateUse1, device_allocator()); return true; }();", first="loads/names/*"),
    Mutant("storage.registration", "row", RUNTIME + "Registration.cpp",
           find="  c10::SetStorageImplCreate(DeviceType::PrivateUse1, &create_storage);",
           code="  if (!MUTANT(\"storage.registration\")) c10::SetStorageImplCreate(DeviceType::PrivateUse1, &create_storage);",
           first="tensors/*"),
    Mutant("backend_meta.registration", "row", RUNTIME + "BackendMeta.cpp",
           find="  torch::jit::TensorBackendMetaRegistry(DeviceType::PrivateUse1, &save, &load);",
           code="  if (!MUTANT(\"backend_meta.registration\")) "
           "torch::jit::TensorBackendMetaRegistry(DeviceType::PrivateUse1, &save, &load);", first="tensors/files/*"),
    Mutant("free_memory_callback.collect_shared", "row", RUNTIME + "Sharing.cpp", after="  void Execute() override {", code="return;",
           first="processes/sharing/released_memory_is_collected_before_an_allocation_fails"),
    Mutant("reducer_timer.registration", "row", "csrc/distributed/ReducerTimer.cpp",
           find="C10_REGISTER_TYPED_CLASS(TimerRegistry, c10::DeviceType::PrivateUse1, ReducerTimer)",
           code="const bool timer_registered = [] { if (!MUTANT(\"reducer_timer.registration\")) TimerRegistry()->Register("
           "c10::DeviceType::PrivateUse1, [](c10::Device device) -> std::unique_ptr<c10d::Timer> { "
           "return std::make_unique<ReducerTimer>(device); }); return true; }();",
           first="processes/distributed/the_parts_of_a_step_are_timed"),
    Mutant("profiler_stubs.registration", "row", "csrc/profiler/Registration.cpp",
           find="  torch::profiler::impl::registerPrivateUse1Methods(profiler_stubs());",
           code="  if (!MUTANT(\"profiler_stubs.registration\")) torch::profiler::impl::registerPrivateUse1Methods(profiler_stubs());",
           first="tools/profiler/*"),
    Mutant("fallback.registration", "row", ROUTES + "OpenRegFallback.cpp",
           find="  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());",
           code="  if (!MUTANT(\"fallback.registration\")) m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());",
           first="operators/*"),
    Mutant("autocast.fallthrough", "row", "csrc/amp/OpenRegAutocast.cpp",
           after="void register_fallthrough(torch::Library& m) {", code="return;", first="trains/amp/*"),
    *(
        Mutant(f"autocast.{name.lower()}", "row", "csrc/amp/OpenRegAutocast.cpp", find=f"  AT_FORALL_{name}({macro})",
               code=f"  if (!MUTANT(\"autocast.{name.lower()}\")) {{ AT_FORALL_{name}({macro}) }}", first="trains/amp/*")
        for name, macro in (("LOWER_PRECISION_FP", "LOWER"), ("FP32", "FLOAT32"),
                            ("FP32_SET_OPT_DTYPE", "FLOAT32_UNLESS_GIVEN"), ("PROMOTE", "WIDEST"),
                            ("DIFFERENT_REDISPATCH_SIGNATURE", "KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE"))
    ),
    Mutant("autocast.binary_cross_entropy", "row", "csrc/amp/OpenRegAutocast.cpp",
           find='  m.impl("binary_cross_entropy", binary_cross_entropy_banned);',
           code='  if (!MUTANT("autocast.binary_cross_entropy")) m.impl("binary_cross_entropy", binary_cross_entropy_banned);',
           first="trains/amp/*"),
    *(
        Mutant(f"registered_fallback.{name}", "row", ROUTES + "OpenRegFallback.cpp", find=f"  {call};",
               code=f'  if (!MUTANT("registered_fallback.{name}")) {call};', first="operators/*")
        for name, call in (
            ("checking", "fallback_for<&check_and_run<&fallback>>(m, c10::DispatchKey::PrivateUse1, nondeterministic_operators())"),
            ("overshadowed", "fallback_for(m, c10::DispatchKey::PrivateUse1, kOvershadowedCPU)"),
        )
    ),
    *(
        Mutant(f"stub.{name}", "stub", ROUTES + "OpenRegOverrides.cpp",
               find=f"REGISTER_PRIVATEUSE1_DISPATCH({name}, &at::openreg::{kernel})",
               code=f'const bool {name}_filled = [] {{ if (!MUTANT("stub.{name}")) {name}.set_privateuse1_dispatch_ptr('
               f"&at::openreg::{kernel}); return true; }}();", first="operators/*")
        for name, kernel in (("flatten_indices_stub", "flatten_indices"), ("_fused_sdp_choice_stub", "_fused_sdp_choice"))
    ),
)  # fmt: skip

# Variable -> the checks that could find that it is ignored. There are none for the variables that are not named here.
CHECKS_OF_VARIABLE = {"PYTORCH_ALLOC_CONF": "memory/limits/*", "TORCH_DEVICE_BACKEND_AUTOLOAD": "loads/*",
                      "OPENREG_EXECUTION": "streams/waiting/*"}  # fmt: skip

# The test of this backend that catches a mutant if no check of the kit does: a pattern of names, and the test.
OWN_TESTS = {
    "stub.kaiser_window_stub": "operators/test_operators.py::test_kaiser_window_has_the_cpus_numbers",
    "row._linalg_svd": "operators/test_operators.py::test_svd_accepts_the_drivers_of_cuda",
    "row._linalg_svd.U": "operators/test_operators.py::test_svd_accepts_the_drivers_of_cuda",
    **{f"row.{name}.input": "operators/test_operators.py::test_recurrent_layers_in_inference_are_one_kernel_with_the_results_of_the_cpu"
       for name in ("lstm", "gru")},
    "environment.OPENREG_DRY": "simulator/test_dry.py::test_a_skipped_result_is_zero_and_what_is_computed_from_it_is_assumed",
    "environment.OPENREG_DRY_ASSUME": "simulator/test_dry.py::test_values_that_are_assumed_end_loops_as_computed_ones_would",
    "environment.OPENREG_DRY_WORLD": "simulator/test_dry_world.py::test_the_environment_is_that_of_torchrun",
    "environment.OPENREG_MODEL": "tools/test_doctor.py::test_people_get_the_model_a_table_and_a_verdict_and_bad_options_are_named_and_ignored",
    "environment.OPENREG_DEVICE_COUNT": "device_library/test_openreg_environment.py::test_device_count_is_configurable",
    "environment.OPENREG_DEVICE_MEMORY": "device_library/test_openreg_environment.py::test_device_memory_is_configurable",
    "environment.OPENREG_VISIBLE_DEVICES": "device_library/test_openreg_environment.py::test_visible_devices_follows_cuda",
    "environment.CUDA_VISIBLE_DEVICES": "cuda/test_cuda_start.py::test_cuda_visible_devices_selects_as_cuda_does",
    "environment.OPENREG_CHAOS_SEED": "device_library/test_openreg_execution.py::test_the_mode_comes_from_the_environment",
    "environment.OPENREG_ORDER": "device_library/test_openreg_order.py::test_the_order_is_printed",
    "environment.OPENREG_POISON": "runtime/test_memory_limits.py::test_poisoned_memory_holds_nan_until_it_is_written",
    "environment.OPENREG_FAULTS": "simulator/test_faults.py::test_a_process_is_killed",
    "sanitizer.find_races_in_graph":
        "simulator/test_sanitizer.py::test_a_race_between_branches_of_a_graph_is_raised_at_the_second_call_of_the_capture",
    "sanitizer.check_captured":
        "simulator/test_sanitizer.py::test_a_replay_that_would_read_the_memory_of_a_graph_that_was_reset_does_not_run",
    "sanitizer.note_captured_numbers":
        "simulator/test_sanitizer.py::test_a_hint_about_a_number_of_a_capture_has_the_lines_of_the_replay_and_of_the_capture",
    "sanitizer.check_inputs":
        "simulator/test_sanitizer.py::test_a_hint_about_an_input_has_the_line_of_the_tensor_that_the_replay_does_not_read",
    "sanitizer.check_scalars": "simulator/test_sanitizer.py::test_a_hint_about_a_scalar_of_the_host_has_both_values",
    "environment.OPENREG_SANITIZER": "simulator/test_sanitizer.py::test_the_environment_enables_it_for_a_process",
    "environment.OPENREG_RNG": "runtime/test_generator.py::test_the_variable_chooses_the_random_numbers",
    "environment.OPENREG_TRITON": "simulator/test_triton_start.py::test_the_variable_switches_tritons_interpreter_on",
    "environment.PYTORCH_ALLOC_CONF": "runtime/test_memory_limits.py::test_the_shared_settings_apply_and_the_devices_own_go_first",
    "environment.OPENREG_ALLOC_CONF": "runtime/test_memory_limits.py::test_the_shared_settings_apply_and_the_devices_own_go_first",
    "environment.TORCH_OPENREG_AS":
        "cuda/test_cuda_start.py::test_the_variable_gives_a_device_of_type_cuda_and_leaves_privateuse1_alone",
    "environment.TORCH_OPENREG_AUTOLOAD": "package/test_autoload_contract.py::test_strict_raises_at_import",
    "environment.TORCH_OPENREG_FALLBACK": "simulator/test_fallback.py::test_the_environment_sets_the_policy",
    "environment.TORCH_OPENREG_LAUNCH_TRACEBACK": "runtime/test_execution.py::test_the_environment_asks_for_launch_sites",
    "environment.TORCH_OPENREG_TRACE": "runtime/test_profiler_trace.py",
    "environment.TORCH_OPENREG_AUTOGRAD_THREADS": "package/test_environment.py::test_backward_may_run_on_autograds_threads",
    "environment.OCCL_TRANSPORT": "distributed/test_distributed.py::test_a_wrong_setting_is_refused",
    "environment.OCCL_CHECK": "distributed/test_distributed.py::test_a_wrong_setting_is_refused",
    "environment.OCCL_MULTI_RANK_GPU_ENABLE": "distributed/test_distributed.py::test_a_wrong_setting_is_refused",
    "environment.OCCL_HOSTID": "distributed/test_distributed.py::test_ranks_with_different_hostids_cannot_share_memory",
    "reducer_timer.registration": "distributed/test_distributed_training.py::test_training_equals_that_on_one_device",
    "free_memory_callback.collect_shared":
        "runtime/test_multiprocessing.py::test_an_allocation_collects_released_messages_before_it_fails",
    "allocator.history_enabled": "runtime/test_memory_history.py::test_the_device_says_whether_it_keeps_a_history",
    "registered_fallback.checking": "operators/test_nondeterminism_checks.py::test_what_is_nondeterministic_on_cuda_raises",
    "registered_fallback.overshadowed":
        "operators/test_registrations.py::test_the_fallback_per_operator_runs_what_has_a_composite_kernel",
    "stub._fused_sdp_choice_stub": "operators/test_registrations.py::test_convolution_and_attention_reach_the_overrideable_operators",
    "rule.addcmul*": "operators/test_mixed_devices.py::test_the_device_accepts_and_refuses_what_pytorchs_own_meta_functions_do",
    "rule.*": "operators/test_mixed_devices.py::test_an_operator_with_a_check_of_its_own_accepts_and_refuses_what_cudas_source_says",
    "row.NestedTensorPrivateUse1.native_dropout":
        "runtime/test_generator.py::test_dropout_of_a_nested_tensor_draws_from_the_devices_generator",
    **{f"layout.{name}": "tools/test_ops_command.py::test_an_operator_on_tensors_of_another_layout"
       for name in ("copy_.SparseCsrPrivateUse1", "overshadowed.NestedTensorPrivateUse1")},
    "layout.*.QuantizedPrivateUse1":
        "runtime/test_serialization.py::test_quantized_tensors_are_copied_pickled_saved_and_loaded",
    "row.openreg.Autograd.*": "operators/test_registrations.py::test_a_custom_derivative_as_an_autograd_function",
    "row.openreg.*": "operators/test_registrations.py::test_a_custom_operator_has_every_kind_of_kernel",
}  # fmt: skip

# Mutants that no check and no test can tell from the device, and the reason. Every other mutant must be caught.
EXPECTED_SURVIVORS: dict[str, str] = {
    "storage.registration": "equivalent: it is for storages that PyTorch's own code makes. Without it they are plain storages, "
    "and a kernel on a plain storage only takes longer",
    "guard.record.any_device": "equivalent: the device library refuses a stream of another device too",
    "hooks.init": "equivalent: the first allocation starts the device too, and no earlier call needs a started device",
    "generator.device_type": "equivalent: only at::check_generator<T> calls this static function, and only code that "
    "includes the backend's own header can name the class T",
    **{f"rule.{name}": "equivalent: the device has its own kernel for this operator, and that kernel applies no device rule"
       for name in ("copy_", "set_.source_Tensor")},
    **{f"row.{name}": "equivalent: PyTorch composes this operator of other operators that have rows; its own row only saves time"
       for name in ("logical_and", "logical_or", "logical_not", "mean", "sum", "logsumexp", "huber_loss_backward",
                    "smooth_l1_loss_backward", "cummax")},
    **{f"layout.{name}": "the layout's fallback or PyTorch's composite kernels give the same results in all calls of the tests"
       for name in ("copy_.SparsePrivateUse1", "copy_.NestedTensorPrivateUse1", "overshadowed.SparseCsrPrivateUse1",
                    "fallback.NestedTensorPrivateUse1")},
    "rule._scaled_dot_product_flash_attention_for_cpu_backward": "an operator of the CPU, which CUDA does not have",
    **{f"rule.{name}": "an internal operator; both rules refuse tensors of two devices, in other words"
       for name in ("_validate_compressed_sparse_indices", "_scaled_dot_product_fused_attention_overrideable_backward")},
    "row.abs": "equivalent: PyTorch's composite kernel gives the same result; the row only saves the resize of an empty tensor",
}  # fmt: skip


def why_it_survives(name: str) -> str:
    """The reason of a mutant that is expected to survive, or the empty string."""
    return next((why for pattern, why in EXPECTED_SURVIVORS.items() if fnmatch.fnmatch(name, pattern)), "")


# The prefix of the mutants' names, the kind, the file, the table, and the checks that are run first.
OVERRIDES = (
    ("guard", "guard", RUNTIME + "Guard.cpp", GUARD, "streams/*"),
    ("hooks", "hooks", RUNTIME + "Hooks.cpp", HOOKS, "tools/interfaces/*"),
    ("generator", "generator", RUNTIME + "Generator.cpp", GENERATOR, "trains/random/*"),
    ("allocator", "allocator", MEMORY + "DeviceAllocator.cpp", DEVICE_ALLOCATOR, "memory/*"),
    ("host_allocator", "allocator", MEMORY + "HostAllocator.cpp", HOST_ALLOCATOR, "memory/pinned/*"),
    ("graph", "graph", "csrc/graph/DeviceGraph.cpp", GRAPH, "*/graphs/*"),
    ("profiler_stubs", "profiler", "csrc/profiler/ProfilerStubs.cpp", STUBS, "tools/profiler/*"),
)


def _overrides() -> Iterator[Mutant]:
    for prefix, kind, file, table, first in OVERRIDES:
        for signature, code in table.items():
            function = re.search(r"(\w+)\(", signature)
            assert function
            yield Mutant(f"{prefix}.{function[1]}", kind, file, after=signature, code=code, first=first)


# A function that a TORCH_LIBRARY_IMPL block calls registers for aten and PrivateUse1.
_BLOCK = r"(?:TORCH_LIBRARY_IMPL\((\w+), (\w+), m\)|void register_\w+\(torch::Library& m\)) \{\n(.*?)\n\}"


def _rows() -> Iterator[Mutant]:
    """One for each m.impl(...) of the files that register one operator a line."""
    for file in (
        "csrc/aten/OpenRegMinimal.cpp",
        "csrc/aten/OpenRegExtra.cpp",
        "csrc/aten/native/SyncBatchNorm.cpp",
        ROUTES + "OpenRegOverrides.cpp",
        ROUTES + "OpenRegCpuKernels.cpp",
        ROUTES + "OpenRegFallback.cpp",
    ):
        text = (ROOT / file).read_text()
        for block in re.finditer(_BLOCK, text, re.S):
            for row in re.finditer(r'  m\.impl\(\s*"([\w.]+)",[^;]*;', block[3]):
                library = "" if block[1] in (None, "aten") else f"{block[1]}."
                key = "" if block[2] in (None, "PrivateUse1") else f"{block[2]}."
                name = f"row.{library}{key}{row[1]}"
                yield Mutant(name, "row", file, find=row[0], code=f'  if (!MUTANT("{name}")) {{ {row[0].strip()} }}',
                             first="operators/custom/*" if library else "tensors/*" if "Minimal" in file else "operators/*")  # fmt: skip


@dataclass(frozen=True)
class Table:
    """A table of the sources that has a mutant for every row, and the one place where a row is left out."""

    prefix: str  # of the mutants' names
    kind: str
    file: str
    find: str
    code: str
    rows: Callable[[], list[str]]
    first: str  # may contain {name}, the name of the row
    within: str = "*"


def _operators_of(file: str, pattern: str) -> list[str]:
    return re.findall(pattern, re.sub(r"//.*", "", (ROOT / file).read_text()))


def _unboxed() -> list[str]:
    lists = _operators_of(ROUTES + "OpenRegCpuKernels.cpp", r"\b(?:cpu_kernels|add)<([\w\s,]+)>\(m\)")
    kernels = {
        "UnboxedCpuKernel",
        "CheckedCpuKernel",
        "InnerProduct",
        "Equality",
        "OverAllElements",
        "Permutation",
        "Sum",
        "Ops",
    }
    return [name for each in lists for name in re.findall(r"\w+", each) if name not in kernels]


def _structured() -> list[str]:
    rows = _operators_of(ROUTES + "OpenRegStructured.cpp", r"\n  (?:structured|shared)<(.*?)>\(m")
    return [name for row in rows for name in re.findall(r"_ops::(\w+)", row)]


def _rules() -> list[str]:
    lists = re.findall(r"operators: >-\n((?:    .*\n)+)", (ROOT / "csrc/aten/device_rules.yaml").read_text())
    return " ".join(lists).split()


def _nondeterminism_checks() -> list[str]:
    return _operators_of("csrc/aten/native/NondeterminismChecks.cpp", r'\n    \{"([\w.]+)[ "]')


LAYOUTS = ("SparsePrivateUse1", "SparseCsrPrivateUse1", "QuantizedPrivateUse1", "NestedTensorPrivateUse1")
_CPU_KERNELS, _STRUCTURED = ROUTES + "OpenRegCpuKernels.cpp", ROUTES + "OpenRegStructured.cpp"
_FALLBACK = ROUTES + "OpenRegFallback.cpp"
_IMPL = """    m.impl(
        *overload ? (std::string(name) + "." + overload).c_str() : name, routed(torch::CppFunction(kernel), "unboxed"));
"""
_FULL = '(*overload ? std::string(name) + "." + overload : std::string(name)).c_str()'
TABLES = (
    Table("row.", "row", _CPU_KERNELS, _IMPL, f'    if (mutant_of("row.", {_FULL})) return;\n{_IMPL}', _unboxed, "operators/*"),
    Table("row.", "row", _STRUCTURED, "auto* kernel) {\n  m.impl(",
          f'auto* kernel) {{\n  if (mutant_of("row.", {_FULL}) || mutant_of("rule.", {_FULL})) return;\n  m.impl(',
          _structured, "operators/*"),
    Table("row.", "row", _FALLBACK, '    m.impl(name, routed(',
          '    if (!mutant_of("row.", name)) m.impl(name, routed(', lambda: ["mode.values", "conj_physical_"], "operators/*"),
    Table("layout.copy_.", "row", _FALLBACK, '  aten.impl("copy_", ',
          '  if (!mutant_of("layout.copy_.", c10::toString(key))) aten.impl("copy_", ', lambda: [*LAYOUTS], "operators/*"),
    Table("layout.set_.", "row", _FALLBACK, "  if (key == c10::DispatchKey::QuantizedPrivateUse1) {",
          '  if (key == c10::DispatchKey::QuantizedPrivateUse1 && !mutant_of("layout.set_.", c10::toString(key))) {',
          lambda: ["QuantizedPrivateUse1"], "operators/*"),
    Table("layout.overshadowed.", "row", _FALLBACK, "  fallback_for(aten, key, names);",
          '  if (!mutant_of("layout.overshadowed.", c10::toString(key))) fallback_for(aten, key, names);',
          lambda: [*LAYOUTS], "operators/*"),
    Table("layout.fallback.", "row", _FALLBACK, "  all.fallback(",
          '  if (!mutant_of("layout.fallback.", c10::toString(key))) all.fallback(', lambda: [*LAYOUTS], "operators/*"),
    Table("stub.", "stub", _STRUCTURED, "  static void fill() {",
          '  static void fill() {\n    if (mutant_of("stub.", name.text)) return;',
          lambda: _operators_of(_STRUCTURED, r"STUB\((\w+)\)(?!>)")[1:], "operators/*"),
    # The mutant gives the operator the rule of an operator without a row: one_scalar if PyTorch does not check its
    # devices, else one_device. If the row says one_scalar too, the mutant gives one_device, so that the rule changes.
    Table("rule.", "rule", "csrc/aten/native/DeviceRules.cpp", "  if (known != std::end(kRules)) {",
          """  if (known != std::end(kRules) && mutant_of("rule.", name.c_str())) {
    const bool unchecked = is_listed(kUncheckedOperators, name) && known->check != &one_scalar;
    return {unchecked ? &one_scalar : &one_device, method_name(schema, name), ""};
  }
  if (known != std::end(kRules)) {""", _rules, "operators/mixed/*", "operators/*"),
    Table("nondeterminism_check.", "nondeterminism check", "csrc/aten/native/NondeterminismChecks.cpp", "    for (const NondeterministicKernel& kernel : kNondeterministicKernels) {",
          """    for (const NondeterministicKernel& kernel : kNondeterministicKernels) {
      if (mutant_of("nondeterminism_check.", std::string(kernel.operators).substr(0, std::strcspn(kernel.operators, " ")).c_str())) continue;""",
          _nondeterminism_checks, "operators/deterministic/{name}", "operators/deterministic/*"),
    # If the row of an operator is left out, the boxed fallback refuses the operator, because a vendor has no fallback
    # that computes every operator.
    Table("row.", "row", "csrc/aten/native/FallbackPolicy.cpp", "void note_fallback(const OperatorTraits& op) {",
          """void note_fallback(const OperatorTraits& op) {
  TORCH_CHECK_NOT_IMPLEMENTED(!mutant_of("row.", op.name.c_str()), "Could not run '", op.name,
      "' with arguments from the 'openreg' backend.");""", list, "operators/*"),
)  # fmt: skip


def _of_tables() -> Iterator[Mutant]:
    for table in TABLES:
        for name in table.rows():
            first = table.first.format(name=name)
            yield Mutant(table.prefix + name, table.kind, table.file, first=first, within=table.within)


# A command sets them for the processes that it starts, and the kit runs no command.
OF_COMMANDS = ("OPENREG_CHECK", "OPENREG_DRY_CHANGE", "OPENREG_DRY_REPORT")


# If C++ reads a variable with std::getenv, the mutant ignores it there. Any other variable is removed at process start.
def _environment() -> Iterator[Mutant]:
    spec = importlib.util.spec_from_file_location("_openreg_environment", ROOT / "torch_openreg/_environment.py")
    assert spec and spec.loader
    environment = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(environment)
    for variable in environment.all_variables():
        if variable.name in OF_COMMANDS:
            continue
        name, file, call = f"environment.{variable.name}", variable.reader, f'std::getenv("{variable.name}")'
        built = file.startswith(("csrc/", DEVICE)) and call in (ROOT / file).read_text()
        within = CHECKS_OF_VARIABLE.get(variable.name, "")
        if built:
            yield Mutant(
                name, "environment", file, find=call, code=f'(MUTANT("{name}") ? nullptr : {call})', within=within
            )
        else:
            yield Mutant(name, "environment", "", within=within)


def ignore_variable() -> str:
    """The line of Python that each process of the test build runs first."""
    names = {mutant.name for mutant in _environment() if not mutant.file}
    return (
        f'import os; m = os.environ.get("BACKEND_MUTANT"); '
        f'm in {sorted(names)} and os.environ.pop(m.removeprefix("environment."), None)\n'
    )


def mutants() -> list[Mutant]:
    """Every mutant, each with a name of its own."""
    ordering = (
        Mutant(name, "ordering", DEVICE + file, after=after, code=code, first="streams/*")
        for name, file, after, code in ORDERING
    )
    found = [*_overrides(), *ordering, *REPLACED, *_rows(), *_of_tables(), *_environment()]
    return list({mutant.name: mutant for mutant in found}.values())


def sources() -> dict[str, str]:
    """The changed text of each file with a mutant, by its path. Raises ValueError unless each place is found once."""
    changed: dict[str, str] = {}
    for change in (*(m for m in mutants() if m.after or m.find), *TABLES):
        name = change.name if isinstance(change, Mutant) else change.prefix
        text = changed.get(change.file) or (ROOT / change.file).read_text()
        place, code = change.find, change.code
        if isinstance(change, Mutant) and change.after:
            place, code = change.after, f'{change.after}\n  if (MUTANT("{name}")) {{ {code} }}'
        if text.count(place) != 1:
            raise ValueError(f"{name}: {text.count(place)} places in {change.file} are {place!r}")
        changed[change.file] = text.replace(place, code)
    return {file: PREAMBLE.replace("{file}", str(ROOT / file)) + text for file, text in changed.items()}
