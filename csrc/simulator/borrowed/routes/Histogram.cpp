#include "simulator/borrowed/routes/Histogram.h"

#include <ATen/ops/zeros.h>

namespace at::openreg {

Tensor count_integers(const Tensor& self, int64_t bins, const Scalar& min, const Scalar& max) {
  TORCH_CHECK(bins > 0, "bins must be > 0");
  const Tensor values = self.to(kLong).contiguous();
  const c10::ArrayRef<int64_t> all(values.const_data_ptr<int64_t>(), values.numel());
  int64_t low = min.to<int64_t>(), high = max.to<int64_t>();
  if (low == high && !all.empty()) {
    const auto [least, greatest] = std::minmax_element(all.begin(), all.end());
    low = *least;
    high = *greatest;
  }
  if (low == high) {
    --low;
    ++high;
  }
  TORCH_CHECK(low < high, "max must be larger than min");
  Tensor counts = at::zeros({bins}, values.options());
  auto* const count = counts.mutable_data_ptr<int64_t>();
  for (const int64_t value : all) {
    if (low <= value && value <= high) {
      ++count[std::min((value - low) * bins / (high - low), bins - 1)];
    }
  }
  return counts.to(self.scalar_type());
}

} // namespace at::openreg
