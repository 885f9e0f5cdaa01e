#include "simulator/borrowed/random/RandomKernels.h"

#include <ATen/AccumulateType.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Dispatch_v2.h>
#include <ATen/OpMathType.h>
#include <ATen/core/DistributionsHelper.h>
#include <ATen/native/DistributionTemplates.h>
#include <c10/util/flat_hash_map.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>
#include <torch/library.h>

#include "aten/native/Arguments.h"
#include "simulator/borrowed/random/Distributions.h"
#include "simulator/borrowed/random/FusedDropout.h"
#include "simulator/borrowed/random/Multinomial.h"
#include "simulator/borrowed/random/Permutation.h"
#include "simulator/borrowed/random/Probabilities.h"

// The kernels of one distribution each. PyTorch's templates check the arguments, and make the iterator; the inner loops
// are those of this folder. The transforms are those of aten/src/ATen/native/cuda/DistributionTemplates.h. A compiler for
// GPUs rounds a product and a sum once, hence std::fma().
namespace at::openreg {
namespace {

namespace templates = at::native::templates;
namespace transformation = at::transformation;

// ---- Integers

template <class RNG>
struct RandomInRange {
  void operator()(TensorIteratorBase& iter, uint64_t range, int64_t base, const std::optional<Generator>& given) {
    fill_with_range(iter, range, base, *check_generator<RNG>(given));
  }
  void operator()(TensorIteratorBase& iter, const std::optional<Generator>& given) { // all values of 64 bits
    RNG& generator = *check_generator<RNG>(given);
    AT_DISPATCH_ALL_TYPES_AND(kBFloat16, iter.dtype(), "random_full_64_bits_range", [&] {
      distribute<scalar_t, WordPairs>(
          iter, generator, [](uint64_t value) { return transformation::uniform_int_full_range<scalar_t>(value); });
    });
  }
};

template <class RNG>
struct Random {
  void operator()(TensorIteratorBase& iter, const std::optional<Generator>& given) {
    RNG& generator = *check_generator<RNG>(given);
    AT_DISPATCH_ALL_TYPES_AND3(kHalf, kBFloat16, kBool, iter.dtype(), "random", [&] {
      constexpr bool kIsLong = std::is_same_v<scalar_t, double> || std::is_same_v<scalar_t, int64_t>;
      distribute<scalar_t, std::conditional_t<kIsLong, WordPairs, Words>>(
          iter, generator, [](auto value) { return transformation::uniform_int<scalar_t>(value); });
    });
  }
};

Tensor& random_(Tensor& self, std::optional<Generator> generator) {
  return templates::random_impl<Random, PhiloxGenerator>(self, std::move(generator));
}

Tensor& random_from(Tensor& self, int64_t from, std::optional<int64_t> to, std::optional<Generator> generator) {
  return templates::random_from_to_impl<RandomInRange, PhiloxGenerator>(self, from, to, std::move(generator));
}

Tensor& random_to(Tensor& self, int64_t to, std::optional<Generator> generator) {
  return random_from(self, 0, to, std::move(generator));
}

// ---- Functions of uniformly or normally distributed values

template <class RNG>
struct UniformInRange {
  void operator()(TensorIteratorBase& iter, double from_, double to_, const std::optional<Generator>& given) {
    RNG& generator = *check_generator<RNG>(given);
    AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, iter.dtype(), "uniform", [&] {
      using opmath_t = opmath_type<scalar_t>;
      const auto from = static_cast<scalar_t>(from_);
      const auto to = static_cast<scalar_t>(to_);
      const auto range = static_cast<opmath_t>(to - from);
      const auto below = [=](scalar_t value) { return value == to ? from : value; }; // [0, 1), and not (0, 1]
      if (range == 1 && from == 0) {
        distribute<scalar_t, UniformOf<scalar_t>>(
            iter, generator, [=](opmath_t value) { return below(static_cast<scalar_t>(value)); });
      } else {
        distribute<scalar_t, UniformOf<scalar_t>>(iter, generator, [=](opmath_t value) {
          return below(static_cast<scalar_t>(std::fma(value, range, static_cast<opmath_t>(from))));
        });
      }
    });
  }
};

// Fills with transform(value, mean, std) of values of the standard normal distribution.
template <class scalar_t, class RNG, class Transform>
void fill_with_normal(TensorIteratorBase& iter, double mean_, double std_, RNG& generator, const Transform& transform) {
  using opmath_t = opmath_type<scalar_t>;
  const auto mean = static_cast<opmath_t>(mean_);
  const auto std = static_cast<opmath_t>(std_);
  distribute<scalar_t, NormalOf<scalar_t>>(
      iter, generator, [=](opmath_t value) { return static_cast<scalar_t>(transform(value, mean, std)); });
}

template <class RNG>
struct NormalWith {
  void operator()(const TensorBase& self, double mean, double std, const std::optional<Generator>& given) {
    RNG& generator = *check_generator<RNG>(given);
    auto iter = TensorIterator::borrowing_nullary_op(self);
    AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, iter.dtype(), "normal", [&] {
      fill_with_normal<scalar_t>(iter, mean, std, generator, [](auto value, auto mean, auto std) {
        return mean == 0 ? value * std : std::fma(value, std, mean);
      });
    });
  }
};

