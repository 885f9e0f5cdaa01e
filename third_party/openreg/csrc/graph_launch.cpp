#include <algorithm>
#include <atomic>
#include <system_error>
#include <utility>
#include <vector>

#include "activity.h"
#include "graph.h"
#include "hooks.h"
#include "runtime.h"
#include "scheduler.h"
#include "scheduler_state.h"

// Executable graphs (openreg_graph.h).
//
// A graph is cut into *lanes*: each lane is a sequence of nodes of one device. The first lane runs on the stream of the
// launch, and each other lane on a stream of its own, which no handle names. A node waits for nodes of other lanes by
// marks, as a stream waits for an event. So the scheduler runs a replay as it runs other work, and knows no graphs.
//
// All items of a launch are queued under one lock, so the work of another thread comes before all of them or after all
// of them. In orExecutionInline, if nothing is pending, the nodes run within one item instead.
namespace openreg {
namespace {

// More lanes would give no more parallelism: there is one thread for kernels and one for copies.
constexpr size_t kMaxLanes = 16;

struct GraphLane {
  StreamPtr stream; // of the lane's device; the first lane uses it only if the launch is on another device
  size_t last = 0;  // while lanes are made: the last node
};

// The work of a conditional node, or of a node in the body of one.
struct ConditionalWork {
  const GraphNode* node;
  const std::atomic<bool>* condition; // null: the node always runs
  std::atomic<bool>* isTrue;          // of a conditional node: whether its body runs
};

struct GraphExec {
  std::shared_ptr<const Graph> graph;
  std::vector<GraphLane> lanes{};
  std::vector<size_t> laneOf{};                // for each node
  bool waits = false;                          // a node waits for work outside of the graph, or for another thread
  std::vector<std::atomic<bool>> isTrue{};     // of the conditional nodes; for each node, or empty
  std::vector<ConditionalWork> conditionals{}; // for each node, or empty
  Mark end{};                                  // of the last launch; guarded by the scheduler's lock
};
using ExecPtr = std::shared_ptr<GraphExec>;

HandleTable<GraphExec, orGraphExec_t>& execs() {
  static auto* const table = new HandleTable<GraphExec, orGraphExec_t>(); // used while the process exits
  return *table;
}

ExecPtr resolveExec(orGraphExec_t exec) {
  ExecPtr found = execs().find(exec);
  if (!found) {
    fail(
        orErrorInvalidResourceHandle,
        "executable graph %p does not exist; it was destroyed, or is no executable graph",
        (void*)exec);
  }
  return found;
}

// A node continues the lane of a node that it comes after, if that lane ends there. Otherwise it begins a lane, or
// continues any lane of its device if there are many.
size_t chooseLane(GraphExec& exec, size_t number) {
  const GraphNode& node = exec.graph->nodes[number];
  for (const size_t before : node.after) {
    const size_t lane = exec.laneOf[before];
    if (exec.lanes[lane].last == before && exec.lanes[lane].stream->device == node.device) {
      return lane;
    }
  }
  std::vector<size_t> ofDevice;
  for (size_t lane = 0; lane < exec.lanes.size(); ++lane) {
    if (exec.lanes[lane].stream->device == node.device) {
      ofDevice.push_back(lane);
    }
  }
  if (ofDevice.size() >= kMaxLanes) {
    return ofDevice[number % kMaxLanes];
  }
  exec.lanes.push_back({std::make_shared<Stream>(node.device, 0)});
  return exec.lanes.size() - 1;
}

bool isAnyByteSet(const GraphCondition& condition) {
  const auto* const bytes = static_cast<const unsigned char*>(orGetKernelPointer(condition.data));
  return std::any_of(bytes, bytes + condition.size, [](unsigned char byte) { return byte != 0; });
}

// An orHostFn_t.
void runConditionally(void* data) {
  const ConditionalWork& work = *static_cast<const ConditionalWork*>(data);
  const bool runs = work.condition == nullptr || *work.condition;
  if (work.node->type == orGraphNodeTypeConditional) {
    *work.isTrue = runs && isAnyByteSet(*static_cast<const GraphCondition*>(work.node->work.data));
  } else if (runs) {
    work.node->work.fn(work.node->work.data);
  }
}

void addConditionals(GraphExec& exec) {
  const auto& nodes = exec.graph->nodes;
  if (std::none_of(
          nodes.begin(), nodes.end(), [](const GraphNode& each) { return each.type == orGraphNodeTypeConditional; })) {
    return;
  }
  exec.isTrue = std::vector<std::atomic<bool>>(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    const size_t condition = nodes[i].condition;
    exec.conditionals.push_back({&nodes[i], condition == kAlways ? nullptr : &exec.isTrue[condition], &exec.isTrue[i]});
  }
}

ExecPtr instantiate(std::shared_ptr<const Graph> graph) {
  auto exec = std::make_shared<GraphExec>(GraphExec{std::move(graph)});
  for (size_t i = 0; i < exec->graph->nodes.size(); ++i) {
    const size_t lane = chooseLane(*exec, i);
    exec->laneOf.push_back(lane);
    exec->lanes[lane].last = i;
    const GraphNode& node = exec->graph->nodes[i];
    exec->waits = exec->waits || node.type == orGraphNodeTypeWaitEvent || node.work.deferred != nullptr;
  }
  addConditionals(*exec);
  return exec;
}

// The stream of a lane in a launch on `stream`.
const StreamPtr& streamOf(const GraphExec& exec, size_t lane, const StreamPtr& stream) {
  return lane == 0 && exec.lanes[0].stream->device == stream->device ? stream : exec.lanes[lane].stream;
}

bool isWork(const GraphNode& node) {
  return node.work.fn != nullptr || node.work.deferred != nullptr;
}

Work workOf(GraphExec& exec, size_t number, const StreamPtr& stream) {
  const GraphNode& node = exec.graph->nodes[number];
  Work work = node.work;
  if (!exec.conditionals.empty() && (node.type == orGraphNodeTypeConditional || node.condition != kAlways)) {
    work.fn = &runConditionally;
    work.data = &exec.conditionals[number];
  }
  work.call = currentCall();
  work.launchedOn = stream.get();
  return work;
}

// Whether the last launch of the graph is done.
bool isDone(const GraphExec& exec) {
  const Locked locked;
  return exec.end.reached();
}

// Runs all nodes on this thread, as one item of the stream. Returns false if the mode does not allow it, or if
// something is pending.
bool runAsOne(const StreamPtr& stream, const ExecPtr& exec) {
  if (exec->waits || !isDone(*exec)) {
    return false;
  }
  struct Replay {
    const StreamPtr& stream;
    GraphExec& exec;
  } replay{stream, *exec};
  const orHostFn_t run = [](void* data) {
    const auto& [stream, exec] = *static_cast<const Replay*>(data);
    for (size_t i = 0; i < exec.graph->nodes.size(); ++i) {
      const GraphNode& node = exec.graph->nodes[i];
      if (isWork(node)) {
        const bool isSameDevice = node.device == stream->device;
        runWithin(isSameDevice ? stream : exec.lanes[exec.laneOf[i]].stream, workOf(exec, i, stream));
      } else {
        recordNow(node.event, stream);
      }
    }
  };
  return runNow(stream, Work{Engine::compute, run, &replay}, false);
}

// Queues all nodes.
orError_t queueAll(const StreamPtr& stream, const ExecPtr& exec) {
  const auto& nodes = exec->graph->nodes;
  std::vector<Work> works;
  for (size_t i = 0; i < nodes.size(); ++i) {
    works.push_back(workOf(*exec, i, stream));
    if (isWork(nodes[i])) {
      prepare(works.back());
    }
  }
  Locked locked;
  claimForLaunch(locked, stream, false);
  noteCall(locked, stream, "graph", nullptr);
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (orError_t error = isWork(nodes[i]) ? startThreadFor(works[i], locked, stream) : orSuccess; error != orSuccess) {
      std::for_each(works.begin(), works.end(), [](const Work& each) { forget(each.scheduled); });
      return error;
    }
  }
  if (!exec->end.reached()) { // launches of one executable graph run one after the other
    push(locked, stream, Mark(exec->end));
  }
  const Mark begin{stream, stream->submitted};
  std::vector<Mark> marks; // of the nodes
  std::vector<bool> isBegun(exec->lanes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    const size_t lane = exec->laneOf[i];
    const StreamPtr& on = streamOf(*exec, lane, stream);
    if (on != stream && !isBegun[lane]) {
      push(locked, on, Mark(begin));
    }
    isBegun[lane] = true;
    for (const size_t before : nodes[i].after) {
      if (exec->laneOf[before] != lane) {
        push(locked, on, Mark(marks[before]));
      }
    }
    if (isWork(nodes[i])) {
      push(locked, on, works[i]);
    } else if (nodes[i].type == orGraphNodeTypeEventRecord) {
      nodes[i].event->mark = {on, on->submitted + 1};
      push(locked, on, Record{nodes[i].event});
    } else {
      push(locked, on, Mark(nodes[i].event->mark));
    }
    marks.push_back({on, on->submitted});
  }
  for (size_t lane = 0; lane < exec->lanes.size(); ++lane) {
    if (const StreamPtr& on = streamOf(*exec, lane, stream); on != stream) {
      push(locked, stream, Mark{on, on->submitted});
    }
  }
  exec->end = {stream, stream->submitted};
  if (stream->busy && isIdle(*stream)) { // nothing was queued
    giveUp(locked, stream);
  }
  return orSuccess;
}

// Tells the subscribers of a node without work, as if the stream of the launch had made the call.
void tellEventNode(const StreamPtr& stream, const GraphNode& node) {
  if (node.type == orGraphNodeTypeEventRecord) {
    const ObservedCall call(orActivityCall, "orEventRecord", stream->device, stream.get(), node.handle);
  } else if (node.type == orGraphNodeTypeWaitEvent) {
    const ObservedCall call(orActivitySynchronization, "orStreamWaitEvent", stream->device, stream.get(), node.handle);
  }
}

orError_t launch(const StreamPtr& stream, const ExecPtr& exec) {
  const auto* const number = reinterpret_cast<const void*>(exec->graph->number);
  const ObservedCall call(orActivityCall, "orGraphLaunch", stream->device, stream.get(), number);
  for (const GraphNode& node : exec->graph->nodes) {
    tellEventNode(stream, node);
    if (node.work.kind != 0) {
      if (orError_t error = checkLaunch(stream->device, stream->handle, node.work.what); error != orSuccess) {
        return error;
      }
    }
    if (node.work.kind == orActivityKernel) {
      if (orError_t error = checkCall(kAtLaunch, stream->device); error != orSuccess) {
        return error;
      }
    }
  }
  if (runAsOne(stream, exec)) {
    return orSuccess;
  }
  if (hasTurnHere(*stream)) {
    return fail(
        orErrorNotPermitted,
        "called inside a kernel that has the turn of the stream, the graph could not complete before that kernel ends; "
        "call it after the kernel");
  }
  return queueAll(stream, exec);
}

// Keeps the executable graph until its last launch is done.
void keepUntilDone(const ExecPtr& exec) {
  Locked locked;
  if (exec->end.reached()) {
    return;
  }
  auto* const kept = new ExecPtr(exec);
  const orHostFn_t drop = [](void* data) { delete static_cast<ExecPtr*>(data); };
  const Work work{Engine::hostFunction, drop, kept};
  const StreamPtr stream = exec->end.stream;
  claim(stream);
  if (startThreadFor(work, locked, stream) == orSuccess) { // otherwise it is kept for ever
    push(locked, stream, work);
  }
}

} // namespace
} // namespace openreg

