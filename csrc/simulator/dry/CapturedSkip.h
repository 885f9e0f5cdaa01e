#pragma once

#include <openreg_activity.h>

#include "simulator/dry/Cost.h"

// Kernels that are skipped while a stream captures a graph. The graph gets a node that does nothing and has the operands
// and the cost of the kernel, so that replays are observed and take time.
namespace at::openreg {

// Adds the kernel to the graph that the stream captures. Returns false if the stream captures none.
bool capture_skip(orStream_t stream, const orKernel& kernel, const CallCost& cost);

// The cost of the work if it is such a node. Null: it is none.
const CallCost* cost_of_captured(const orActivity& work);

} // namespace at::openreg
