#pragma once

#include <c10/core/TensorImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <map>
#include <utility>
#include <vector>

#include "simulator/sanitizer/Bytes.h"
#include "simulator/sanitizer/GraphOrder.h"
#include "simulator/sanitizer/Shadow.h"

// LITERALINCLUDE START: REPLAY RULES
// Graphs that the program captures and replays.
//
// Rules: a node is no access to memory: nothing runs in a capture. Each replay accesses the memory of all nodes, on the
// stream of the replay, so the other checks compare a replay with the rest of the program. Memory that is allocated in
// a capture lies in segments that belong to graphs, of which the allocator reports no blocks. Each such segment is one
// block, because the tensors in it take turns at every replay. Of each other operand it is known which block it was in
// at the capture. If the block is gone at a replay, the replay uses the memory of others. Two nodes of one graph race if
// the graph orders neither after the other. That is known at the capture of the second one, where it is reported.
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

// An access of a node, for comparisons with later nodes of the graph.
struct NodeAccess {
  size_t node; // its number in the graph
  Access access;
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
  GraphOrder order; // of all nodes; `nodes` has kernels, copies and fills
  // For the race check, by ShadowBlock::begin and ShadowBlock::order.
  std::map<std::pair<uintptr_t, uint64_t>, std::vector<NodeAccess>> accesses;
  Bytes read;          // by the nodes so far (the init check)
  uint64_t writes = 0; // SessionState::writes when the last replay had been launched, or at the capture
};

// A call that launches a graph.
struct RunningReplay {
  uintptr_t graph;
  size_t next = 0; // the node that is launched next
};

struct Graphs {
  std::map<uintptr_t, CapturedGraph> captured; // by the number in orActivity::object
  std::map<uint64_t, RunningReplay> replays;   // by the id of the call
};

} // namespace c10::openreg::sanitizer