template <class RNG>
struct LogNormal {
  void operator()(TensorIteratorBase& iter, double mean, double std, const std::optional<Generator>& given) {
    RNG& generator = *check_generator<RNG>(given);
    AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, iter.dtype(), "log_normal", [&] {
      fill_with_normal<scalar_t>(iter, mean, std, generator, [](auto value, auto mean, auto std) {
        return std::exp(std::fma(value, std, mean));
      });
    });
  }
};

template <class RNG>
struct Exponential {
  void operator()(TensorIteratorBase& iter, double lambda_, const std::optional<Generator>& given) {
    fill_with_exponential(iter, lambda_, *check_generator<RNG>(given));
  }
};

template <class RNG>
struct Cauchy {
  void operator()(TensorIteratorBase& iter, double median_, double sigma_, const std::optional<Generator>& given) {
    RNG& generator = *check_generator<RNG>(given);
    AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, iter.dtype(), "cauchy", [&] {
      using opmath_t = opmath_type<scalar_t>;
      const auto median = static_cast<opmath_t>(median_);
      const auto sigma = static_cast<opmath_t>(sigma_);
      distribute<scalar_t, UniformOf<scalar_t>>(iter, generator, [=](opmath_t value) {
        return static_cast<scalar_t>(transformation::cauchy<opmath_t>(value, median, sigma));
      });
    });
  }
};

template <class RNG>
struct Geometric {
  void operator()(TensorIteratorBase& iter, double p, const std::optional<Generator>& given) {
    RNG& generator = *check_generator<RNG>(given);
    AT_DISPATCH_ALL_TYPES_AND2(kHalf, kBFloat16, iter.dtype(), "geometric", [&] {
      distribute<scalar_t, UniformOf<scalar_t>>(iter, generator, [=](NumberOf<UniformOf<scalar_t>> value) {
        return static_cast<scalar_t>(transformation::geometric<NumberOf<UniformOf<scalar_t>>>(
            value, static_cast<NumberOf<UniformOf<scalar_t>>>(p)));
      });
    });
  }
};

template <class RNG>
struct Bernoulli {
  void operator()(Tensor& self, double p, const std::optional<Generator>& given) {
    RNG& generator = *check_generator<RNG>(given);
    auto iter = TensorIterator::borrowing_nullary_op(self);
    AT_DISPATCH_ALL_TYPES_AND3(kHalf, kBFloat16, kBool, iter.dtype(), "bernoulli", [&] {
      distribute<scalar_t, UniformOf<scalar_t>>(
          iter, generator, [p = static_cast<NumberOf<UniformOf<scalar_t>>>(p)](NumberOf<UniformOf<scalar_t>> value) {
            return static_cast<scalar_t>(value < p);
          });
    });
  }
  void operator()(Tensor& self, const Tensor& p, const std::optional<Generator>& given) {
    fill_with_probabilities(self, p, *check_generator<RNG>(given));
  }
};

Tensor& uniform_(Tensor& self, double from, double to, std::optional<Generator> generator) {
  return templates::uniform_impl_<UniformInRange, PhiloxGenerator>(self, from, to, std::move(generator));
}

Tensor& normal_(Tensor& self, double mean, double std, std::optional<Generator> generator) {
  return templates::normal_impl_<NormalWith, PhiloxGenerator>(self, mean, std, std::move(generator));
}

// normal() of a mean and a standard deviation, of which at least one is a tensor.
template <class Mean, class Std>
Tensor normal_of(Mean mean, Std std, std::optional<Generator> generator) {
  return templates::normal_impl<NormalWith, PhiloxGenerator>(mean, std, std::move(generator));
}

template <class Mean, class Std>
Tensor& normal_out(Mean mean, Std std, std::optional<Generator> generator, Tensor& out) {
  return templates::normal_out_impl<NormalWith, PhiloxGenerator>(out, mean, std, std::move(generator));
}