using namespace openreg;

orError_t orGraphInstantiate(orGraphExec_t* exec, orGraph_t graph, unsigned int flags) {
  return deviceCall(__func__, [&]() -> orError_t {
    if (exec == nullptr) {
      return fail(orErrorInvalidValue, "exec is NULL; pass the address of an orGraphExec_t");
    }
    if (flags != 0) {
      return fail(orErrorInvalidValue, "flags is %u; no flag exists, pass 0", flags);
    }
    const auto found = resolveGraph(graph);
    if (!found) {
      return orErrorInvalidResourceHandle;
    }
    {
      const std::lock_guard lock(graphLock);
      if (!found->complete) {
        return fail(orErrorIllegalState, "the capture of the graph has not ended; call orStreamEndCapture first");
      }
    }
    *exec = execs().add(instantiate(found));
    return orSuccess;
  });
}

orError_t orGraphLaunch(orGraphExec_t exec, orStream_t stream) {
  return deviceCall(__func__, [&]() -> orError_t {
    const ExecPtr found = resolveExec(exec);
    const StreamPtr on = found ? resolveStream(stream) : nullptr;
    if (!on) {
      return orErrorInvalidResourceHandle;
    }
    return isCapturing(*on) ? capture(on, found->graph) : launch(on, found);
  });
}

orError_t orGraphExecDestroy(orGraphExec_t exec) {
  return releaseCall(__func__, [&]() -> orError_t {
    const ExecPtr found = resolveExec(exec); // destroyed at the end of the call, while no lock is held
    if (!found) {
      return orErrorInvalidResourceHandle;
    }
    execs().remove(exec);
    keepUntilDone(found);
    return orSuccess;
  });
}
