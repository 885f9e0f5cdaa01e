#include "simulator/borrowed/random/Permutation.h"

#include <ATen/Dispatch_v2.h>
#include <ATen/core/DistributionsHelper.h> // includes TransformationHelper.h, which has no include guard
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/empty.h>

#include <cmath>
#include <limits>
#include <vector>

#include "simulator/borrowed/random/Distributions.h"

namespace at::openreg {

void fill_with_range(TensorIteratorBase& iter, uint64_t range, int64_t base, PhiloxGenerator& generator) {
  const auto fill = [&](auto element) {
    using scalar_t = decltype(element);
    const auto place = [=](auto value) { return transformation::uniform_int_from_to<scalar_t>(value, range, base); };
    if (range >= uint64_t{1} << 28) {
      distribute<scalar_t, WordPairs>(iter, generator, place);
    } else {
      distribute<scalar_t, Words>(iter, generator, [=, narrow = static_cast<uint32_t>(range)](uint32_t value) {
        return static_cast<scalar_t>(static_cast<int64_t>(value % narrow) + base);
      });
    }
  };
  AT_DISPATCH_V2(
      iter.dtype(),
      "random_from_to",
      AT_WRAP([&] { fill(scalar_t()); }),
      AT_EXPAND(AT_ALL_TYPES),
      kBool,
      kHalf,
      kBFloat16,
      AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES));
}

namespace {

struct Keyed {
  uint64_t key;
  int64_t index;
};

// Sorts by the lower `bits` bits of the keys. Elements with equal keys keep their order.
void radix_sort(std::vector<Keyed>& elements, int bits) {
  constexpr int kDigit = 8;
  std::vector<Keyed> sorted(elements.size());
  for (int shift = 0; shift < bits; shift += kDigit) {
    const auto digit = [&](const Keyed& each) { return each.key >> shift & ((1 << kDigit) - 1); };
    size_t places[(1 << kDigit) + 1] = {};
    for (const Keyed& each : elements) {
      ++places[digit(each) + 1];
    }
    for (size_t i = 1; i <= 1 << kDigit; ++i) {
      places[i] += places[i - 1];
    }
    for (const Keyed& each : elements) {
      sorted[places[digit(each)]++] = each;
    }
    elements.swap(sorted);
  }
}

// Shuffles the elements with equal keys, which sorting has left in their order.
void shuffle_equal_keys(std::vector<Keyed>& elements, const PhiloxStart& start) {
  for (size_t first = 0, last = 0; first < elements.size(); first = last) {
    for (last = first + 1; last < elements.size() && elements[last].key == elements[first].key; ++last) {
    }
    const size_t count = last - first;
    for (size_t i = count - 1; i > 0; --i) {
      const size_t number = count - 1 - i; // of the word, in the sequence of the thread
      PhiloxWords words;
      draw_words(start, number / kWords, first, words);
      std::swap(elements[first + i].index, elements[first + words[number % kWords][0] % (i + 1)].index);
    }
  }
}

// So many bits that all keys differ with a probability of at least 0.9 (https://osf.io/af2hy).
int bits_of_keys(int64_t n) {
  const auto size = static_cast<double>(n);
  const double bits = std::log2(size - (6 * size * size + 1) / (12 * std::log(0.9)));
  return std::min(64, static_cast<int>(std::ceil(bits)));
}

template <class Key>
std::vector<Keyed> random_keys(int64_t n, int bits, PhiloxGenerator& generator) {
  const Tensor keys = at::empty({n}, c10::CppTypeToScalarType<Key>::value);
  auto iter = TensorIterator::borrowing_nullary_op(keys);
  constexpr Key kFrom = std::numeric_limits<Key>::min();
  fill_with_range(iter, std::numeric_limits<std::make_unsigned_t<Key>>::max(), kFrom, generator);
  std::vector<Keyed> elements(n);
  const uint64_t mask = ~uint64_t{0} >> (64 - bits);
  for (int64_t i = 0; i < n; ++i) {
    // Sorting orders signed keys: with the sign bit reversed, their order is that of unsigned keys.
    const auto ordered = static_cast<std::make_unsigned_t<Key>>(keys.const_data_ptr<Key>()[i]) ^
                         static_cast<std::make_unsigned_t<Key>>(kFrom);
    elements[i] = {ordered & mask, i};
  }
  return elements;
}

} // namespace

// As aten/src/ATen/native/cuda/Randperm.cu.
Tensor& permutation_out(int64_t n, std::optional<Generator> given, Tensor& out) {
  TORCH_CHECK(n >= 0, "n must be non-negative, got", n);
  PhiloxGenerator& generator = *check_generator<PhiloxGenerator>(std::move(given));
  at::native::check_supported_max_int_with_precision(n, out);
  out.resize_({n});
  if (n == 0) {
    return out;
  }
  const int bits = bits_of_keys(n);
  std::vector<Keyed> elements =
      bits <= 32 ? random_keys<int32_t>(n, bits, generator) : random_keys<int64_t>(n, bits, generator);
  radix_sort(elements, bits);
  shuffle_equal_keys(elements, generator.advance(n));
  AT_DISPATCH_ALL_TYPES_AND2(kHalf, kBFloat16, out.scalar_type(), "randperm", [&] {
    auto* const data = static_cast<scalar_t*>(out.mutable_data_ptr());
    const int64_t stride = out.stride(0);
    for (int64_t i = 0; i < n; ++i) {
      data[i * stride] = static_cast<scalar_t>(elements[i].index);
    }
  });
  return out;
}

} // namespace at::openreg
