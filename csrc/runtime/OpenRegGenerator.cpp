#include "runtime/OpenRegGenerator.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <openreg_launch.h>

#include <cstring>
#include <mutex>
#include <vector>

#include "runtime/OpenRegCaptureRegistry.h"
#include "runtime/OpenRegGraphsC10Utils.h"
#include "runtime/OpenRegIdentity.h"
#include "runtime/OpenRegObserver.h"
#include "runtime/OpenRegRandomEngine.h"
#include "runtime/OpenRegTorchVersion.h"

namespace c10::openreg {
namespace {

EngineFactory make_engine = nullptr;
CaptureRegistrar registrar = nullptr;

void check_offset() {
  TORCH_CHECK(
      make_engine != nullptr,
      "A generator of the ",
      identity.device,
      " device has no offset: it is a Mersenne twister, which has a seed only.");
}

// Refuses a call on a generator of `device` in a capture, in the words of CUDAGeneratorImpl.cpp.
void check_not_captured(DeviceIndex device, const char* call, const char* attempt) {
  TORCH_CHECK(
      capture_of(getCurrentOpenRegStream(device)) == 0,
      attempt,
      identity.name,
      "GeneratorImpl",
      call[0] ? "::" : "",
      call,
      " during ",
      identity.name,
      " graph capture. The call would take effect once, and not at each replay.");
}

// Reserves numbers of a generator with an offset, whose lock the caller holds. A call of the Philox algorithm gives four.
// The results have the bits of unsigned numbers, as PyTorch's interface wants.
void reserve(at::Generator cpu, uint64_t increment, int64_t* seed, int64_t* offset) {
  constexpr uint64_t kWords = 4;
  *seed = static_cast<int64_t>(cpu.current_seed());
  *offset = static_cast<int64_t>(cpu.get_offset());
  cpu.set_offset(cpu.get_offset() + (increment / kWords + (increment % kWords != 0)) * kWords);
}

// The state of a generator of CUDA: aten/src/ATen/cuda/CUDAGeneratorImpl.cpp, get_state().
struct GpuState {
  uint64_t seed;
  uint64_t offset;
};

} // namespace

OpenRegGeneratorImpl::OpenRegGeneratorImpl(DeviceIndex device)
    : OpenRegGeneratorImpl(
          device,
          std::make_shared<SharedEngine>(make_engine ? make_engine(device) : at::detail::createCPUGenerator())) {}

OpenRegGeneratorImpl::OpenRegGeneratorImpl(DeviceIndex device, std::shared_ptr<SharedEngine> engine)
    : GeneratorImpl(Device(identity.type, device), identity.keys), engine_(std::move(engine)) {}

OpenRegGeneratorImpl::SharedEngine::~SharedEngine() {
  for (const auto& [device, event] : events) {
    orEventDestroy(event);
  }
  for (const auto& [capture, use] : captures) {
    orEventDestroy(use.last_use);
  }
}

const at::Generator& OpenRegGeneratorImpl::cpu_generator() const {
  check_not_forked();
  orEvent_t last_use = nullptr;
  {
    const std::lock_guard lock(engine_->mutex);
    last_use = engine_->last_use;
  }
  if (C10_UNLIKELY(last_use != nullptr)) {
    const ObservedCalls calls(CallKind::Internal); // a program for CUDA does not wait here: the state is the host's
    OPENREG_CHECK(orEventSynchronize(last_use));
  }
  return engine_->cpu;
}

void OpenRegGeneratorImpl::launch_on(Stream stream, const std::function<bool()>& launch) {
  const orStream_t queue = OpenRegStream(stream).stream();
  const ObservedCalls calls(CallKind::UnderLock);
  for (;;) {
    {
      const std::lock_guard lock(engine_->mutex);
      if (const uint64_t capture = capture_of(stream); C10_UNLIKELY(capture != 0)) {
        capture_on(stream, capture, launch);
        return;
      }
      wait_for_last_use(stream);
      if (launch()) {
        note_use(stream);
        return;
      }
    }
    OPENREG_CHECK(orStreamAwaitLaunch(queue));
  }
}

void OpenRegGeneratorImpl::wait_for_last_use(Stream stream) {
  if (engine_->last_use && engine_->stream != stream) {
    const ObservedCalls calls_for_itself(CallKind::Internal); // CUDA's generators do not order streams
    OPENREG_CHECK(orStreamWaitEvent(OpenRegStream(stream).stream(), engine_->last_use, 0));
  }
}

void OpenRegGeneratorImpl::note_use(Stream stream) {
  const ObservedCalls calls_for_itself(CallKind::Internal);
  orEvent_t& event = engine_->events[stream.device_index()];
  if (!event) {
    event = create_event(stream);
  }
  OPENREG_CHECK(orEventRecord(event, OpenRegStream(stream).stream()));
  engine_->last_use = event;
  engine_->stream = stream;
}

// ---- graphs

// The nodes draw in the order of the capture, also on different streams.
void OpenRegGeneratorImpl::capture_on(Stream stream, uint64_t capture, const std::function<bool()>& launch) {
  auto found = engine_->captures.find(capture);
  if (found == engine_->captures.end()) {
    TORCH_CHECK(
        OPENREG_TORCH_AT_LEAST(2, 14) && registrar,
        "RNG op during graph capture but generator is not registered with the capturing graph. Call "
        "graph.register_generator_state() before capture_begin().");
    registrar(capture, at::Generator(graphsafe_get_state()));
    found = engine_->captures.emplace(capture, SharedEngine::CapturedUse()).first;
  }
  SharedEngine::CapturedUse& use = found->second;
  const orStream_t queue = OpenRegStream(stream).stream();
  if (use.last_use && use.stream != stream) {
    OPENREG_CHECK(orStreamWaitEvent(queue, use.last_use, 0));
  }
  TORCH_INTERNAL_ASSERT(launch(), "a capture does not wait");
  if (!use.last_use) {
    use.last_use = create_event(stream);
  }
  OPENREG_CHECK(orEventRecord(use.last_use, queue));
  use.stream = stream;
  ++use.draws;
}

uint64_t OpenRegGeneratorImpl::draws_in(uint64_t capture) const {
  const std::lock_guard lock(engine_->mutex);
  const auto found = engine_->captures.find(capture);
  return found == engine_->captures.end() ? 0 : found->second.draws;
}

void OpenRegGeneratorImpl::begin_capture(uint64_t capture) {
  const std::lock_guard lock(engine_->mutex);
  engine_->captures[capture] = {};
}

bool OpenRegGeneratorImpl::end_capture(uint64_t capture) {
  const std::lock_guard lock(engine_->mutex);
  const auto ended = engine_->captures.extract(capture);
  const orEvent_t last_use = ended ? ended.mapped().last_use : nullptr;
  orEventDestroy(last_use);
  return last_use != nullptr;
}

void OpenRegGeneratorImpl::order_with_uses(Stream stream) {
  const std::lock_guard lock(engine_->mutex);
  wait_for_last_use(stream);
  note_use(stream);
}

std::unique_lock<std::mutex> OpenRegGeneratorImpl::wait_and_lock(const char* call, const char* attempt) const {
  check_not_captured(device().index(), call, attempt);
  return std::unique_lock(cpu_generator().unsafeGetGeneratorImpl()->mutex_);
}

void OpenRegGeneratorImpl::set_current_seed(uint64_t seed) {
  if (C10_UNLIKELY(capture_of(getCurrentOpenRegStream(device().index())) != 0)) {
    TORCH_CHECK(
        engine_->cpu.unsafeGetGeneratorImpl()->current_seed() == seed,
        identity.name,
        "GeneratorImpl::set_current_seed can be called during stream capture only if new seed is the same as the "
        "original seed.");
    return;
  }
  const auto lock = wait_and_lock("set_current_seed");
  engine_->cpu.set_current_seed(seed);
}

uint64_t OpenRegGeneratorImpl::current_seed() const {
  const auto lock = wait_and_lock("current_seed");
  return engine_->cpu.current_seed();
}

uint64_t OpenRegGeneratorImpl::seed() {
  const auto lock = wait_and_lock("seed");
  return engine_->cpu.seed();
}

void OpenRegGeneratorImpl::set_offset(uint64_t offset) {
  check_offset();
  const auto lock = wait_and_lock("set_offset");
  engine_->cpu.set_offset(offset);
}

uint64_t OpenRegGeneratorImpl::get_offset() const {
  check_offset();
  const auto lock = wait_and_lock("get_offset");
  return engine_->cpu.get_offset();
}

void OpenRegGeneratorImpl::philox_state(
    uint64_t increment, at::Tensor& seed, at::Tensor& offset, at::Tensor& intragraph_offset) {
  check_offset();
  intragraph_offset = at::zeros({1}, at::kLong);
  const Stream stream = getCurrentOpenRegStream(device().index());
  const bool captured = capture_of(stream) != 0;
  const auto options = at::TensorOptions(at::kLong).device(captured ? device() : Device(kCPU));
  seed = at::empty({1}, options);
  offset = at::empty({1}, options);
  if (!captured) {
    const auto lock = wait_and_lock("philox_state");
    reserve(engine_->cpu, increment, seed.mutable_data_ptr<int64_t>(), offset.mutable_data_ptr<int64_t>());
    return;
  }
  auto* const to_seed = seed.mutable_data_ptr<int64_t>();
  auto* const to_offset = offset.mutable_data_ptr<int64_t>();
  const auto kernel = [cpu = engine_->cpu, increment](int64_t* seed_of_replay, int64_t* offset_of_replay) {
    const std::lock_guard lock(cpu.unsafeGetGeneratorImpl()->mutex_);
    reserve(
        cpu,
        increment,
        static_cast<int64_t*>(orGetKernelPointer(seed_of_replay)),
        static_cast<int64_t*>(orGetKernelPointer(offset_of_replay)));
  };
  launch_on(stream, [&] {
    OPENREG_CHECK(orLaunchKernel(
        OpenRegStream(stream).stream(),
        {"philox_state", {orWrites(to_seed, 1), orWrites(to_offset, 1)}},
        kernel,
        to_seed,
        to_offset));
    return true;
  });
}

void OpenRegGeneratorImpl::set_state(const c10::TensorImpl& state) {
  at::detail::check_rng_state(state);
  const auto lock = wait_and_lock("set_state_index method during capturing.", "Please ensure to utilize the ");
  if (make_engine != nullptr) {
    engine_->cpu.unsafeGetGeneratorImpl()->set_state(state);
    return;
  }
  if (state.numel() == sizeof(GpuState)) {
    // The state comes from a program that ran on a GPU, for example from its checkpoint. The function does not refuse
    // it, because torch.cuda.set_rng_state() may be queued until the device starts, and an error would then be raised
    // at the start.
    GpuState gpu{};
    std::memcpy(&gpu, state.data(), sizeof(gpu));
    engine_->cpu.set_current_seed(gpu.seed);
    if (gpu.offset != 0) {
      TORCH_WARN(
          "The random state is a GPU's: the ",
          identity.device,
          " device starts at the beginning of the sequence of the seed ",
          gpu.seed,
          " without the offset ",
          gpu.offset,
          ", which a Mersenne twister cannot have, and gives other numbers than the GPU.");
    }
    return;
  }
  const int64_t expected = engine_->cpu.unsafeGetGeneratorImpl()->get_state()->numel();
  TORCH_CHECK(
      state.numel() == expected,
      "RNG state is wrong size: a state of the ",
      identity.device,
      " device has ",
      expected,
      " bytes, and a state of a GPU has ",
      sizeof(GpuState),
      ", but got ",
      state.numel(),
      ".");
  engine_->cpu.unsafeGetGeneratorImpl()->set_state(state);
}

c10::intrusive_ptr<c10::TensorImpl> OpenRegGeneratorImpl::get_state() const {
  const auto lock = wait_and_lock("current_seed"); // CUDA's get_state() asks for the seed first
  return engine_->cpu.unsafeGetGeneratorImpl()->get_state();
}

void OpenRegGeneratorImpl::graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& other) {
  const auto* impl = dynamic_cast<OpenRegGeneratorImpl*>(other.get());
  TORCH_CHECK(impl, identity.wrong_generator(other->device()));
  engine_ = impl->engine_;
}

