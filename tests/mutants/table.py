"""The mutants of the backend: each is one change of one source file, chosen at run time by OPENREG_MUTANT=name.

The changes are data. `sources()` gives the changed text of every file that has one; the sources themselves know nothing
of mutants. Systematic: each virtual override of the guard, the hooks, the allocators, the generator and the profiler's
stubs gives the base's answer or a plausible wrong one; each row `m.impl(...)` is left out; each ordering primitive does
nothing; each environment variable is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUNTIME = "csrc/runtime/OpenReg"
MEMORY = "csrc/runtime/memory/OpenReg"
DEVICE = "third_party/openreg/csrc/"


@dataclass(frozen=True)
class Mutant:
    """One change: where the mutant is on, ``code`` runs right after ``after``; or ``find`` becomes ``code``."""

    name: str
    kind: str
    file: str
    after: str = ""
    find: str = ""
    code: str = ""
    # The checks that are run first: where one would look for the mutant.
    first: str = "*"


# The function that decides whether a mutant is on. Each place asks once.
PREAMBLE = """#include <cstdlib>
#include <cstring>
namespace {
[[maybe_unused]] bool mutant_is(const char* name) {
  const char* const chosen = std::getenv("OPENREG_MUTANT");
  return chosen && std::strcmp(chosen, name) == 0;
}
} // namespace
#define MUTANT(name) ([] { static const bool on = mutant_is(name); return on; }())
#line 1 "{file}"
"""

# Override -> what it does instead. The text is that between the function's braces.
GUARD = {
    "Device OpenRegGuardImpl::exchangeDevice(Device device) const {": "return device_at(current_device());",
    "Device OpenRegGuardImpl::getDevice() const {": "return device_at(0);",
    "void OpenRegGuardImpl::setDevice(Device device) const {": "return;",
    "void OpenRegGuardImpl::uncheckedSetDevice(Device device) const noexcept {": "return;",
    "DeviceIndex OpenRegGuardImpl::deviceCount() const noexcept {": "return 1;",
    "DeviceCapability OpenRegGuardImpl::getDeviceCapability(Device) const {": "TORCH_CHECK(false, \"not implemented\");",
    "void OpenRegGuardImpl::synchronizeDevice(const DeviceIndex device) const {": "return;",
    "Stream OpenRegGuardImpl::getStream(Device device) const {": "return default_stream(device.index());",
    "Stream OpenRegGuardImpl::getDefaultStream(Device device) const {": "return current_stream(device.index());",
    "Stream OpenRegGuardImpl::getStreamFromGlobalPool(Device device, bool isHighPriority) const {":
        "return default_stream(device.index());",
    "Stream OpenRegGuardImpl::getNewStream(Device device, int priority) const {":
        "return default_stream(device.index());",
    "Stream OpenRegGuardImpl::exchangeStream(Stream stream) const {": "return current_stream(stream.device_index());",
    "void* OpenRegGuardImpl::getStreamNativeHandle(const Stream stream) const {": "return nullptr;",
    "bool OpenRegGuardImpl::queryStream(const Stream& stream) const {": "return true;",
    "void OpenRegGuardImpl::synchronizeStream(const Stream& stream) const {": "return;",
    "bool OpenRegGuardImpl::isStreamCapturing(const Stream&) const {": "return true;",
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
    "void OpenRegGeneratorImpl::set_offset(uint64_t) {": "return;",
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
    "  Stream get_current_stream() const override {": "return default_stream(-1);",
    "  bool record_event(void* pointer, void* context, Stream stream) override {": "return false;",
    "  void empty_cache() override {": "return;",
    "  at::HostStats get_stats() override {": "return at::HostStats();",
    "  void reset_accumulated_stats() override {": "return;",
    "  void reset_peak_stats() override {": "return;",
}
STUBS = {
    "  bool enabled() const override {": "return false;",
    "  void record(DeviceIndex* device, Event* event, int64_t* cpu_ns) const override {": "return;",
    "  float elapsed(const Event* start, const Event* end) const override {": "return 0;",
    "  void onEachDevice(std::function<void(int)> fn) const override {": "return;",
    "  void synchronize() const override {": "return;",
}

# Ordering: file, function or expression, and what it does instead.
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
           after="orStream_t current_stream_handle(DeviceIndex device) {",
           code="return stream_handle(default_stream(device));", first="tools/profiler/*"),
    Mutant("stream.one_queue", "ordering", RUNTIME + "Stream.cpp",
           after="Stream stream_from_pool(DeviceIndex device, int priority) {",
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
    Mutant("guard.registration", "row", RUNTIME + "Guard.cpp", find="C10_REGISTER_GUARD_IMPL(PrivateUse1, OpenRegGuardImpl);",
           code="static const bool guard_registered = [] { if (!MUTANT(\"guard.registration\")) { static const "
           "c10::impl::DeviceGuardImplRegistrar r(DeviceType::PrivateUse1, new OpenRegGuardImpl); } return true; }();",
           first="loads/names/*"),
    Mutant("hooks.registration", "row", RUNTIME + "Hooks.cpp", find="  at::RegisterPrivateUse1HooksInterface(new OpenRegHooks);",
           code="  if (!MUTANT(\"hooks.registration\")) at::RegisterPrivateUse1HooksInterface(new OpenRegHooks);",
           first="loads/names/*"),
    Mutant("host_allocator.registration", "row", MEMORY + "HostAllocator.cpp",
           find="REGISTER_HOST_ALLOCATOR(DeviceType::PrivateUse1, instance());",
           code="const bool host_allocator_registered = [] { if (!MUTANT(\"host_allocator.registration\")) "
           "at::setHostAllocator(DeviceType::PrivateUse1, instance()); return true; }();", first="trains/loading/*"),
    Mutant("profiler_stubs.registration", "row", "csrc/profiler/OpenRegProfilerStubs.cpp",
           find="  torch::profiler::impl::registerPrivateUse1Methods(&stubs);",
           code="  if (!MUTANT(\"profiler_stubs.registration\")) torch::profiler::impl::registerPrivateUse1Methods(&stubs);",
           first="tools/profiler/*"),
    Mutant("fallback.registration", "row", "csrc/borrowed/routes/OpenRegCpuKernels.cpp",
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
    *(
        Mutant(f"environment.{variable}", "environment", DEVICE + "environment.cpp", find=f'std::getenv("{variable}")',
               code=f'(MUTANT("environment.{variable}") ? nullptr : std::getenv("{variable}"))', first="loads/*")
        for variable in ("OPENREG_DEVICE_COUNT", "OPENREG_DEVICE_MEMORY", "OPENREG_VISIBLE_DEVICES",
                         "OPENREG_EXECUTION", "OPENREG_CHAOS_SEED")
    ),
)  # fmt: skip

# Mutants that no check of the kit can name, and why. Everything else must be caught.
_OWN_SWITCH = "a switch of this backend's own, whose name no kit can know; tests/test_openreg_environment.py sets it"
EXPECTED_SURVIVORS: dict[str, str] = {
    **{f"environment.{name}": _OWN_SWITCH for name in ("OPENREG_DEVICE_COUNT", "OPENREG_DEVICE_MEMORY",
                                                       "OPENREG_VISIBLE_DEVICES", "OPENREG_CHAOS_SEED")},
    "guard.record.any_device": "equivalent: the device library refuses a stream of another device too",
    "hooks.init": "equivalent: the first allocation starts the device too, and nothing before it needs it started",
    "generator.device_type": "equivalent: a static function of the class that at::check_generator<T> calls, and only code "
    "that includes the backend's own header can name the class",
    "allocator.history_enabled": "a question of the backend's own binding, of which PyTorch has one for CUDA only; "
    "tests/test_memory_history.py asks it",
    "host_allocator.get_current_stream": "equivalent: PyTorch's pinned allocator asks for it while a graph is captured, "
    "which this device does not offer",
    "row.abs": "equivalent: PyTorch's composite kernel gives the same; the row saves it the resize of an empty tensor",
}  # fmt: skip


def _overrides() -> Iterator[Mutant]:
    for prefix, kind, file, table, first in (
        ("guard", "guard", RUNTIME + "Guard.cpp", GUARD, "streams/*"),
        ("hooks", "hooks", RUNTIME + "Hooks.cpp", HOOKS, "tools/interfaces/*"),
        ("generator", "generator", RUNTIME + "Generator.cpp", GENERATOR, "trains/random/*"),
        ("allocator", "allocator", MEMORY + "DeviceAllocator.cpp", DEVICE_ALLOCATOR, "memory/*"),
        ("host_allocator", "allocator", MEMORY + "HostAllocator.cpp", HOST_ALLOCATOR, "memory/pinned/*"),
        ("profiler_stubs", "profiler", "csrc/profiler/OpenRegProfilerStubs.cpp", STUBS, "tools/profiler/*"),
    ):
        for signature, code in table.items():
            function = re.search(r"(\w+)\(", signature)
            assert function
            yield Mutant(f"{prefix}.{function[1]}", kind, file, after=signature, code=code, first=first)


def _rows() -> Iterator[Mutant]:
    """One for each m.impl(...) of the files that register one operator a line."""
    for file in (
        "csrc/aten/OpenRegMinimal.cpp",
        "csrc/aten/OpenRegExtra.cpp",
        "csrc/borrowed/routes/OpenRegOverrides.cpp",
    ):
        text = (ROOT / file).read_text()
        for block in re.finditer(r"TORCH_LIBRARY_IMPL\(aten, PrivateUse1, m\) \{\n(.*?)\n\}", text, re.S):
            for row in re.finditer(r'  m\.impl\(\s*"([\w.]+)",[^;]*;', block[1]):
                name = f"row.{row[1]}"
                yield Mutant(name, "row", file, find=row[0], code=f'  if (!MUTANT("{name}")) {{ {row[0].strip()} }}',
                             first="tensors/*" if "Minimal" in file else "trains/modules/*")  # fmt: skip


def mutants() -> list[Mutant]:
    """Every mutant, each with a name of its own."""
    ordering = (
        Mutant(name, "ordering", DEVICE + file, after=after, code=code, first="streams/*")
        for name, file, after, code in ORDERING
    )
    found = [*_overrides(), *ordering, *REPLACED, *_rows()]
    assert len({mutant.name for mutant in found}) == len(found)
    return found


def sources() -> dict[str, str]:
    """The changed text of each file that has a mutant, by its path. Raises ValueError if a place is not found once."""
    changed: dict[str, str] = {}
    for mutant in mutants():
        text = changed.get(mutant.file) or (ROOT / mutant.file).read_text()
        place = mutant.after or mutant.find
        if text.count(place) != 1:
            raise ValueError(f"{mutant.name}: {text.count(place)} places in {mutant.file} are {place!r}")
        code = f'{place}\n  if (MUTANT("{mutant.name}")) {{ {mutant.code} }}' if mutant.after else mutant.code
        changed[mutant.file] = text.replace(place, code)
    return {file: PREAMBLE.replace("{file}", str(ROOT / file)) + text for file, text in changed.items()}
