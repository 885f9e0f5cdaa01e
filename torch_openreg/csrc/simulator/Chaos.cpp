#include <openreg.h>
#include <openreg_progress.h>
#include <torch/csrc/Exceptions.h>

#include <chrono>
#include <cstdio>
#include <future>
#include <thread>
#include <utility>

#include "Bindings.h"
#include "runtime/OpenRegException.h"
#include "runtime/OpenRegFunctions.h"

namespace py = pybind11;

namespace {

// How long the exit of a process waits for its queued work. A collective may wait for another rank for ever.
constexpr std::chrono::seconds kLongestExit{10};

// No call of the program can report a failure any more, so this function writes it.
void wait_for_all_devices() {
  constexpr int kMostFailures = 10; // a lost device fails for ever
  for (c10::DeviceIndex device = 0; device < c10::openreg::device_count(); ++device) {
    const c10::openreg::CurrentDevice current(device);
    for (int failures = 0; failures < kMostFailures && orDeviceSynchronize() != orSuccess; ++failures) {
      std::fprintf(stderr, "At exit: %s\n", orGetLastErrorMessage());
    }
  }
}

// In the mode chaos queued work runs when somebody waits for it: here at the latest, because functions of Python cannot
// run later. Another thread waits, because this one goes on when the time is over.
void run_queued_work() {
  orExecutionMode mode = orExecutionInline;
  if (orIsInBadFork() || !c10::openreg::detail::started || orGetExecutionMode(&mode, nullptr) != orSuccess ||
      mode != orExecutionChaos) {
    return;
  }
  std::packaged_task<void()> task(&wait_for_all_devices);
  const std::future<void> end = task.get_future();
  std::thread thread(std::move(task));
  if (end.wait_for(kLongestExit) == std::future_status::ready) {
    thread.join();
    return;
  }
  thread.detach();
  std::fprintf(
      stderr, "At exit: queued work has not ended after %d seconds, and is given up\n", int(kLongestExit.count()));
}

uint64_t forced_count() {
  uint64_t count = 0;
  OPENREG_CHECK(orGetForcedCount(&count));
  return count;
}

const Bindings bindings([](py::module_& module) {
  module.def("_forced_count", torch::wrap_pybind_function(&forced_count));
  // At the import: handlers that the program registers later run earlier, and may launch work.
  py::module_::import("atexit").attr("register")(
      py::cpp_function(&run_queued_work, py::call_guard<py::gil_scoped_release>()));
});

} // namespace
