#include "simulator/sanitizer/Replays.h"

#include <c10/core/DynamicCast.h>
#include <c10/util/StringUtil.h>
#include <openreg_graph.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

#include "runtime/OpenRegGraphsC10Utils.h"
#include "simulator/sanitizer/Accesses.h"
#include "simulator/sanitizer/SessionState.h"

namespace c10::openreg::sanitizer {
namespace {

std::atomic<decltype(NumberSource::note)> note_numbers{nullptr};
std::atomic<decltype(NumberSource::find_changed)> find_changed_numbers{nullptr};

uintptr_t number_of(const orActivity& activity) {
  return reinterpret_cast<uintptr_t>(activity.object);
}

// The number of the capture that the calling thread's current stream is part of; 0 if no check asks for it.
uintptr_t captured_graph() {
  if (!orMayCapture() || !running) {
    return 0;
  }
  {
    const std::lock_guard lock(session_mutex);
    if (!session || !(session->checks & kGraph)) {
      return 0;
    }
  }
  return capture_of(getCurrentOpenRegStream());
}

Access replay_of(const orActivity& activity, Site site) {
  return {
      .action = Access::Action::Replay,
      .site = site,
      .name = "the program",
      .stream = activity.stream,
      .device = activity.device};
}

bool is_gone(const CapturedOperand& operand) {
  const ShadowBlock* const now = session->shadow.find(operand.access.extent.begin);
  return !now || now->begin != operand.begin || now->order != operand.order;
}

Report make_stale_operand(const Access& access, const CapturedOperand& operand) {
  Report report{.kind = FindingKind::Memory, .block = operand.size, .allocated = operand.allocated};
  const char* const now = session->shadow.find(operand.access.extent.begin) ? ", which others have now" : "";
  report.problem = c10::str(
      "a replay of ",
      access.name,
      access.writes() ? " writes" : " reads",
      " memory that was freed after the capture",
      now,
      ".");
  report.remedy =
      "Keep the captured tensors as long as the graph is replayed, and copy new values into them: "
      "static_input.copy_(batch).";
  report.accesses = {access, operand.access};
  report.accesses.back().action = Access::Action::Capture;
  return report;
}

// The block of a node's operand. If there is none, the memory is a segment of graphs, which is added here.
ShadowBlock* find_or_add_memory_of_graph(const Access& access, Site site) {
  if (ShadowBlock* const block = session->shadow.find(access.extent.begin)) {
    return block;
  }
  orPointerAttributes attributes{};
  orPointerGetAttributes(&attributes, reinterpret_cast<const void*>(access.extent.begin));
  const ShadowBlock* const before = session->shadow.find_before(access.extent.begin);
  const bool has_blocks = before && before->begin >= reinterpret_cast<uintptr_t>(attributes.base);
  if (attributes.type != orMemoryTypeDevice || has_blocks || session->shadow.find_freed(access.extent.begin)) {
    return nullptr; // memory that was freed before the node was captured, or that the sanitizer does not know
  }
  ShadowBlock& block = session->shadow.add(attributes.base, attributes.size);
  block.device = attributes.device;
  block.site = site;
  block.order = ++session->order;
  block.is_of_graph = true;
  return &block;
}

// ---- races between nodes of one graph

// Adds the node that the activity has made, and those before it that the sanitizer is not notified of: host functions,
// and records of events. Returns false if the graph is not known any more.
bool add_to_order(GraphOrder& order, const orActivity& activity, size_t number) {
  orStreamCaptureStatus status = orStreamCaptureStatusNone;
  orGraph_t graph = nullptr;
  orGraphNode node{};
  if (orStreamGetCaptureInfo(activity.stream, &status, nullptr, &graph) != orSuccess || !graph) {
    return false;
  }
  while (order.size() <= number) {
    if (orGraphGetNode(graph, order.size(), &node) != orSuccess) {
      return false;
    }
    order.add(node.dependencies, node.dependencyCount);
  }
  return true;
}

void find_races_in_graph(
    CapturedGraph& graph, size_t number, const ShadowBlock& block, const Access& access, std::vector<Report>& found) {
  std::vector<NodeAccess>& accesses = graph.accesses[{block.begin, block.order}];
  for (const NodeAccess& each : accesses) {
    if (!graph.order.is_before(each.node, number) && (access.writes() || each.access.writes()) &&
        access.extent.overlaps(each.access.extent)) {
      found.push_back(make_race_in_graph(block, access, each.access));
    }
  }
  std::erase_if(accesses, [&](const NodeAccess& each) { // as in keep_access()
    return graph.order.is_before(each.node, number) && (access.writes() || !each.access.writes()) &&
           access.extent.covers(each.access.extent);
  });
  accesses.push_back({number, access});
}

// ---- reads of unwritten memory

// What a node writes is unwritten until the first replay. But if an earlier node reads the bytes, then they are an input,
// whose memory the capture has used again after the program had freed it: the first replay finds the input there.
void note_unwritten(CapturedGraph& graph, ShadowBlock& block, const Access& access) {
  if (access.reads) {
    graph.read.add(access.extent);
  } else if (!graph.read.overlaps(access.extent.begin, access.extent.end)) {
    block.unwritten.add(access.extent);
  }
}

// ---- hints: what a replay does not see

// The operands that a replay reads and never writes, and that others can write: its inputs, and weights.
std::vector<const CapturedOperand*> inputs_of(const CapturedGraph& graph) {
  std::vector<const CapturedOperand*> inputs;
  std::vector<uintptr_t> written;
  for (const CapturedNode& node : graph.nodes) {
    for (const CapturedOperand& each : node.operands) {
      if (each.access.writes()) {
        written.push_back(each.begin);
      } else if (!each.is_of_graph) {
        inputs.push_back(&each);
      }
    }
  }
  std::erase_if(inputs, [&](const CapturedOperand* each) {
    return std::find(written.begin(), written.end(), each->begin) != written.end();
  });
  return inputs;
}

// A tensor that the program has made and written since the last replay, and that is as large as the whole input.
const ShadowBlock* find_successor(const CapturedGraph& graph, const CapturedOperand& input) {
  for (const auto& [begin, block] : session->shadow.blocks()) {
    if (block.size == input.size && block.order > input.order && block.last_write > graph.writes &&
        block.device == input.access.device && !block.is_of_graph) {
      return &block;
    }
  }
  return nullptr;
}

// A replay begins, and nobody has written an input since the last one, but a new tensor of the same size: the program
// may have meant to copy this tensor.
void check_inputs(const CapturedGraph& graph, const Access& replay, std::vector<Report>& found) {
  const auto inputs = inputs_of(graph);
  if (std::any_of(inputs.begin(), inputs.end(), [&](const CapturedOperand* each) {
        const ShadowBlock* const block = session->shadow.find(each->begin);
        return !block || block->device < 0 || block->last_write > graph.writes || is_gone(*each);
      })) {
    return;
  }
  for (const CapturedOperand* input : inputs) {
    if (const ShadowBlock* const successor = find_successor(graph, *input)) {
      Report report{.kind = FindingKind::Graph, .block = input->size, .allocated = input->allocated};
      report.problem =
          "nobody has written an input of the graph since its last replay or its capture, but the program has written "
          "another tensor of the same size, which the replay does not read.";
      report.remedy = "Copy the new values into the captured tensor: static_input.copy_(batch).";
      report.accesses = {replay, input->access, {.action = Access::Action::Allocate, .site = successor->site}};
      report.accesses[1].action = Access::Action::Capture;
      report.accesses[2].name = "the device allocator";
      report.accesses[2].device = successor->device;
      report.accesses[2].extent = Extent(reinterpret_cast<const void*>(successor->begin), successor->size);
      found.push_back(std::move(report));
      return;
    }
  }
}

Report make_frozen(const std::string& what, const Access& replay, const char* name, Site site) {
  Report report{.kind = FindingKind::Graph};
  report.problem = c10::str(what, "; the replay computes with the old value.");
  report.remedy = "Keep the value in a tensor on the device, and change it there: value.fill_(new).";
  report.accesses = {replay, {.action = Access::Action::Capture, .site = site, .name = name}};
  return report;
}

// Reads the bytes, because an operator would come to the sanitizer.
double value_of(const TensorImpl& scalar) {
  return c10::fetch_and_cast<double>(typeMetaToScalarType(scalar.dtype()), scalar.data());
}

void check_scalars(const CapturedGraph& graph, const Access& replay, std::vector<Report>& found) {
  for (const CapturedScalar& each : graph.scalars) {
    const auto tensor = each.tensor.lock();
    if (tensor && tensor->has_storage() && value_of(*tensor) != each.value) {
      found.push_back(make_frozen(
          c10::str("a tensor of the host was ", each.value, " at the capture and is ", value_of(*tensor), " now"),
          replay,
          each.name,
          each.site));
    }
  }
}

} // namespace

void set_number_source(NumberSource source) {
  note_numbers = source.note;
  find_changed_numbers = source.find_changed;
}

void note_node(const orActivity& activity) {
  const orCapturedNode& made = *static_cast<const orCapturedNode*>(activity.object);
  const Site site = current_site();
  const std::vector<Access>& accesses = collect(activity);
  const std::lock_guard lock(session_mutex);
  if (!session) {
    return;
  }
  CapturedGraph& graph = session->graphs.captured[made.graph];
  graph.writes = session->writes;
  CapturedNode& node = graph.nodes.emplace_back(CapturedNode{.is_internal = is_internal_call()});
  const bool finds_races =
      session->checks & kRace && !node.is_internal && add_to_order(graph.order, activity, made.number);
  std::vector<Report> found;
  for (const Access& access : accesses) {
    if (node.is_internal) {
      break;
    }
    if (ShadowBlock* const block = find_or_add_memory_of_graph(access, site)) {
      CapturedOperand& operand = node.operands.emplace_back(CapturedOperand{access});
      operand.access.site = site;
      operand.access.name = activity.name;
      operand.access.stream = activity.stream;
      operand.access.device = activity.device;
      operand.begin = block->begin;
      operand.order = block->order;
      operand.size = block->size;
      operand.allocated = block->site;
      operand.is_of_graph = block->is_of_graph;
      if (session->checks & kInit && block->is_of_graph) {
        note_unwritten(graph, *block, access);
      }
      if (finds_races) {
        find_races_in_graph(graph, made.number, *block, operand.access, found);
      }
    }
  }
  add_new_reports(found);
  note_captured_call(made.graph);
}

void note_captured_scalar(const char* name, const at::Tensor& tensor) {
  if (const uintptr_t number = captured_graph()) {
    const Site site = current_site();
    CapturedScalar scalar{
        name,
        site,
        c10::weak_intrusive_ptr<TensorImpl>(tensor.getIntrusivePtr()),
        value_of(*tensor.unsafeGetTensorImpl())};
    const std::lock_guard lock(session_mutex);
    if (session) {
      session->graphs.captured[number].scalars.push_back(std::move(scalar));
    }
  }
}

void note_captured_numbers(const std::vector<double>& numbers) {
  const auto note = note_numbers.load();
  if (const uintptr_t number = note ? captured_graph() : 0) {
    note(number, current_site(), numbers);
  }
}

void begin_replay(const orActivity& activity) {
  const uintptr_t number = number_of(activity);
  unsigned checks = 0;
  {
    const std::lock_guard lock(session_mutex);
    if (!session) {
      return;
    }
    checks = session->checks;
    session->graphs.replays[activity.id] = {number};
  }
  if (!(checks & kGraph)) {
    return;
  }
  const Access replay = replay_of(activity, current_site());
  const auto find_changed = find_changed_numbers.load();
  const auto numbers = find_changed ? find_changed(number) : std::vector<NumberSource::Changed>();
  std::vector<Report> found;
  for (const NumberSource::Changed& each : numbers) {
    found.push_back(make_frozen(each.what, replay, "the program", each.site));
  }
  const std::lock_guard lock(session_mutex);
  if (!session) {
    return;
  }
  const auto graph = session->graphs.captured.find(number);
  if (graph != session->graphs.captured.end()) {
    check_scalars(graph->second, replay, found);
    check_inputs(graph->second, replay, found);
  }
  add_new_reports(found);
}

void end_replay(const orActivity& activity) {
  const std::lock_guard lock(session_mutex);
  if (!session) {
    return;
  }
  session->graphs.replays.erase(activity.id);
  const auto graph = session->graphs.captured.find(number_of(activity));
  if (graph != session->graphs.captured.end()) {
    graph->second.writes = session->writes;
  }
}

const CapturedNode* next_node(const orActivity& activity) {
  const auto replay = session->graphs.replays.find(activity.correlation);
  if (replay == session->graphs.replays.end()) {
    return nullptr;
  }
  const auto graph = session->graphs.captured.find(replay->second.graph);
  const size_t number = replay->second.next++;
  return graph != session->graphs.captured.end() && number < graph->second.nodes.size() ? &graph->second.nodes[number]
                                                                                        : nullptr;
}

bool check_captured(const CapturedNode& node, const Access& access, std::vector<Report>& found) {
  const auto operand = std::find_if(node.operands.begin(), node.operands.end(), [&](const CapturedOperand& each) {
    return each.access.extent == access.extent && each.access.action == access.action;
  });
  if (operand == node.operands.end() || !is_gone(*operand)) {
    return true;
  }
  found.push_back(make_stale_operand(access, *operand));
  return false;
}

} // namespace c10::openreg::sanitizer
