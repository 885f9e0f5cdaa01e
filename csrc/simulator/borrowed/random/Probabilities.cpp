#include "simulator/borrowed/random/Probabilities.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <numeric>

#include "simulator/borrowed/random/Distributions.h"

namespace at::openreg {
namespace {

// The order of the dimensions in which a GPU walks through two tensors: rearrangeDims() in
// aten/src/ATen/cuda/CUDAApplyUtils.cuh. Two dimensions change places if one of the tensors gains, and none loses.
std::vector<int64_t> walk_order(const Tensor& self, const Tensor& p) {
  std::vector<int64_t> order(self.dim());
  std::iota(order.begin(), order.end(), 0);
  for (int64_t i = 0; i < self.dim(); ++i) {
    for (int64_t j = i + 1; j < self.dim(); ++j) {
      int64_t& outer = order[i];
      int64_t& inner = order[j];
      if (self.size(outer) == 1) {
        break;
      }
      const bool gains = self.stride(outer) < self.stride(inner) || p.stride(outer) < p.stride(inner);
      const bool loses = self.stride(outer) > self.stride(inner) || p.stride(outer) > p.stride(inner);
      if (self.size(inner) != 1 && gains && !loses) {
        std::swap(outer, inner);
      }
    }
  }
  return order;
}

template <class Probability>
Tensor draw(const Tensor& p, PhiloxGenerator& generator) {
  constexpr uint64_t kCount = 10; // the words that a GPU reserves for each thread
  const PhiloxStart start = generator.advance(kCount);
  Tensor result = at::empty(p.sizes(), kBool);
  const auto* const limits = p.const_data_ptr<Probability>();
  auto* const drawn = result.mutable_data_ptr<bool>();
  const int64_t numel = p.numel();
  constexpr int64_t kGroup = kLanes * kWords; // elements
  at::parallel_for(0, (numel + kGroup - 1) / kGroup, 256, [&](int64_t first_group, int64_t last_group) {
    PhiloxWords words;
    Values<float> values;
    for (int64_t group = first_group; group < last_group; ++group) {
      draw_words(start, 0, group * kLanes, words);
      Uniform::make(words, kWords, values);
      for (int64_t i = 0; i < std::min(kGroup, numel - group * kGroup); ++i) {
        const Probability limit = limits[group * kGroup + i];
        TORCH_CHECK(
            0 <= limit && limit <= 1, "bernoulli_ expects all probabilities to be in [0, 1], but got p=", limit);
        drawn[group * kGroup + i] = values[i % kWords][i / kWords] <= limit;
      }
    }
  });
  return result;
}

} // namespace

// As bernoulli_tensor_cuda_kernel() in aten/src/ATen/native/cuda/DistributionTemplates.h: a thread draws four elements.
void fill_with_probabilities(const Tensor& self, const Tensor& p, PhiloxGenerator& generator) {
  TORCH_CHECK(
      isFloatingType(p.scalar_type()), "expected probabilities tensor to have floating type, got ", p.scalar_type());
  const bool is_double = self.scalar_type() == kDouble;
  const Tensor expanded = p.to(is_double ? kDouble : kFloat).expand_as(self);
  const std::vector<int64_t> order = walk_order(self, expanded);
  const Tensor limits = expanded.permute(order).contiguous();
  self.permute(order).copy_(is_double ? draw<double>(limits, generator) : draw<float>(limits, generator));
}

} // namespace at::openreg
