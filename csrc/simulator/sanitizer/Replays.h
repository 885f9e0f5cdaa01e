#pragma once

#include <ATen/core/Tensor.h>
#include <openreg_graph_activity.h>

#include <string>
#include <vector>

#include "simulator/sanitizer/CapturedGraphs.h"

// Follows the captures and replays of graphs (CapturedGraphs.h), for the other checks and for the check `graph`.
namespace c10::openreg::sanitizer {

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
