#include "graph/DeviceGraph.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <memory>
#include <utility>

#include "runtime/OpenRegGenerator.h"
#include "runtime/OpenRegGraphsC10Utils.h"
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

// The id of a pool that belongs to graphs only (PoolSet::is_of_graph()).
at::MempoolId_t new_pool() {
  static std::atomic<uint64_t> last{0};
  return {++last, 0};
}

OpenRegGeneratorImpl& generator_of_captures(Stream stream) {
  return generator_of(std::nullopt, stream.device_index());
}

const bool graphs_registered = [] {
  std::string key = identity.device; // c10::DeviceTypeName() in upper case
  std::transform(key.begin(), key.end(), key.begin(), [](unsigned char c) { return std::toupper(c); });
  at::GraphImplRegistry()->Register(key, [](const at::GraphImplArgs& args) -> std::unique_ptr<at::GraphImplInterface> {
    return std::make_unique<DeviceGraph>(args);
  });
  return true;
}();

} // namespace

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
}

// The messages of the calls are CUDA's: aten/src/ATen/cuda/CUDAGraph.cpp.
void DeviceGraph::capture_begin(at::MempoolId_t pool, at::GraphCaptureMode mode) {
  TORCH_CHECK(
      pool_ == at::MempoolId_t(0, 0),
      "This graph instance already owns a captured graph. To capture a new graph, create a new instance.");
  const Stream stream = getCurrentOpenRegStream();
  TORCH_CHECK(
      stream != getDefaultOpenRegStream(),
      identity.name,
      " graphs must be captured on a non-default stream. (However, after capture, it's ok to replay them on the "
      "default stream.)");
  OpenRegGeneratorImpl& generator = generator_of_captures(stream); // made and seeded before the capture
  const at::MempoolId_t chosen = pool == at::MempoolId_t(0, 0) ? new_pool() : pool;
  OPENREG_CHECK(orStreamBeginCapture(OpenRegStream(stream).stream(), native_mode(mode)));
  const uint64_t capture = capture_of(stream);
  try {
    device_allocator()->begin_allocate_to_pool(
        stream.device_index(), chosen, [capture](Stream current) { return capture_of(current) == capture; });
  } catch (...) {
    orStreamEndCapture(OpenRegStream(stream).stream(), &graph_);
    release_graph();
    throw;
  }
  generator.begin_capture(capture);
  stream_ = stream;
  pool_ = chosen;
  capture_ = capture;
}

void DeviceGraph::capture_end() {
  TORCH_CHECK(capture_ != 0, "capture_end() was called without capture_begin()");
  if (const orError_t error = end_capture(); error != orSuccess) {
    device_allocator()->release_pool(stream_.device_index(), std::exchange(pool_, {0, 0}));
    throw_error(error, "orStreamEndCapture");
  }
  if (!keep_graph_) {
    instantiate();
    if (!debug_) {
      release_graph();
    }
  }
}

orError_t DeviceGraph::end_capture() {
  const orError_t error = orStreamEndCapture(OpenRegStream(stream_).stream(), &graph_);
  if (capture_of(stream_) == capture_) { // it does not end here: it began on another thread, for example
    throw_error(error, "orStreamEndCapture");
  }
  device_allocator()->end_allocate_to_pool(stream_.device_index(), pool_);
  draws_ = generator_of_captures(stream_).end_capture(std::exchange(capture_, 0));
  return error;
}

void DeviceGraph::check_captured(const char* call) const {
  TORCH_CHECK(
      pool_ != at::MempoolId_t(0, 0) && capture_ == 0, "Called ", call, " without a preceding successful capture.");
}

void DeviceGraph::instantiate() {
  check_captured("instantiate()");
  TORCH_CHECK(graph_ != nullptr, "instantiate() needs a graph that keep_graph=True or enable_debug_mode() has kept.");
  if (exec_ != nullptr) {
    OPENREG_CHECK(orGraphExecDestroy(std::exchange(exec_, nullptr)));
  }
  OPENREG_CHECK(orGraphInstantiate(&exec_, graph_, 0));
}

void DeviceGraph::replay() {
  check_captured("replay()");
  if (exec_ == nullptr) {
    instantiate();
  }
  const Stream stream = getCurrentOpenRegStream(stream_.device_index());
  if (draws_) {
    generator_of_captures(stream).order_with_uses(stream);
  }
  OPENREG_CHECK(orGraphLaunch(exec_, OpenRegStream(stream).stream()));
  if (draws_) {
    generator_of_captures(stream).order_with_uses(stream);
  }
}

void DeviceGraph::release_graph() {
  if (graph_ != nullptr) {
    OPENREG_CHECK(orGraphDestroy(std::exchange(graph_, nullptr)));
  }
}

void DeviceGraph::reset() {
  TORCH_CHECK(capture_ == 0, "reset() was called during the capture");
  release_graph();
  if (exec_ != nullptr) {
    OPENREG_CHECK(orGraphExecDestroy(std::exchange(exec_, nullptr)));
  }
  if (pool_ != at::MempoolId_t(0, 0)) {
    device_allocator()->release_pool(stream_.device_index(), std::exchange(pool_, {0, 0}));
  }
}

at::MempoolId_t DeviceGraph::pool() const {
  TORCH_CHECK(pool_ != at::MempoolId_t(0, 0), "Called pool() without a preceding successful capture.");
  return pool_;
}

void DeviceGraph::debug_dump(const std::string& path) {
  if (graph_ == nullptr) {
    TORCH_WARN(identity.name, " Graphs debug not enabled, set with [graph].enable_debug_mode()");
    return;
  }
  OPENREG_CHECK(orGraphDebugDotPrint(graph_, path.c_str(), 0));
  if (!keep_graph_) {
    release_graph();
  }
}

} // namespace c10::openreg
