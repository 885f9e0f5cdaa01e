#pragma once

#include <optional>

#include "runtime/OpenRegKernel.h"

// The work that no kernel of Dry.cpp decides: kernels of extensions, collectives, sparse operators, raw copies and fills,
// and replays of graphs. Dry execution sees this work only when it reaches the device.
//
// Rule: such work computes nothing from absent bytes. A kernel that would read them is refused with NotImplementedError.
// A copy of absent bytes within the device makes absent bytes. What other work writes contains what it reads.
namespace at::openreg {

// Observes all work from now on, until the process ends.
void start_to_observe_undecided();

// From now on, no other process takes part in collectives, so a collective of absent bytes is not refused. An output that
// has bytes becomes assumed, and an absent output stays absent.
OPENREG_API void answer_collectives();

// If the calling thread's last work was refused, throws the refusal. To be called after a call of the device has failed.
void raise_refusal();

// While an object of this class lives, the calling thread's work is decided, and is not observed.
class Decided {
 public:
  Decided();
  ~Decided();
  Decided(const Decided&) = delete;
  Decided& operator=(const Decided&) = delete;
};

// The scope of a kernel that is skipped. If the stream captures a graph, the graph gets a node that does nothing and has
// the operands and the cost of the kernel. What stands for the results is written once, by the capture.
class SkippedKernel {
 public:
  SkippedKernel(orStream_t stream, const orKernel& kernel);

 private:
  const Decided decided_;
  std::optional<c10::openreg::Kernel> kernel_; // none while the stream captures
};

// Skips a kernel that knows addresses only (torch.compile), if it reads absent bytes or fills large memory. Writes what
// stands for its results. Returns false, and does nothing, if the kernel must be computed.
bool skip_kernel(orStream_t stream, const orKernel& kernel);

} // namespace at::openreg