Tensor& log_normal_(Tensor& self, double mean, double std, std::optional<Generator> generator) {
  return templates::log_normal_impl_<LogNormal, PhiloxGenerator>(self, mean, std, std::move(generator));
}

Tensor& exponential_(Tensor& self, double lambda, std::optional<Generator> generator) {
  return templates::exponential_impl_<Exponential, PhiloxGenerator>(self, lambda, std::move(generator));
}

Tensor& cauchy_(Tensor& self, double median, double sigma, std::optional<Generator> generator) {
  return templates::cauchy_impl_<Cauchy, PhiloxGenerator>(self, median, sigma, std::move(generator));
}

Tensor& geometric_(Tensor& self, double p, std::optional<Generator> generator) {
  return templates::geometric_impl_<Geometric, PhiloxGenerator>(self, p, std::move(generator));
}

Tensor& bernoulli_of_tensor(Tensor& self, const Tensor& p, std::optional<Generator> generator) {
  return templates::bernoulli_impl_<Bernoulli, PhiloxGenerator>(self, p, std::move(generator));
}

Tensor& bernoulli_of_float(Tensor& self, double p, std::optional<Generator> generator) {
  return templates::bernoulli_impl_<Bernoulli, PhiloxGenerator>(self, p, std::move(generator));
}

Tensor& bernoulli_out(const Tensor& self, std::optional<Generator> generator, Tensor& out) {
  return templates::bernoulli_out_impl<Bernoulli, PhiloxGenerator>(out, self, std::move(generator));
}

// ---- All other operators

void run_with_twister(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  const size_t first = stack->size() - arguments.size();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (is_generator(arguments[i])) {
      c10::IValue& value = (*stack)[first + i];
      const PhiloxStart start = check_generator<PhiloxGenerator>(value.toOptional<Generator>())->advance(kWords);
      PhiloxWords words;
      draw_words(start, 0, 0, words);
      value = at::detail::createCPUGenerator(uint64_t{words[0][0]} << 32 | words[1][0]);
    }
  }
  op.redispatchBoxed(keys, stack);
}

using RandomKernels = ska::flat_hash_map<c10::OperatorName, c10::KernelFunction>;

RandomKernels* make_kernels() {
  auto* const kernels = new RandomKernels;
  const auto add = [&](const char* name, auto kernel) {
    kernels->emplace(torch::jit::parseName(name), c10::KernelFunction::makeFromUnboxedFunction(kernel));
  };
  add("aten::random_", TORCH_FN(random_));
  add("aten::random_.from", TORCH_FN(random_from));
  add("aten::random_.to", TORCH_FN(random_to));
  add("aten::uniform_", TORCH_FN(uniform_));
  add("aten::normal_", TORCH_FN(normal_));
  add("aten::normal.Tensor_float", TORCH_FN((normal_of<const Tensor&, double>)));
  add("aten::normal.float_Tensor", TORCH_FN((normal_of<double, const Tensor&>)));
  add("aten::normal.Tensor_Tensor", TORCH_FN((normal_of<const Tensor&, const Tensor&>)));
  add("aten::normal.Tensor_float_out", TORCH_FN((normal_out<const Tensor&, double>)));
  add("aten::normal.float_Tensor_out", TORCH_FN((normal_out<double, const Tensor&>)));
  add("aten::normal.Tensor_Tensor_out", TORCH_FN((normal_out<const Tensor&, const Tensor&>)));
  add("aten::log_normal_", TORCH_FN(log_normal_));
  add("aten::exponential_", TORCH_FN(exponential_));
  add("aten::cauchy_", TORCH_FN(cauchy_));
  add("aten::geometric_", TORCH_FN(geometric_));
  add("aten::bernoulli_.Tensor", TORCH_FN(bernoulli_of_tensor));
  add("aten::bernoulli_.float", TORCH_FN(bernoulli_of_float));
  add("aten::bernoulli.out", TORCH_FN(bernoulli_out));
  add("aten::randperm.generator_out", TORCH_FN(permutation_out));
  add("aten::_fused_dropout", TORCH_FN(fused_dropout));
  add("aten::multinomial", TORCH_FN(multinomial));
  add("aten::multinomial.out", TORCH_FN(multinomial_out));
  return kernels;
}

} // namespace

const c10::KernelFunction& random_kernel(const c10::OperatorHandle& op) {
  static const RandomKernels& kernels = *make_kernels();
  static const c10::KernelFunction other = c10::KernelFunction::makeFromBoxedFunction<&run_with_twister>();
  const auto found = kernels.find(op.operator_name());
  return found == kernels.end() ? other : found->second;
}

} // namespace at::openreg
