#include "simulator/dry/Shapes.h"

#include <ATen/EmptyTensor.h>

#include <string_view>

namespace at::openreg {
namespace {

// A share of the elements: what an operator is assumed to find if its operand has no values.
int64_t some(int64_t count) {
  return (count + 1) / 2;
}

std::optional<MetaStack> assumed_shapes(std::string_view name, const MetaStack& arguments) {
  const auto make = [](IntArrayRef sizes, ScalarType type) { return at::detail::empty_meta(sizes, type); };
  if (arguments.empty() || !arguments[0].isTensor()) {
    return std::nullopt;
  }
  const Tensor self = arguments[0].toTensor();
  const int64_t found = some(self.numel());
  if (name == "aten::nonzero") {
    return MetaStack{make({found, self.dim()}, kLong)};
  }
  if (name == "aten::masked_select") {
    return MetaStack{make({found}, self.scalar_type())};
  }
  if (name == "aten::_unique2" || name == "aten::_unique" || name == "aten::unique_consecutive") {
    MetaStack results{make({found}, self.scalar_type()), make(self.sizes(), kLong)};
    if (name != "aten::_unique") {
      results.emplace_back(make({found}, kLong));
    }
    return results;
  }
  return std::nullopt;
}

} // namespace

std::optional<ResultShapes> skipped_shapes(
    const c10::OperatorHandle& op, ArrayRef<c10::IValue> arguments, bool is_assumed) {
  const MetaStack metas = meta_arguments(op, arguments);
  try {
    return result_shapes(op, metas, /*is_computed=*/false);
  } catch (const std::exception& error) {
    if (!is_assumed) {
      return std::nullopt;
    }
    if (auto results = assumed_shapes(op.schema().name(), metas)) {
      return ResultShapes{std::move(*results), metas};
    }
    TORCH_CHECK_NOT_IMPLEMENTED(
        !dynamic_cast<const c10::NotImplementedError*>(&error),
        "dry execution does not know the shapes of the results of ",
        op.operator_name(),
        ": ",
        error.what());
    throw;
  }
}

} // namespace at::openreg
