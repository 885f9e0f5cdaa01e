#include "simulator/borrowed/random/Multinomial.h"

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/topk.h>

#include "simulator/borrowed/random/Distributions.h"

namespace at::openreg {

void fill_with_exponential(TensorIteratorBase& iter, double lambda, PhiloxGenerator& generator) {
  TORCH_CHECK(
      isFloatingType(iter.dtype()),
      "Exponential distribution is a continuous probability distribution. dtype must be a floating point but you "
      "specified ",
      iter.dtype());
  AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, iter.dtype(), "exponential", [&] {
    using Number = NumberOf<UniformOf<scalar_t>>;
    constexpr Number kHalfStep = std::numeric_limits<Number>::epsilon() / 2;
    const Number scale = static_cast<Number>(-1) / static_cast<Number>(lambda);
    distribute<scalar_t, UniformOf<scalar_t>>(
        iter, generator, [=](Number value) { // never 0: 1 counts as the number before 1
          return static_cast<scalar_t>(scale * (value >= 1 - kHalfStep ? -kHalfStep : std::log(value)));
        });
  });
}

namespace {

void check(const Tensor& self, int64_t count, bool replacement, const Tensor& out) {
  TORCH_CHECK(out.device() == self.device(), "multinomial arguments must have the same device");
  TORCH_CHECK(self.dim() > 0 && self.dim() <= 2, "prob_dist must be 1 or 2 dim");
  TORCH_CHECK(
      isFloatingType(self.scalar_type()),
      "multinomial only supports floating-point dtypes for input, got: ",
      self.scalar_type());
  TORCH_CHECK(out.scalar_type() == kLong, "multinomial expects Long tensor out, got: ", out.scalar_type());
  TORCH_CHECK(count > 0, "cannot sample n_sample <= 0 samples");
  TORCH_CHECK(
      replacement || count <= self.size(-1), "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
  TORCH_CHECK(self.size(-1) <= 1 << 24, "number of categories cannot exceed 2^24");
}

void check_weights(const Tensor& self) {
  TORCH_CHECK(
      self.max().lt(INFINITY).logical_and(self.min().ge(0)).item<bool>(),
      "probability tensor contains either `inf`, `nan` or element < 0");
  TORCH_CHECK(self.sum(-1).ne(0).all().item<bool>(), "invalid multinomial distribution (sum of probabilities <= 0)");
}

// The category in whose part of `sums` the value lies. `sums` are the sums of the weights up to each category.
template <class Weight>
int64_t category_of(c10::ArrayRef<Weight> sums, c10::ArrayRef<Weight> weights, Weight value) {
  const auto place = std::lower_bound(sums.begin(), sums.end(), value);
  auto category = std::min<int64_t>(place - sums.begin(), static_cast<int64_t>(sums.size()) - 1);
  while (category > 0 && weights[category] == 0) {
    --category;
  }
  return category;
}

// As sampleMultinomialWithReplacement() in aten/src/ATen/native/cuda/MultinomialKernel.cu: a thread for each sample.
void draw_with_replacement(const Tensor& self, int64_t count, PhiloxGenerator& generator, Tensor& out) {
  constexpr int64_t kBlock = 128, kMostRows = 65535; // of a launch
  const Tensor weights = self.reshape({-1, self.size(-1)});
  const int64_t rows = weights.size(0), categories = weights.size(1);
  const Tensor parts = weights.div(weights.sum(1, /*keepdim=*/true)).contiguous();
  const Tensor sums = parts.cumsum(1);
  const PhiloxStart start = generator.advance(((rows - 1) / std::min(rows, kMostRows) + 1) * kWords);
  const int64_t threads_of_row = ((count - 1) / kBlock + 1) * kBlock;
  AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, self.scalar_type(), "multinomial", [&] {
    const auto row_of = [&](const Tensor& tensor, int64_t row) {
      return c10::ArrayRef<scalar_t>(tensor.const_data_ptr<scalar_t>() + row * categories, categories);
    };
    const Tensor drawn = at::empty({rows, count}, kLong);
    auto* next = drawn.mutable_data_ptr<int64_t>();
    for (int64_t row = 0; row < rows; ++row) {
      PhiloxWords words;
      for (int64_t sample = 0; sample < count; ++sample) {
        if (sample % kLanes == 0) {
          draw_words(start, row / kMostRows, row % kMostRows * threads_of_row + sample, words);
        }
        const auto value = static_cast<scalar_t>(Uniform::of(words[0][sample % kLanes]));
        *next++ = category_of(row_of(sums, row), row_of(parts, row), value);
      }
    }
    out.copy_(drawn.view_as(out));
  });
}

} // namespace

Tensor& multinomial_out(
    const Tensor& self, int64_t count, bool replacement, std::optional<Generator> given, Tensor& out) {
  PhiloxGenerator& generator = *check_generator<PhiloxGenerator>(std::move(given));
  check(self, count, replacement, out);
  auto sizes = self.sizes().vec();
  sizes.back() = count;
  out.resize_(sizes);
  if (out.numel() == 0) {
    return out;
  }
  check_weights(self);
  if (replacement && count > 1) {
    draw_with_replacement(self, count, generator, out);
    return out;
  }
  // The largest quotients of weights and exponentially distributed values: aten/src/ATen/native/Distributions.cpp.
  Tensor quotients = at::empty_like(self);
  auto iter = TensorIterator::borrowing_nullary_op(quotients);
  fill_with_exponential(iter, 1, generator);
  at::div_out(quotients, self, quotients);
  out.copy_(count == 1 ? quotients.argmax(-1, /*keepdim=*/true) : std::get<1>(quotients.topk(count)));
  return out;
}

Tensor multinomial(const Tensor& self, int64_t count, bool replacement, std::optional<Generator> generator) {
  Tensor out = at::empty({0}, self.options().dtype(kLong));
  multinomial_out(self, count, replacement, std::move(generator), out);
  return out;
}

} // namespace at::openreg
