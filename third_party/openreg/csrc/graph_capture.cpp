#include <algorithm>
#include <mutex>
#include <string>
#include <utility>

#include "graph.h"
#include "runtime.h"
#include "scheduler.h"
#include "scheduler_state.h"

// Captures of streams (openreg_graph.h).
//
// A *point* of a capture is a set of nodes: what comes after the point comes after these nodes. Each stream of a
// capture has a point, and so has an event that was recorded in it. A new node comes after the point of its stream, and
// is then that point. A stream that waits for an event joins the event's point to its own.

unsigned int orCaptureCount = 0;

namespace openreg {

std::mutex graphLock;

struct Capture {
  uint64_t id;
  orStreamCaptureMode mode;
  const HostThread* thread; // the thread that began it
  std::shared_ptr<Graph> graph;
  orGraph_t handle;
  std::vector<StreamPtr> streams{}; // the first is the origin; empty if the capture has ended
  std::string error{};              // why it is invalidated; empty if it is not
};

struct CapturePoint {
  std::shared_ptr<Capture> capture;
  std::vector<size_t> after;  // numbers of nodes
  size_t condition = kAlways; // as GraphNode::condition, of the nodes that follow
};

namespace {

std::vector<std::shared_ptr<Capture>>& captures() {
  static auto* const all = new std::vector<std::shared_ptr<Capture>>(); // other threads use it while the process exits
  return *all;
}

thread_local constinit orStreamCaptureMode threadMode = orStreamCaptureModeGlobal;

constexpr const char* kCaptureModes[] = {"global", "thread local", "relaxed"};

// The functions from here to the public ones are called with the lock.

// To be called after fail(): the capture is invalidated by the call that has failed. Returns `error`.
orError_t invalidate(Capture& capture, orError_t error) {
  if (capture.error.empty()) {
    capture.error = orGetLastErrorMessage();
  }
  return error;
}

orError_t failIfInvalidated(const Capture& capture) {
  return capture.error.empty() ? orSuccess
                               : fail(
                                     orErrorStreamCaptureInvalidated,
                                     "operation failed due to a previous error during capture: %s",
                                     capture.error.c_str());
}

// The point of a stream that captures. Returns null, after fail(), if its capture is invalidated or has just ended.
CapturePoint* pointOf(const Stream& stream) {
  if (!stream.capture) {
    fail(orErrorIllegalState, "another thread ended the capture during this call");
    return nullptr;
  }
  return failIfInvalidated(*stream.capture->capture) == orSuccess ? stream.capture.get() : nullptr;
}

orError_t refuse(Capture& capture, const char* what) {
  if (const orError_t error = failIfInvalidated(capture); error != orSuccess) {
    return error;
  }
  return invalidate(
      capture, fail(orErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing: %s", what));
}

orError_t add(const Stream& stream, GraphNode&& node) {
  CapturePoint* const point = pointOf(stream);
  if (point == nullptr) {
    return orPeekAtLastError();
  }
  auto& nodes = point->capture->graph->nodes;
  const bool isHost = node.type == orGraphNodeTypeHost || node.event || node.work.deferred;
  if (point->condition != kAlways && isHost) {
    return refuse(
        *point->capture,
        "the body of a conditional node takes kernels, copies and fills only. Make the call before it");
  }
  node.condition = point->condition;
  node.after = std::move(point->after);
  point->after = {nodes.size()};
  nodes.push_back(std::move(node));
  return orSuccess;
}

// From now on a kernel on a thread of the host finds the turn of the stream `scheduled`, so it comes to the scheduler,
// which refuses it.
void beginOn(
    const StreamPtr& stream,
    const std::shared_ptr<Capture>& capture,
    std::vector<size_t> after,
    size_t condition = kAlways) {
  capture->streams.push_back(stream);
  stream->capture = std::make_shared<CapturePoint>(CapturePoint{capture, std::move(after), condition});
  Locked locked;
  claim(stream);
  stream->capturing = true;
  if (isIdle(*stream)) {
    giveUp(locked, stream);
  }
}

void publishCount() {
  const Locked locked; // the execution mode changes under this lock
  __atomic_store_n(&orCaptureCount, captures().size(), __ATOMIC_RELAXED);
  publishInlineFlag();
}

void end(const std::shared_ptr<Capture>& capture) {
  for (const StreamPtr& stream : std::exchange(capture->streams, {})) {
    stream->capture.reset();
    Locked locked;
    claim(stream);
    stream->capturing = false;
    if (isIdle(*stream)) {
      giveUp(locked, stream);
    }
  }
  std::erase(captures(), capture);
  publishCount();
}

// Returns a stream of the capture whose last work `joining` has not waited for; null if there is none. `condition`: only
// streams in the body of this node are asked for; kAlways: all.
const Stream* findUnjoined(const Capture& capture, const Stream& joining, size_t condition = kAlways) {
  const auto& nodes = capture.graph->nodes;
  std::vector<bool> joined(nodes.size());
  for (const size_t last : joining.capture->after) {
    joined[last] = true;
  }
  for (size_t i = nodes.size(); i-- > 0;) { // a node comes after nodes with smaller numbers only
    for (const size_t before : joined[i] ? nodes[i].after : std::vector<size_t>()) {
      joined[before] = true;
    }
  }
  for (const StreamPtr& stream : capture.streams) {
    const auto& after = stream->capture->after;
    if (condition != kAlways && stream->capture->condition != condition) {
      continue;
    }
    if (!std::all_of(after.begin(), after.end(), [&](size_t number) { return joined[number]; })) {
      return stream.get();
    }
  }
  return nullptr;
}

// Makes the stream wait for a point of a capture.
orError_t waitForPoint(const StreamPtr& stream, const CapturePoint& point) {
  Capture& capture = *point.capture;
  if (capture.streams.empty()) {
    const orError_t error =
        fail(orErrorCapturedEvent, "the event was last recorded in a capture, which has ended; record it again");
    return stream->capture ? invalidate(*stream->capture->capture, error) : error;
  }
  if (const orError_t error = failIfInvalidated(capture); error != orSuccess) {
    return error;
  }
  if (!stream->capture) {
    if (isDefaultStream(*stream)) {
      return invalidate(
          capture,
          fail(
              orErrorStreamCaptureImplicit,
              "operation would make the legacy stream depend on a capturing blocking stream: the default stream cannot "
              "be captured; use another stream"));
    }
    if (hasTurnHere(*stream)) {
      return fail(
          orErrorNotPermitted, "called inside a kernel that has the turn of the stream; call it after the kernel");
    }
    size_t condition = point.condition; // of a body that has not ended
    while (condition != kAlways && std::none_of(capture.streams.begin(), capture.streams.end(), [&](const auto& each) {
             return each->capture->condition == condition;
           })) {
      condition = capture.graph->nodes[condition].condition;
    }
    beginOn(stream, point.capture, point.after, condition);
    return orSuccess;
  }
  if (stream->capture->capture != point.capture) {
    const orError_t error = fail(
        orErrorStreamCaptureMerge,
        "operation would result in a merge of separate capture sequences: the event belongs to another capture than "
        "the stream");
    invalidate(capture, error);
    return invalidate(*stream->capture->capture, error);
  }
  auto& after = stream->capture->after;
  for (const size_t number : point.after) {
    if (std::find(after.begin(), after.end(), number) == after.end()) {
      after.push_back(number);
    }
  }
  return orSuccess;
}

// Do not call it with the lock: it calls the subscribers. Returns an error if one of them stops the call.
orError_t noteNode(int device, orStream_t stream, const Work& work, const Graph& graph, size_t number) {
  return work.kind != 0 && orIsObserved(orActivityNode) ? tellNode(device, stream, work.what, graph.number, number)
                                                        : orSuccess;
}

} // namespace

orError_t capture(const StreamPtr& stream, orGraphNodeType type, const Work& work, std::shared_ptr<void> owned) {
  std::shared_ptr<const Graph> graph;
  size_t number = 0;
  {
    const std::lock_guard lock(graphLock);
    const orError_t error = add(*stream, GraphNode{type, stream->device, work, nullptr, {}, std::move(owned)});
    if (error != orSuccess) {
      return error;
    }
    graph = stream->capture->capture->graph;
    number = graph->nodes.size() - 1;
  }
  return noteNode(stream->device, stream->handle, work, *graph, number);
}

namespace {

// To be called with the lock.
orError_t addAll(const StreamPtr& stream, const std::shared_ptr<const Graph>& graph) {
  CapturePoint* const point = pointOf(*stream);
  if (point == nullptr) {
    return orPeekAtLastError();
  }
  Graph& own = *point->capture->graph;
  const size_t first = own.nodes.size();
  std::vector<bool> isLast(graph->nodes.size(), true);
  for (GraphNode node : graph->nodes) {
    for (size_t& before : node.after) {
      isLast[before] = false;
      before += first;
    }
    if (node.after.empty()) {
      node.after = point->after;
    }
    node.condition = node.condition == kAlways ? point->condition : node.condition + first;
    own.nodes.push_back(std::move(node));
  }
  if (!isLast.empty()) {
    point->after.clear();
  }
  for (size_t i = 0; i < isLast.size(); ++i) {
    if (isLast[i]) {
      point->after.push_back(first + i);
    }
  }
  own.objects.push_back(std::const_pointer_cast<Graph>(graph));
  return orSuccess;
}

} // namespace

orError_t capture(const StreamPtr& stream, const std::shared_ptr<const Graph>& graph) {
  std::shared_ptr<const Graph> own;
  size_t number = 0; // of the node that is noted next
  {
    const std::lock_guard lock(graphLock);
    if (const orError_t error = addAll(stream, graph); error != orSuccess) {
      return error;
    }
    own = stream->capture->capture->graph;
    number = own->nodes.size() - graph->nodes.size();
  }
  for (const GraphNode& node : graph->nodes) {
    const orError_t error = noteNode(stream->device, stream->handle, node.work, *own, number++);
    if (error != orSuccess) {
      return error;
    }
  }
  return orSuccess;
}

orError_t captureRecord(const StreamPtr& stream, const std::shared_ptr<Event>& event, orEvent_t handle, bool external) {
  const std::lock_guard lock(graphLock);
  if (CapturePoint* const point = event->shared ? pointOf(*stream) : nullptr) {
    return refuse(*point->capture, "the event is shared with other processes. Use an event of orEventCreate");
  }
  if (external) {
    return add(*stream, GraphNode{orGraphNodeTypeEventRecord, stream->device, {}, event, {}, nullptr, handle});
  }
  CapturePoint* const point = pointOf(*stream);
  if (point == nullptr) {
    return orPeekAtLastError();
  }
  event->captured = std::make_shared<CapturePoint>(*point);
  event->wasCaptured = true;
  return orSuccess;
}

void forgetCapture(Event& event) {
  const std::lock_guard lock(graphLock);
  event.captured.reset();
}

orError_t captureWait(
    const StreamPtr& stream, const std::shared_ptr<Event>& event, orEvent_t handle, bool external, bool& captured) {
  const std::lock_guard lock(graphLock);
  captured = true;
  if (stream->capture && pointOf(*stream) == nullptr) {
    return orPeekAtLastError();
  }
  if (external && stream->capture) {
    return add(*stream, GraphNode{orGraphNodeTypeWaitEvent, stream->device, {}, event, {}, nullptr, handle});
  }
  if (event->captured) {
    return waitForPoint(stream, *event->captured);
  }
  captured = stream->capture != nullptr;
  if (captured && (stateOf(*event).mark.stream || event->shared)) {
    return invalidate(
        *stream->capture->capture,
        fail(
            orErrorStreamCaptureIsolation,
            "dependency created on uncaptured work in another stream: the event was recorded outside of the capture; "
            "wait for it before the capture begins"));
  }
  return orSuccess; // the event was never recorded
}

orError_t refuseInCapture(const Stream& stream, const char* what) {
  const std::lock_guard lock(graphLock);
  CapturePoint* const point = pointOf(stream);
  return point != nullptr ? refuse(*point->capture, what) : orPeekAtLastError();
}

orError_t checkNotCaptured(const Event& event) {
  const std::lock_guard lock(graphLock);
  if (!event.captured) {
    return orSuccess;
  }
  Capture& capture = *event.captured->capture;
  const orError_t error = fail(
      orErrorCapturedEvent,
      "operation not permitted on an event last recorded in a capturing stream: it stands for no moment of the device. "
      "Record it with orEventRecordExternal, or outside of the capture");
  return capture.streams.empty() ? error : invalidate(capture, error);
}

orError_t checkUnsafe() {
  const std::lock_guard lock(graphLock);
  orError_t error = orSuccess;
  for (const auto& capture : captures()) {
    const bool isHere = capture->thread == &thisThread;
    if (threadMode == orStreamCaptureModeRelaxed) {
      break;
    }
    if (isHere ? capture->mode != orStreamCaptureModeRelaxed
               : capture->mode == orStreamCaptureModeGlobal && threadMode == orStreamCaptureModeGlobal) {
      error = fail(
          orErrorStreamCaptureUnsupported,
          "operation not permitted when stream is capturing: the call may wait for the device, and %s thread captures "
          "a "
          "stream of device %d in the mode %s. Make the call before the capture or after it, or in the mode relaxed "
          "(orThreadExchangeStreamCaptureMode)",
          isHere ? "this" : "another",
          capture->streams.front()->device,
          kCaptureModes[capture->mode]);
      invalidate(*capture, error);
    }
  }
  return error;
}

orError_t checkAsksFor(const Stream& stream) {
  return isCapturing(stream)
             ? refuseInCapture(
                   stream,
                   "the call asks whether work is done, and the work of a capture does not run. Make it "
                   "before the capture or after it")
             : checkUnsafe();
}

orError_t checkNoCapture(int device) {
  const std::lock_guard lock(graphLock);
  orError_t error = orSuccess;
  for (const auto& capture : captures()) {
    const auto& streams = capture->streams;
    if (device == kAllDevices ||
        std::any_of(streams.begin(), streams.end(), [&](const StreamPtr& each) { return each->device == device; })) {
      error = refuse(*capture, "the call waits for all work of the device. Make it before the capture or after it");
    }
  }
  return error;
}

} // namespace openreg

using namespace openreg;

namespace {

template <typename Body>
orError_t onStream(const char* name, orStream_t stream, const void* result, Body&& body) {
  return deviceCall(name, [&]() -> orError_t {
    if (result == nullptr) {
      return fail(orErrorInvalidValue, "the pointer to the result is NULL");
    }
    const StreamPtr found = resolveStream(stream);
    if (!found) {
      return orErrorInvalidResourceHandle;
    }
    return body(found);
  });
}

orError_t mustCapture(const Stream& stream) {
  return isCapturing(stream)
             ? orSuccess
             : fail(orErrorIllegalState, "the stream does not capture; begin with orStreamBeginCapture");
}

orError_t failUnjoined(const Stream& other) {
  return fail(
      orErrorStreamCaptureUnjoined,
      "capturing stream has unjoined work: record an event on stream %p, and make the stream on which the capture "
      "began wait for the event",
      (void*)other.handle);
}

orStreamCaptureStatus statusOf(const Stream& stream) {
  if (!stream.capture) {
    return orStreamCaptureStatusNone;
  }
  return stream.capture->capture->error.empty() ? orStreamCaptureStatusActive : orStreamCaptureStatusInvalidated;
}

} // namespace

orError_t orStreamBeginCapture(orStream_t stream, orStreamCaptureMode mode) {
  return onStream(__func__, stream, &mode, [&](const StreamPtr& found) -> orError_t {
    if (mode < orStreamCaptureModeGlobal || mode > orStreamCaptureModeRelaxed) {
      return fail(orErrorInvalidValue, "mode is %d, which is no orStreamCaptureMode (0 to 2)", mode);
    }
    if (isDefaultStream(*found)) {
      return fail(
          orErrorStreamCaptureUnsupported,
          "operation not permitted when stream is capturing: a default stream cannot be captured; use another stream");
    }
    if (hasTurnHere(*found)) {
      return fail(
          orErrorNotPermitted, "called inside a kernel that has the turn of the stream; call it after the kernel");
    }
    const std::lock_guard lock(graphLock);
    if (found->capture) {
      return fail(
          orErrorIllegalState,
          "the operation cannot be performed in the present state: the stream captures already; end its capture with "
          "orStreamEndCapture");
    }
    static uint64_t last = 0;
    const auto graph = std::make_shared<Graph>();
    graph->number = ++last;
    captures().push_back(std::make_shared<Capture>(Capture{last, mode, &thisThread, graph, graphs().add(graph)}));
    publishCount();
    beginOn(found, captures().back(), {});
    return orSuccess;
  });
}

orError_t orStreamEndCapture(orStream_t stream, orGraph_t* graph) {
  std::shared_ptr<Graph> dropped; // destroyed without the lock
  return onStream(__func__, stream, graph, [&](const StreamPtr& found) -> orError_t {
    const std::lock_guard lock(graphLock);
    *graph = nullptr;
    if (!found->capture) {
      return fail(orErrorIllegalState, "the stream does not capture; begin with orStreamBeginCapture");
    }
    const std::shared_ptr<Capture> capture = found->capture->capture;
    if (capture->streams.front() != found) {
      return fail(
          orErrorStreamCaptureUnmatched,
          "capture was not ended in the same stream as it began: the stream has joined the capture of another stream");
    }
    if (capture->mode != orStreamCaptureModeRelaxed && capture->thread != &thisThread) {
      return fail(
          orErrorStreamCaptureWrongThread,
          "attempt to terminate a thread-local capture sequence from another thread: a capture in the mode %s ends on "
          "the thread that began it",
          kCaptureModes[capture->mode]);
    }
    orError_t error = failIfInvalidated(*capture);
    if (error == orSuccess && found->capture->condition != kAlways) {
      error = fail(orErrorIllegalState, "the stream is in the body of a conditional node; call orStreamEndConditional");
    }
    if (const Stream* const other = error == orSuccess ? findUnjoined(*capture, *found) : nullptr) {
      error = failUnjoined(*other);
    }
    end(capture);
    if (error != orSuccess) {
      graphs().remove(capture->handle);
      dropped = std::move(capture->graph);
      return error;
    }
    capture->graph->complete = true;
    *graph = capture->handle;
    capture->graph.reset(); // an event that was recorded in the capture keeps only the capture
    return orSuccess;
  });
}

orError_t orStreamBeginConditional(orStream_t stream, const void* condition, size_t size) {
  return onStream(__func__, stream, condition, [&](const StreamPtr& found) -> orError_t {
    if (const orError_t error = mustCapture(*found); error != orSuccess) {
      return error;
    }
    auto read = std::make_shared<GraphCondition>(GraphCondition{condition, size});
    const orHostFn_t isRunByReplays = [](void*) {}; // see runConditionally()
    const auto visit = [](void* data, orOperandFn_t visit, void* context) {
      const GraphCondition& condition = *static_cast<const GraphCondition*>(data);
      const orOperand operand{condition.data, condition.size, 0, nullptr, nullptr, orAccessRead};
      visit(&operand, context);
    };
    Work work{Engine::compute, isRunByReplays, read.get(), orActivityKernel};
    work.what = orKernel{"if", visit, read.get()};
    if (const orError_t error = capture(found, orGraphNodeTypeConditional, work, read); error != orSuccess) {
      return error;
    }
    const std::lock_guard lock(graphLock);
    if (CapturePoint* const point = pointOf(*found)) {
      point->condition = point->after.front();
      return orSuccess;
    }
    return orPeekAtLastError();
  });
}

orError_t orStreamEndConditional(orStream_t stream) {
  return onStream(__func__, stream, &stream, [&](const StreamPtr& found) -> orError_t {
    if (const orError_t error = mustCapture(*found); error != orSuccess) {
      return error;
    }
    const std::lock_guard lock(graphLock);
    CapturePoint* const point = pointOf(*found);
    if (point == nullptr) {
      return orPeekAtLastError();
    }
    const size_t ended = point->condition;
    if (ended == kAlways) {
      return fail(orErrorIllegalState, "the stream is in no body; begin with orStreamBeginConditional");
    }
    Capture& capture = *point->capture;
    if (const Stream* const other = findUnjoined(capture, *found, ended)) {
      return invalidate(capture, failUnjoined(*other));
    }
    for (const StreamPtr& each : capture.streams) {
      if (each->capture->condition == ended) {
        each->capture->condition = capture.graph->nodes[ended].condition;
      }
    }
    return orSuccess;
  });
}

orError_t orStreamIsCapturing(orStream_t stream, orStreamCaptureStatus* status) {
  return onStream(__func__, stream, status, [&](const StreamPtr& found) {
    const std::lock_guard lock(graphLock);
    *status = statusOf(*found);
    return orSuccess;
  });
}

orError_t orStreamGetCaptureInfo(orStream_t stream, orStreamCaptureStatus* status, uint64_t* id, orGraph_t* graph) {
  return onStream(__func__, stream, status, [&](const StreamPtr& found) {
    const std::lock_guard lock(graphLock);
    *status = statusOf(*found);
    if (found->capture) {
      const Capture& capture = *found->capture->capture;
      if (id != nullptr) {
        *id = capture.id;
      }
      if (graph != nullptr) {
        *graph = capture.handle;
      }
    }
    return orSuccess;
  });
}

orError_t orThreadExchangeStreamCaptureMode(orStreamCaptureMode* mode) {
  return deviceCall(__func__, [&]() -> orError_t {
    if (mode == nullptr) {
      return fail(orErrorInvalidValue, "mode is NULL; pass the address of an orStreamCaptureMode");
    }
    if (*mode < orStreamCaptureModeGlobal || *mode > orStreamCaptureModeRelaxed) {
      return fail(orErrorInvalidValue, "*mode is %d, which is no orStreamCaptureMode (0 to 2)", *mode);
    }
    *mode = std::exchange(threadMode, *mode);
    return orSuccess;
  });
}
