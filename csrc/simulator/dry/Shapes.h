#pragma once

#include <optional>

#include "simulator/ResultShapes.h"

namespace at::openreg {

// The shapes of the results of a call that is skipped. `is_assumed`: if the shapes depend on the values of operands,
// returns assumed shapes. Otherwise the result is nullopt in this case. Throws the error of a call whose operands do not
// fit.
std::optional<ResultShapes> skipped_shapes(
    const c10::OperatorHandle& op, ArrayRef<c10::IValue> arguments, bool is_assumed);

} // namespace at::openreg