c10::intrusive_ptr<c10::GeneratorImpl> OpenRegGeneratorImpl::graphsafe_get_state() const {
  return c10::intrusive_ptr<c10::GeneratorImpl>::reclaim(new OpenRegGeneratorImpl(device().index(), engine_));
}

OpenRegGeneratorImpl* OpenRegGeneratorImpl::clone_impl() const {
  check_not_captured(device().index(), "clone_impl", "Cannot call ");
  return new OpenRegGeneratorImpl(device().index(), std::make_shared<SharedEngine>(cpu_generator().clone()));
}

c10::DeviceType OpenRegGeneratorImpl::device_type() {
  return identity.type;
}

at::Generator new_generator(DeviceIndex device) {
  check_not_captured(device, "", "Cannot construct a new ");
  return at::make_generator<OpenRegGeneratorImpl>(device);
}

void set_capture_registrar(CaptureRegistrar chosen) {
  registrar = chosen;
}

void set_engine_factory(EngineFactory make) {
  make_engine = make;
}

const at::Generator& default_generator(DeviceIndex device) {
  // Makes the generators of all devices at once, so that torch.manual_seed() also seeds devices that are not used yet.
  static const auto* generators = [] {
    auto* all = new std::vector<at::Generator>;
    for (DeviceIndex i = 0; i < device_count(); ++i) {
      all->push_back(at::make_generator<OpenRegGeneratorImpl>(i));
      all->back().seed();
    }
    return all;
  }();
  if (device < 0) {
    device = current_device();
  }
  check_device_index(device);
  return (*generators)[device];
}

OpenRegGeneratorImpl& generator_of(const std::optional<at::Generator>& given, DeviceIndex device) {
  const at::Generator& generator = given.has_value() && given->defined() ? *given : default_generator(device);
  TORCH_CHECK(
      generator.device().type() == identity.type,
      "Expected a '",
      identity.type,
      "' device type for generator but found '",
      generator.device().type(),
      "'");
  return *static_cast<OpenRegGeneratorImpl*>(generator.unsafeGetGeneratorImpl());
}

} // namespace c10::openreg
