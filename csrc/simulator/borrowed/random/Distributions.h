#pragma once

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "simulator/borrowed/random/PhiloxGenerator.h"

// Fills tensors with random numbers, element by element with the numbers of a GPU: distribution_nullary_kernel() of
// aten/src/ATen/native/cuda/DistributionTemplates.h. A thread of a GPU makes calls of Philox until all elements are
// drawn. The values of a call go to elements that are as far apart as the launch has threads.
//
// A *source* makes the values of one call from its four words, with the arithmetic of cuRAND. `values[i]` are the values
// number `i` of all lanes. Only the first `count` values are needed.
namespace at::openreg {

// The number of values that a source makes in one call.
template <class Value>
constexpr int kPerCall = sizeof(uint32_t[kWords]) / sizeof(Value);

template <class Value>
using Values = Value[kPerCall<Value>][kLanes];

template <class Value>
struct Draws {
  using Drawn = Value;
};
template <class Source>
using NumberOf = typename Source::Drawn;

struct Words : Draws<uint32_t> {
  static void make(const PhiloxWords& words, int count, Values<uint32_t>& values) {
    std::copy_n(&words[0][0], count * kLanes, &values[0][0]);
  }
};

struct WordPairs : Draws<uint64_t> {
  static void make(const PhiloxWords& words, int count, Values<uint64_t>& values) {
    for (int i = 0; i < count; ++i) {
      for (int lane = 0; lane < kLanes; ++lane) {
        values[i][lane] = uint64_t{words[2 * i][lane]} << 32 | words[2 * i + 1][lane];
      }
    }
  }
};

// In (0, 1].
struct Uniform : Draws<float> {
  // A word as the nearest float, and then in the middle of its interval. The two halves are exact, and only their sum is
  // rounded: processors have vector instructions for small integers.
  static float of(uint32_t word) {
    const float nearest = static_cast<float>(static_cast<int32_t>(word >> 16)) * 0x1p16f +
                          static_cast<float>(static_cast<int32_t>(word & 0xffff));
    return nearest * 0x1p-32f + 0x1p-33f;
  }
  static void make(const PhiloxWords& words, int count, Values<float>& values) {
    for (int i = 0; i < count; ++i) {
      for (int lane = 0; lane < kLanes; ++lane) {
        values[i][lane] = of(words[i][lane]);
      }
    }
  }
};

struct UniformDouble : Draws<double> {
  static double of(uint32_t low, uint32_t high) { // 53 bits
    return static_cast<double>(static_cast<int64_t>(low ^ uint64_t{high} << 21)) * 0x1p-53 + 0x1p-54;
  }
  static void make(const PhiloxWords& words, int count, Values<double>& values) {
    for (int i = 0; i < count; ++i) {
      for (int lane = 0; lane < kLanes; ++lane) {
        values[i][lane] = of(words[2 * i][lane], words[2 * i + 1][lane]);
      }
    }
  }
};

// Normally distributed, by the transform of Box and Muller: two words give two values. A GPU computes the sine and the
// cosine with less precision (__sincosf).
struct Normal : Draws<float> {
  static void make(const PhiloxWords& words, int count, Values<float>& values);
};

struct NormalDouble : Draws<double> {
  static void make(const PhiloxWords& words, int count, Values<double>& values);
};

// Draws a value for each of `numel` elements. `store(i, value)` is called for element number `i`.
template <class Source, class Store>
void draw_elements(const PhiloxLaunch& launch, int64_t numel, const Store& store) {
  constexpr int kGrain = 256; // groups of lanes, for each thread of this processor
  const auto [start, threads] = launch;
  const auto draw = [&](int64_t first_group, int64_t last_group) {
    PhiloxWords words;
    Values<NumberOf<Source>> values;
    for (int64_t call = 0, base = 0; base < numel; ++call, base += threads * kPerCall<NumberOf<Source>>) {
      for (int64_t thread = first_group * kLanes; thread < last_group * kLanes && base + thread < numel;
           thread += kLanes) {
        draw_words(start, call, thread, words);
        const int64_t rest = (numel - base - thread - 1) / threads + 1;
        const int count = static_cast<int>(std::min<int64_t>(rest, kPerCall<NumberOf<Source>>));
        Source::make(words, count, values);
        for (int i = 0; i < count; ++i) {
          const int64_t first = base + i * threads + thread;
          const int lanes = static_cast<int>(std::min<int64_t>(numel - first, kLanes));
          for (int lane = 0; lane < lanes; ++lane) {
            store(first + lane, values[i][lane]);
          }
        }
      }
    }
  };
  at::parallel_for(0, (std::min(threads, numel) - 1) / kLanes + 1, kGrain, draw);
}

template <class scalar_t>
using UniformOf = std::conditional_t<std::is_same_v<scalar_t, double>, UniformDouble, Uniform>;
template <class scalar_t>
using NormalOf = std::conditional_t<std::is_same_v<scalar_t, double>, NormalDouble, Normal>;

// Fills the output of `iter`, whose elements have the type `Scalar`. The elements are numbered in the order of the
// iterator. `transform` makes an element from a value of the source.
template <class Scalar, class Source, class Transform>
void distribute(TensorIteratorBase& iter, PhiloxGenerator& generator, const Transform& transform) {
  const int64_t numel = iter.numel();
  const PhiloxLaunch launch = generator.launch(numel, kPerCall<NumberOf<Source>>);
  if (!iter.can_use_32bit_indexing()) { // as a GPU does: the offset advances for the whole, and again for each part
    for (TensorIterator& part : iter.with_32bit_indexing()) {
      distribute<Scalar, Source>(part, generator, transform);
    }
    return;
  }
  if (iter.is_contiguous()) {
    auto* const data = static_cast<Scalar*>(iter.data_ptr(0));
    draw_elements<Source>(launch, numel, [=](int64_t i, NumberOf<Source> value) { data[i] = transform(value); });
    return;
  }
  const auto elements = std::make_unique<Scalar[]>(numel);
  draw_elements<Source>(launch, numel, [&](int64_t i, NumberOf<Source> value) { elements[i] = transform(value); });
  const Scalar* next = elements.get();
  iter.serial_for_each(
      [&](char** data, const int64_t* strides, int64_t n) {
        for (int64_t i = 0; i < n; ++i) {
          *reinterpret_cast<Scalar*>(data[0] + i * strides[0]) = *next++;
        }
      },
      {0, numel});
}

} // namespace at::openreg
