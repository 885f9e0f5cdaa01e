#include "simulator/borrowed/OpenMPTeam.h"

#include <ATen/Parallel.h>

#include <atomic>
#include <cstdlib>
#include <string_view>

// A weak symbol. The OpenMP runtime that PyTorch has loaded defines the function. Without such a runtime the function's
// address is null.
extern "C" [[gnu::weak]] int omp_pause_resource_all(int);

namespace at::openreg {
namespace {

// The autograd state that run_backward_on_this_thread() changes: the state of the calling thread. With
// TORCH_OPENREG_AUTOGRAD_THREADS=1 that function must have no effect, so the result is a state that nobody reads.
C10_NOINLINE c10::AutogradState* autograd_state() {
  static const bool own_threads = [] {
    const char* value = std::getenv("TORCH_OPENREG_AUTOGRAD_THREADS");
    return value != nullptr && std::string_view(value) == "1";
  }();
  static c10::AutogradState unread = [] {
    c10::AutogradState state = c10::AutogradState::get_tls_state();
    state.set_multithreading_enabled(false);
    return state;
  }();
  return own_threads ? &unread : &c10::AutogradState::get_tls_state();
}

// Ends the OpenMP team of the calling thread. On a thread without a team the call takes 25 ns. With a team on the
// launching thread and another on the device's thread, a training step of a transformer took 24 ms on two processors;
// with one team the step takes 14 ms.
void release_team() {
  if (omp_pause_resource_all) {
    constexpr int kSoft = 1; // omp_pause_soft
    omp_pause_resource_all(kSoft);
  }
}

// Whether PyTorch's observers see the operators of this thread. The address of the variable identifies the thread.
thread_local bool is_observed = true;

void use_threads(int count) {
  if (at::get_num_threads() != count) {
    at::set_num_threads(count);
  }
}

void release_team_when_idle() {
  constexpr unsigned int kMicroseconds = 1000; // making a new team takes about 50 us
  OPENREG_CHECK(orSetIdleCallback([](void*) { release_team(); }, nullptr, kMicroseconds));
}

} // namespace

void run_backward_on_this_thread() {
  thread_local c10::AutogradState* state = nullptr; // kept, because each get_tls_state() is a function call
  if (C10_UNLIKELY(!state)) {
    state = autograd_state();
  }
  if (C10_UNLIKELY(state->get_multithreading_enabled())) {
    state->set_multithreading_enabled(false);
  }
}

LaunchSettings::LaunchSettings()
    : launching_thread_(&is_observed),
      threads_(at::get_num_threads()),
      autograd_(c10::AutogradState::get_tls_state()),
      launched_at_(c10::openreg::launched_at()) {}

void LaunchSettings::apply() const {
  // The device's thread switches its observers off once and never on again, because each call of enableRecordFunction()
  // takes 400 ns.
  if (C10_UNLIKELY(is_observed) && launching_thread_ != &is_observed) {
    at::enableRecordFunction(false);
    is_observed = false;
  }
  compute_with();
}

void LaunchSettings::compute_with() const {
  use_threads(threads_);
  c10::AutogradState::set_tls_state(autograd_);
}

LaunchSettings::Applied::Applied(const LaunchSettings& settings)
    : threads_(at::get_num_threads()), autograd_(c10::AutogradState::get_tls_state()) {
  settings.compute_with();
}

LaunchSettings::Applied::~Applied() {
  use_threads(threads_);
  c10::AutogradState::set_tls_state(autograd_);
}

orError_t launch_kernel(c10::Stream stream, orHostFn_t run, void* data, unsigned flags, const orKernel& what) {
  static std::atomic<bool> releases{false};
  if (!releases.exchange(true, std::memory_order_relaxed)) {
    release_team_when_idle();
  }
  release_team();
  return orLaunchDescribed(c10::openreg::OpenRegStream(stream).stream(), run, data, flags | orLaunchOnce, &what);
}

} // namespace at::openreg
