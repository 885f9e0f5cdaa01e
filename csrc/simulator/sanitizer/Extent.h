#pragma once

#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>
#include <openreg.h>

#include <array>
#include <cstdint>
#include <string>

// LITERALINCLUDE START: EXTENT RULES
// The bytes of one operand: runs of contiguous bytes, at regular distances.
//
// Rule: two extents overlap only if they share a byte. It is not enough to compare bounds: two columns of a matrix, or
// its even and its odd rows, lie within each other's bounds, and programs use them at the same time on purpose.
// LITERALINCLUDE END: EXTENT RULES
namespace c10::openreg::sanitizer {

struct Extent {
  struct Dim {
    int64_t size;
    int64_t stride; // bytes, more than 0
  };

  uintptr_t begin = 0;
  uintptr_t end = 0;        // the address after the last byte
  size_t run = 0;           // the bytes of one run
  SmallVector<Dim, 2> dims; // how the runs lie, the smallest stride first; empty: there is one run

  Extent() = default;
  Extent(const void* data, size_t size);
  explicit Extent(const orOperand& operand);

  bool is_dense() const {
    return dims.empty();
  }
  bool empty() const {
    return begin == end;
  }
  bool operator==(const Extent& other) const;

  // Whether this extent contains every byte of `other`. False may also mean that the answer would take long.
  bool covers(const Extent& other) const {
    return (is_dense() && begin <= other.begin && other.end <= end) || *this == other;
  }
  // Whether the two share a byte. Returns false if the answer would take long.
  bool overlaps(const Extent& other) const {
    return begin < other.end && other.begin < end && ((is_dense() && other.is_dense()) || shares_a_byte(other));
  }

  size_t count_runs() const;

  // Calls fn(begin, end) for each run.
  template <class Fn>
  void for_each_run(const Fn& fn) const {
    visit_runs(begin, dims.size(), fn);
  }

 private:
  bool shares_a_byte(const Extent& other) const;
  bool overlaps(size_t depth, const Extent& other, size_t others, int64_t distance, size_t& steps) const;
  size_t span(size_t depth) const;

  template <class Fn>
  void visit_runs(uintptr_t base, size_t depth, const Fn& fn) const {
    if (depth == 0) {
      fn(base, base + run);
      return;
    }
    const Dim& dim = dims[depth - 1];
    for (int64_t i = 0; i < dim.size; ++i) {
      visit_runs(base + i * dim.stride, depth - 1, fn);
    }
  }
};

constexpr int64_t kMostElements = int64_t{1} << 20; // to visit so many elements takes less than a second

// Calls fn(addresses) for each element of the shape, in the order of the indices. The addresses start at `addresses`,
// and each moves by its own strides, which are in bytes.
template <size_t N, class Fn>
void for_each_element(
    IntArrayRef shape,
    const std::array<IntArrayRef, N>& strides,
    const std::array<uintptr_t, N>& addresses,
    const Fn& fn,
    size_t dim = 0) {
  if (dim == shape.size()) {
    fn(addresses);
    return;
  }
  for (int64_t i = 0; i < shape[dim]; ++i) {
    std::array<uintptr_t, N> inner = addresses;
    for (size_t k = 0; k < N; ++k) {
      inner[k] += i * strides[k][dim];
    }
    for_each_element(shape, strides, inner, fn, dim + 1);
  }
}

} // namespace c10::openreg::sanitizer
