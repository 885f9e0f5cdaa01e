#include "simulator/dry/CapturedSkip.h"

#include <openreg_graph.h>

#include <memory>
#include <utility>
#include <vector>

#include "runtime/OpenRegGraphsC10Utils.h"

namespace at::openreg {
namespace {

// A kernel that was skipped in a capture. The graph owns it.
class CapturedSkip {
 public:
  CapturedSkip(const orKernel& kernel, const CallCost& cost) : cost_(cost) {
    const auto keep = [](const orOperand* operand, void* context) {
      SkippedOperand kept{*operand, {}, {}};
      kept.sizes.assign(operand->sizes, operand->sizes + operand->dims);
      kept.strides.assign(operand->strides, operand->strides + operand->dims);
      static_cast<std::vector<SkippedOperand>*>(context)->push_back(std::move(kept));
    };
    kernel.operands(kernel.data, keep, &operands_);
  }

  // An orKernel's `operands`.
  static void visit(void* data, orOperandFn_t visit, void* context) {
    for (const SkippedOperand& each : static_cast<const CapturedSkip*>(data)->operands_) {
      orOperand operand = each.operand;
      operand.sizes = each.sizes.data();
      operand.strides = each.strides.data();
      visit(&operand, context);
    }
  }

  const CallCost& cost() const {
    return cost_;
  }

 private:
  struct SkippedOperand {
    orOperand operand;
    std::vector<int64_t> sizes, strides;
  };

  const CallCost cost_;
  std::vector<SkippedOperand> operands_;
};

} // namespace

bool capture_skip(orStream_t stream, const orKernel& kernel, const CallCost& cost) {
  orStreamCaptureStatus status = orStreamCaptureStatusNone;
  orGraph_t graph = nullptr;
  if (!orMayCapture() || orStreamGetCaptureInfo(stream, &status, nullptr, &graph) != orSuccess ||
      status != orStreamCaptureStatusActive) {
    return false;
  }
  CapturedSkip* const kept = c10::openreg::retain(graph, std::make_unique<CapturedSkip>(kernel, cost));
  const orKernel node{kernel.name, &CapturedSkip::visit, kept};
  OPENREG_CHECK(orLaunchDescribed(stream, [](void*) {}, kept, orLaunchDefault, &node));
  return true;
}

const CallCost* cost_of_captured(const orActivity& work) {
  return work.operands == &CapturedSkip::visit ? &static_cast<const CapturedSkip*>(work.data)->cost() : nullptr;
}

} // namespace at::openreg
