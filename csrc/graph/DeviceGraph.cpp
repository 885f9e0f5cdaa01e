#include "graph/DeviceGraph.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/StreamGuard.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "runtime/OpenRegCaptureRegistry.h"
#include "runtime/OpenRegGenerator.h"
#include "runtime/OpenRegGraphsC10Utils.h"
#include "runtime/OpenRegIdentity.h"
#include "runtime/OpenRegMutex.h"
#include "runtime/OpenRegObserver.h"
#include "runtime/OpenRegTorchVersion.h"
#include "runtime/memory/OpenRegDeviceAllocator.h"

namespace c10::openreg {
namespace {

orStreamCaptureMode native_mode(at::GraphCaptureMode mode) {
  switch (mode) {
    case at::GraphCaptureMode::ThreadLocal:
      return orStreamCaptureModeThreadLocal;
    case at::GraphCaptureMode::Relaxed:
      return orStreamCaptureModeRelaxed;
    default:
      return orStreamCaptureModeGlobal;
  }
}

// The graphs that capture, by the number of the capture. The lock also guards their generators_. It is a leaf.
ForkSafeMutex capturing_mutex;
std::map<uint64_t, DeviceGraph*>& capturing() {
  static auto* const all = new std::map<uint64_t, DeviceGraph*>(); // used while the process exits
  return *all;
}

const bool graphs_registered = [] {
  std::string key = identity.device; // c10::DeviceTypeName() in upper case
  std::transform(key.begin(), key.end(), key.begin(), [](unsigned char c) { return std::toupper(c); });
  at::GraphImplRegistry()->Register(key, [](const at::GraphImplArgs& args) -> std::unique_ptr<at::GraphImplInterface> {
    return std::make_unique<DeviceGraph>(args);
  });
  set_capture_registrar(&DeviceGraph::register_state);
  return true;
}();

} // namespace

at::MempoolId_t DeviceGraph::new_pool() {
  static std::atomic<uint64_t> last{0};
  return {++last, 0};
}

DeviceGraph::~DeviceGraph() {
  if (orIsInBadFork()) { // a forked child has no graphs
    return;
  }
  try {
    if (capture_ != 0) {
      end_capture();
    }
    reset();
  } catch (const std::exception& error) {
    TORCH_WARN("a graph could not be released: ", error.what());
  }
  const std::lock_guard lock(capturing_mutex);
  std::erase_if(capturing(), [this](const auto& each) { return each.second == this; });
}

// The messages of the calls are CUDA's: aten/src/ATen/cuda/CUDAGraph.cpp.
void DeviceGraph::capture_begin(at::MempoolId_t pool, at::GraphCaptureMode mode) {
  TORCH_CHECK(
      pool_ == at::MempoolId_t(0, 0),
      "This ",
      identity.name,
      "Graph instance already owns a captured graph. To capture a new graph, create a new instance.");
  const Stream stream = getCurrentOpenRegStream();
  TORCH_CHECK(
      stream != getDefaultOpenRegStream(),
      identity.name,
      " graphs must be captured on a non-default stream. (However, after capture, it's ok to replay them on the "
      "default stream.)");
  register_generator_state(default_generator(stream.device_index())); // made and seeded before the capture
  const at::MempoolId_t chosen = pool == at::MempoolId_t(0, 0) ? new_pool() : pool;
  OPENREG_CHECK(orStreamBeginCapture(OpenRegStream(stream).stream(), native_mode(mode)));
  const uint64_t capture = capture_of(stream);
  const auto is_captured = [capture](Stream current) { return capture_of(current) == capture; };
  try {
    device_allocator()->begin_allocate_to_pool(stream.device_index(), chosen, is_captured);
    at::getHostAllocator(identity.type)->begin_allocate_to_pool(chosen, is_captured);
  } catch (...) {
    orStreamEndCapture(OpenRegStream(stream).stream(), &graph_);
    release_graph();
    throw;
  }
  for (const at::Generator& each : generators_) {
    generator_of(each, stream.device_index()).begin_capture(capture);
  }
  stream_ = stream;
  pool_ = chosen;
  capture_ = capture;
#if !OPENREG_TORCH_AT_LEAST(2, 14)
  make_random_states();
#endif
  const std::lock_guard lock(capturing_mutex);
  capturing()[capture] = this;
}

// CUDA keeps the seed and the offset of each generator of a capture in two blocks of the device, which programs see in
// the statistics of the memory. Here a kernel asks the generator when it runs. As on CUDA, the blocks belong to the
// default stream.
void DeviceGraph::make_random_states() {
  const c10::StreamGuard guard(getDefaultOpenRegStream(stream_.device_index()));
  const UnsafeCalls unsafe;
  const ObservedCalls calls(CallKind::Internal);
  for (size_t i = 0; i < 2 * generators_.size(); ++i) {
    random_states_.push_back(device_allocator()->allocate(sizeof(int64_t)));
  }
}

void DeviceGraph::capture_end_pre() {
  TORCH_CHECK(capture_ != 0, "capture_end() called before capture_begin().");
  TORCH_CHECK(stream_ == getCurrentOpenRegStream(), "Capture must end on the same stream it began on.");
  if (const std::exception_ptr error = end_capture()) {
    release_pools();
    std::rethrow_exception(error);
  }
  size_t nodes = 0;
  OPENREG_CHECK(orGraphGetNodeCount(graph_, &nodes));
  if (nodes == 0) {
    TORCH_WARN(
        "The ",
        identity.name,
        " Graph is empty. This usually means that the graph was attempted to be captured on wrong device or stream.");
  }
}

void DeviceGraph::capture_end_post() {
  if (!keep_graph_ && !debug_) {
    release_graph();
  }
}

void DeviceGraph::capture_end() {
  capture_end_pre();
  if (!keep_graph_) {
    instantiate();
  }
  capture_end_post();
}

// Returns the error of the capture, whose message is that of the thread's last call.
std::exception_ptr DeviceGraph::end_capture() {
  std::exception_ptr error;
  try {
    OPENREG_CHECK(orStreamEndCapture(OpenRegStream(stream_).stream(), &graph_));
  } catch (...) {
    if (capture_of(stream_) == capture_) { // it does not end here: it began on another thread, for example
      throw;
    }
    error = std::current_exception();
  }
  {
    const std::lock_guard lock(capturing_mutex);
    capturing().erase(capture_);
  }
  device_allocator()->end_allocate_to_pool(stream_.device_index(), pool_);
  at::getHostAllocator(identity.type)->end_allocate_to_pool(pool_);
  std::erase_if(generators_, [&](const at::Generator& each) {
    return !generator_of(each, stream_.device_index()).end_capture(capture_);
  });
  capture_ = 0;
  draws_before_bodies_.clear();
#if OPENREG_TORCH_AT_LEAST(2, 14)
  make_random_states(); // only for the generators that have drawn
#endif
  return error;
}

void DeviceGraph::check_captured(const char* call) const {
  TORCH_CHECK(
      pool_ != at::MempoolId_t(0, 0) && capture_ == 0,
      "Called ",
      identity.name,
      "Graph::",
      call,
      " without a preceding successful capture.");
}

void DeviceGraph::instantiate() {
  TORCH_CHECK(
      pool_ != at::MempoolId_t(0, 0) && capture_ == 0,
      "capture_end() must have been called before calling instantiate");
  if (exec_ != nullptr) {
    TORCH_CHECK(keep_graph_, "instantiate() is intended to be called by the user only when keep_graph=true");
    OPENREG_CHECK(orGraphExecDestroy(std::exchange(exec_, nullptr)));
  }
  OPENREG_CHECK(orGraphInstantiate(&exec_, graph_, 0));
}

void DeviceGraph::replay() {
  check_captured("replay");
  if (exec_ == nullptr) {
    instantiate();
  }
  const Stream stream = getCurrentOpenRegStream(stream_.device_index());
  order_with_draws(stream);
  OPENREG_CHECK(orGraphLaunch(exec_, OpenRegStream(stream).stream()));
  order_with_draws(stream);
}

void DeviceGraph::order_with_draws(Stream stream) const {
  for (const at::Generator& each : generators_) {
    generator_of(each, stream.device_index()).order_with_uses(stream);
  }
}

void DeviceGraph::register_state(uint64_t capture, at::Generator state) {
  const std::lock_guard lock(capturing_mutex);
  const auto found = capturing().find(capture);
  TORCH_CHECK(found != capturing().end(), "RNG op during graph capture but could not find the CUDAGraph object.");
  found->second->generators_.push_back(std::move(state));
}

void DeviceGraph::register_generator_state(const at::Generator& generator) {
  // Keeps the state, also if the program gives its generator another one.
  const auto state = generator_of(generator, generator.device().index()).graphsafe_get_state();
  generators_.push_back(at::Generator(state));
}

DeviceGraph& DeviceGraph::currently_capturing() {
  const uint64_t capture = capture_of(getCurrentOpenRegStream());
  TORCH_CHECK(capture != 0, "The current stream is not currently capturing.");
  const std::lock_guard lock(capturing_mutex);
  const auto found = capturing().find(capture);
  TORCH_CHECK(
      found != capturing().end(),
      "get_currently_capturing_graph() can be used only between capture_begin() and capture_end(). Did you use a "
      "stream without making it depend upon the original stream used for capture?");
  return *found->second;
}

uint64_t DeviceGraph::captured_draws() const {
  std::vector<at::Generator> generators;
  {
    const std::lock_guard lock(capturing_mutex);
    generators = generators_;
  }
  uint64_t draws = 0;
  for (const at::Generator& each : generators) {
    draws += generator_of(each, stream_.device_index()).draws_in(capture_);
  }
  return draws;
}

void DeviceGraph::begin_conditional(const at::Tensor& predicate) {
  TORCH_CHECK(exec_ == nullptr, "This ", identity.name, "Graph instance already owns a captured graph.");
  const Stream stream = getCurrentOpenRegStream();
  TORCH_CHECK(
      capture_ != 0 && capture_of(stream) == capture_,
      "capture_begin() must be called before begin_capture_to_if_node()");
  TORCH_CHECK(
      predicate.device() == stream.device() && predicate.numel() == 1,
      "The predicate of a conditional node must be a tensor of one element on ",
      stream.device());
  const uint64_t draws = captured_draws();
  OPENREG_CHECK(orStreamBeginConditional(OpenRegStream(stream).stream(), predicate.const_data_ptr<bool>(), 1));
  draws_before_bodies_.push_back(draws);
}

void DeviceGraph::end_conditional() {
  TORCH_CHECK(
      !draws_before_bodies_.empty(), "end_capture_to_conditional_node() called before begin_capture_to_if_node().");
  const uint64_t draws = draws_before_bodies_.back();
  draws_before_bodies_.pop_back();
  OPENREG_CHECK(orStreamEndConditional(OpenRegStream(getCurrentOpenRegStream()).stream()));
  TORCH_CHECK(draws == captured_draws(), "RNG within data-dependent conditional nodes is not supported yet.");
}

void DeviceGraph::retain_pool(at::MempoolId_t pool) {
  TORCH_CHECK(capture_ != 0, "A graph can retain a pool only during its capture.");
  if (pool != pool_ && std::find(retained_.begin(), retained_.end(), pool) == retained_.end()) {
    device_allocator()->use_pool(stream_.device_index(), pool);
    retained_.push_back(pool);
  }
}

std::vector<at::MempoolId_t> DeviceGraph::pools() const {
  std::vector<at::MempoolId_t> all{pool()};
  all.insert(all.end(), retained_.begin(), retained_.end());
  return all;
}

void DeviceGraph::release_pools() {
  random_states_.clear();
  for (const at::MempoolId_t each : std::exchange(retained_, {})) {
    device_allocator()->release_pool(stream_.device_index(), each);
  }
  if (pool_ != at::MempoolId_t(0, 0)) {
    at::getHostAllocator(identity.type)->release_pool(pool_);
    device_allocator()->release_pool(stream_.device_index(), std::exchange(pool_, {0, 0}));
  }
}

void DeviceGraph::release_graph() {
  if (graph_ != nullptr) {
    OPENREG_CHECK(orGraphDestroy(std::exchange(graph_, nullptr)));
  }
}

void DeviceGraph::reset() {
  TORCH_CHECK(capture_ == 0, "reset() was called during the capture");
  generators_.clear();
  release_graph();
  if (exec_ != nullptr) {
    OPENREG_CHECK(orGraphExecDestroy(std::exchange(exec_, nullptr)));
  }
  release_pools();
}

at::MempoolId_t DeviceGraph::pool() const {
  check_captured("pool()");
  return pool_;
}

void DeviceGraph::debug_dump(const std::string& path) {
  if (!debug_ && !keep_graph_) {
    TORCH_WARN(identity.name, " Graphs debug not enabled, set with [graph].enable_debug_mode()");
    return;
  }
  check_captured("debug_dump");
  TORCH_CHECK(graph_ != nullptr, "debug_dump() has written this graph already: use keep_graph=True to write it again.");
  OPENREG_CHECK(orGraphDebugDotPrint(graph_, path.c_str(), 0));
  if (!keep_graph_) {
    release_graph();
  }
}

} // namespace c10::openreg
