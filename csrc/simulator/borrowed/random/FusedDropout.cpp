#include "simulator/borrowed/random/FusedDropout.h"

#include <ATen/AccumulateType.h>
#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "simulator/borrowed/random/Distributions.h"

// As aten/src/ATen/native/cuda/Dropout.cu.
namespace at::openreg {
namespace {

// The number of neighbouring elements that a thread of a GPU reads at once; 1 if it reads single elements.
int vector_size(const Tensor& self) {
  constexpr int kBytes = 16;
  if (!self.is_non_overlapping_and_dense()) {
    return 1;
  }
  int size = kBytes / static_cast<int>(self.element_size());
  const auto address = reinterpret_cast<uintptr_t>(self.const_data_ptr());
  while (size > 1 && (address % (size * self.element_size()) != 0 || self.numel() % size != 0)) {
    size /= 2;
  }
  return size;
}

// Draws a number for each element. A thread draws for `size` neighbours, and then for those of the next round.
// `keep(i, value)` is called for element number `i`.
template <class Keep>
void draw_vectors(const PhiloxLaunch& launch, int64_t numel, int size, const Keep& keep) {
  const auto [start, threads] = launch;
  const int calls = (size + kWords - 1) / kWords; // in a round
  const auto draw = [&](int64_t first_group, int64_t last_group) {
    PhiloxWords words;
    Values<float> values;
    for (int64_t round = 0, base = 0; base < numel; ++round, base += threads * size) {
      for (int64_t thread = first_group * kLanes; thread < last_group * kLanes; thread += kLanes) {
        for (int call = 0; call < calls && base + thread * size < numel; ++call) {
          draw_words(start, round * calls + call, thread, words);
          const int count = std::min(size, kWords);
          Uniform::make(words, count, values);
          for (int lane = 0; lane < kLanes; ++lane) {
            const int64_t first = base + (thread + lane) * size + call * kWords;
            for (int i = 0; i < count && first < numel; ++i) {
              keep(first + i, values[i][lane]);
            }
          }
        }
      }
    }
  };
  const int64_t used = std::min(threads, (numel + size - 1) / size);
  at::parallel_for(0, (used + kLanes - 1) / kLanes, 64, draw);
}

} // namespace

std::tuple<Tensor, Tensor> fused_dropout(const Tensor& self, double keep_, std::optional<Generator> given) {
  PhiloxGenerator& generator = *check_generator<PhiloxGenerator>(std::move(given));
  Tensor result = at::empty_like(self);
  Tensor mask = at::empty_like(self, self.options().dtype(kByte));
  const int64_t numel = self.numel();
  if (numel == 0) {
    return {result, mask};
  }
  const PhiloxLaunch launch = generator.launch(numel, kWords);
  const int size = vector_size(self);
  // Single elements are numbered by their indices, and vectors by their places in memory.
  const bool is_in_place = size > 1 || self.is_contiguous();
  const Tensor elements = is_in_place ? self : self.contiguous();
  const Tensor kept = is_in_place ? result : at::empty(self.sizes(), self.options());
  const Tensor flags = is_in_place ? mask : at::empty(self.sizes(), mask.options());
  AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, self.scalar_type(), "fused_dropout", [&] {
    using Wide = acc_type<scalar_t, true>; // a GPU accumulates in this type
    const auto keep = static_cast<Wide>(keep_);
    const auto scale = static_cast<Wide>(1.0 / keep);
    const auto* const source = elements.const_data_ptr<scalar_t>();
    auto* const target = kept.mutable_data_ptr<scalar_t>();
    auto* const flag = flags.mutable_data_ptr<uint8_t>();
    const auto store = [=](int64_t i, float value) {
      flag[i] = value < keep;
      target[i] = static_cast<scalar_t>(static_cast<Wide>(source[i]) * static_cast<Wide>(flag[i]) * scale);
    };
    if (size > 1) {
      draw_vectors(launch, numel, size, store);
    } else {
      draw_elements<Uniform>(launch, numel, store);
    }
  });
  if (!is_in_place) {
    result.copy_(kept);
    mask.copy_(flags);
  }
  return {result, mask};
}

} // namespace at::openreg
