#include "simulator/borrowed/routes/RecurrentLayers.h"

#include <ATen/Context.h>
#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/autocast_mode.h>

#include <algorithm>

#include "simulator/dry/Contents.h"

namespace at::openreg {
namespace {

template <class Condition>
bool any_of(const RecurrentOperands& operands, const Condition& condition) {
  return std::any_of(operands.begin(), operands.end(), [&](TensorList tensors) {
    return std::any_of(tensors.begin(), tensors.end(), condition);
  });
}

} // namespace

bool needs_composition(const RecurrentOperands& operands) {
  const bool records = GradMode::is_enabled();
  return c10::impl::dispatch_mode_enabled() || any_of(operands, [&](const Tensor& each) {
           return (records && each.requires_grad()) || each._fw_grad(/*level=*/0).defined() ||
                  isTensorSubclassLike(each);
         });
}

bool may_be_one_kernel(const RecurrentOperands& operands) {
  // A device model may round the operands of matrix products.
  const bool rounds =
      globalContext().float32Precision(Float32Backend::CUDA, Float32Op::MATMUL) == Float32Precision::TF32;
  const Device device = operands[0][0].device();
  return c10::openreg::executes_inline() && dry_limit() == 0 && !rounds &&
         !autocast::is_autocast_enabled(identity.type) && device.type() == identity.type &&
         !any_of(operands, [&](const Tensor& each) {
           return each.device() != device || each.scalar_type() != kFloat || isTensorSubclassLike(each);
         });
}

} // namespace at::openreg
