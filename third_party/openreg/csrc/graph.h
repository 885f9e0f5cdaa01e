#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "error.h"
#include "openreg_graph.h"
#include "stream.h"

// Graphs (openreg_graph.h). graph_capture.cpp makes them, graph.cpp keeps them, and graph_launch.cpp runs them.
//
// The other files ask isCapturing() before work comes to a stream, mayAskFor() before a call that asks for the state of
// a stream, and mayCallUnsafe() before other calls that might wait. If no stream captures, each question costs one load
// and one predictable branch.
namespace openreg {

// ---- graph.cpp: graphs ----------------------------------------------------------------------------------------------

constexpr size_t kAlways = SIZE_MAX;

// The bytes that a conditional node reads.
struct GraphCondition {
  const void* data;
  size_t size;
};

struct GraphNode {
  orGraphNodeType type;
  int device;
  Work work;                    // of a kernel, copy, fill or host function
  std::shared_ptr<Event> event; // of the other nodes
  std::vector<size_t> after;    // the numbers of the nodes that this one directly comes after
  std::shared_ptr<void> owned;  // the data of a copy or fill
  orEvent_t handle = nullptr;   // of `event`
  size_t condition = kAlways;   // the number of the conditional node whose body has this node
};

// Its nodes change until it is `complete`: the capture has ended.
struct Graph {
  std::vector<GraphNode> nodes;
  std::vector<std::shared_ptr<void>> objects; // see orGraphRetainUserObject
  bool complete = false;
  uintptr_t number = 0; // of the capture
};

// Guards graphs and captures. A thread that holds this lock may take the scheduler's lock, but does not wait for work.
extern std::mutex graphLock;

HandleTable<Graph, orGraph_t>& graphs();

// Returns null after a failure, which fail() has recorded.
std::shared_ptr<Graph> resolveGraph(orGraph_t graph);

// ---- graph_capture.cpp: captures ------------------------------------------------------------------------------------

// To be asked before each call that adds work to the stream.
inline bool isCapturing(const Stream& stream) {
  return __builtin_expect(stream.capturing.load(std::memory_order_relaxed), 0);
}

// Adds the work to the graph that the stream captures. `owned` is kept as long as the graph. Returns the error of the
// capture if it is invalidated.
orError_t capture(
    const std::shared_ptr<Stream>& stream, orGraphNodeType type, const Work& work, std::shared_ptr<void> owned = {});

// Adds the nodes of a graph.
orError_t capture(const std::shared_ptr<Stream>& stream, const std::shared_ptr<const Graph>& graph);

// Notes that the event stands for this point of the stream's capture. `external`: adds a node that records the event.
orError_t captureRecord(
    const std::shared_ptr<Stream>& stream, const std::shared_ptr<Event>& event, orEvent_t handle, bool external);

// Makes the stream wait for the event, if one of them belongs to a capture. `captured` says whether that was so.
// `external`: adds a node that waits.
orError_t captureWait(
    const std::shared_ptr<Stream>& stream,
    const std::shared_ptr<Event>& event,
    orEvent_t handle,
    bool external,
    bool& captured);

// Refuses a call on a stream that captures, and invalidates the capture. `what` is what the call would do.
orError_t refuseInCapture(const Stream& stream, const char* what);

// The event was recorded outside of captures.
void forgetCapture(Event& event);

// Whether the calling thread may make an unsafe call now (orStreamCaptureMode). If not, the captures that refuse it are
// invalidated.
orError_t checkUnsafe();
inline orError_t mayCallUnsafe() {
  return orMayCapture() ? checkUnsafe() : orSuccess;
}

// Whether the calling thread may ask now whether the work of the stream is done.
orError_t checkAsksFor(const Stream& stream);
inline orError_t mayAskFor(const Stream& stream) {
  return orMayCapture() ? checkAsksFor(stream) : orSuccess;
}

// The same for an event. checkNotCaptured() refuses an event that was last recorded in a capture, which may have ended.
orError_t checkNotCaptured(const Event& event);
inline orError_t mayAskFor(const Event& event) {
  const orError_t error = event.wasCaptured.load(std::memory_order_relaxed) ? checkNotCaptured(event) : orSuccess;
  return error == orSuccess ? mayCallUnsafe() : error;
}

// Refuses a call that waits for the device; without a device, for all of them.
orError_t checkNoCapture(int device);
constexpr int kAllDevices = -1;

} // namespace openreg
