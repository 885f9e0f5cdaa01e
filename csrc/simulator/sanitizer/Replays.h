#pragma once

#include <ATen/core/Tensor.h>
#include <openreg_graph_activity.h>

#include <map>
#include <string>
#include <vector>

#include "simulator/sanitizer/Shadow.h"

// LITERALINCLUDE START: REPLAY RULES
// Graphs that the program captures and replays.
//
// Rules: a node is no access to memory: nothing runs in a capture. Each replay accesses the memory of all nodes, on the
// stream of the replay, so the other checks compare a replay with the rest of the program. Memory that is allocated in
// a capture lies in segments that belong to graphs, of which the allocator reports no blocks. Each such segment is one
// block, because the tensors in it take turns at every replay. Of each other operand it is known which block it was in
// at the capture. If the block is gone at a replay, the replay uses the memory of others.
// LITERALINCLUDE END: REPLAY RULES
namespace c10::openreg::sanitizer {

struct CapturedOperand {
  Access access;
  uintptr_t begin = 0; // of the block
  uint64_t order = 0;  // ShadowBlock::order
  size_t size = 0;
  Site allocated = 0;
  bool is_of_graph = false;
};

struct CapturedNode {
  bool is_internal; // no work of the program (is_internal_call()), as the poison of freed memory
  std::vector<CapturedOperand> operands{};
};

// A 0-dim tensor on the host, whose value an operator took at its capture.
struct CapturedScalar {
  const char* name; // of the operator
  Site site;
  c10::weak_intrusive_ptr<c10::TensorImpl> tensor;
  double value;
};

struct CapturedGraph {
  std::vector<CapturedNode> nodes;
  std::vector<CapturedScalar> scalars;
  uint64_t writes = 0; // SessionState::writes when the last replay had been launched, or at the capture
};

// A call that launches a graph.
struct Replay {
  uintptr_t graph;
  size_t next = 0; // the node that is launched next
};

struct Graphs {
  std::map<uintptr_t, CapturedGraph> captured; // by the number in orActivity::object
  std::map<uint64_t, Replay> replays;          // by the id of the call
};

// A capture has made a node: an orActivityNode.
void note_node(const orActivity& activity);

// An operator on tensors of the device that is captured takes this value: a number, or a 0-dim tensor of the host.
void note_captured_scalar(const char* name, const at::Tensor& tensor);
void note_captured_numbers(const std::vector<double>& numbers);

// The program calls orGraphLaunch, and the call ends.
void begin_replay(const orActivity& activity);
void end_replay(const orActivity& activity);

// To be called with the lock held, when work is about to be launched. The node that is launched, if the work belongs to
// a replay of a graph that was captured in this session; otherwise null.
const CapturedNode* next_node(const orActivity& activity);

// To be called with the lock held. `access`: of the node's work. Returns false, and adds a report, if the memory was
// freed since the capture.
bool check_captured(const CapturedNode& node, const Access& access, std::vector<Report>& found);

// What the calling thread's line of Python knows of the numbers that it gives to operators. As SiteSource (Site.h),
// the bindings set the functions, and a caller holds no lock.
struct NumberSource {
  // The line `site` has given these numbers to an operator, in the capture of this graph.
  void (*note)(uintptr_t graph, Site site, const std::vector<double>& numbers);
  struct Changed {
    std::string what; // "the variable rate was 1.0 at the capture and is 3.0 now"
    Site site;
  };
  // The variables that had these numbers, and have other numbers now.
  std::vector<Changed> (*find_changed)(uintptr_t graph);
};
OPENREG_API void set_number_source(NumberSource source);

} // namespace c10::openreg::sanitizer
