#include "simulator/borrowed/routes/Sum.h"

#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/sum_ops.h>

#include <algorithm>

#include "simulator/borrowed/CpuKernel.h"

namespace at::openreg {
namespace {

constexpr int64_t kPart = int64_t{1} << 24; // elements; the copy of a part has 128 MiB

} // namespace

bool is_summed_in_parts(const Tensor& self, std::optional<ScalarType> dtype) {
  return self.numel() > kPart && isIntegralType(self.scalar_type(), /*includeBool=*/true) &&
         self.scalar_type() != kLong && dtype.value_or(kLong) == kLong;
}

Tensor sum_in_parts(const Tensor& self, OptionalIntArrayRef dims, bool keepdim, std::optional<ScalarType> dtype) {
  if (!is_summed_in_parts(self, dtype)) {
    return UnboxedCpuKernel<at::_ops::sum_dim_IntList>::call(self, dims, keepdim, dtype);
  }
  if (dims.has_value() && dims->empty()) { // also over all
    dims = std::nullopt;
  }
  const auto longest = std::max_element(self.sizes().begin(), self.sizes().end()) - self.sizes().begin();
  const int64_t size = self.size(longest), half = size / 2;
  const auto part = [&](int64_t first, int64_t count) {
    return sum_in_parts(self.narrow(longest, first, count), dims, /*keepdim=*/true, dtype);
  };
  const auto reduced = at::dim_list_to_bitset(dims, self.dim());
  const Tensor sum = reduced[longest] ? part(0, half).add_(part(half, size - half))
                                      : at::cat({part(0, half), part(half, size - half)}, longest);
  if (keepdim) {
    return sum;
  }
  DimVector sizes;
  for (int64_t dim = 0; dim < self.dim(); ++dim) {
    if (!reduced[dim]) {
      sizes.push_back(self.size(dim));
    }
  }
  return sum.view(sizes);
}

Tensor without_nan(const Tensor& self, ScalarType dtype) {
  const Tensor numbers = self.to(dtype == kComplexHalf ? kComplexFloat : dtype);
  return numbers.masked_fill(numbers.isnan(), 0);
}

} // namespace at::openreg
