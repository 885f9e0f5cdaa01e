#include "simulator/sanitizer/Extent.h"

#include <algorithm>

namespace c10::openreg::sanitizer {

Extent::Extent(const void* data, size_t size)
    : begin(reinterpret_cast<uintptr_t>(data)), end(begin + size), run(size) {}

Extent::Extent(const orOperand& operand) : Extent(operand.data, operand.itemSize) {
  for (int i = 0; i < operand.dims; ++i) {
    const int64_t size = operand.sizes[i];
    int64_t stride = operand.strides[i];
    if (size == 0) {
      end = begin;
      dims.clear();
      return;
    }
    if (size == 1 || stride == 0) { // stride 0, an expanded dimension: the same bytes again
      continue;
    }
    if (stride < 0) {
      begin += (size - 1) * stride;
      stride = -stride;
    }
    dims.push_back({size, stride});
  }
  std::sort(dims.begin(), dims.end(), [](const Dim& a, const Dim& b) { return a.stride < b.stride; });
  // Merges dimensions that continue each other.
  SmallVector<Dim, 2> merged;
  for (const Dim& dim : dims) {
    if (merged.empty() && static_cast<size_t>(dim.stride) == run) {
      run *= dim.size;
    } else if (!merged.empty() && dim.stride == merged.back().size * merged.back().stride) {
      merged.back().size *= dim.size;
    } else {
      merged.push_back(dim);
    }
  }
  dims = std::move(merged);
  end = begin + span(dims.size());
}

bool Extent::operator==(const Extent& other) const {
  return begin == other.begin && end == other.end && run == other.run &&
         std::equal(dims.begin(), dims.end(), other.dims.begin(), other.dims.end(), [](const Dim& a, const Dim& b) {
           return a.size == b.size && a.stride == b.stride;
         });
}

// The number of bytes from the first to the last byte of the innermost `depth` dimensions, both included.
size_t Extent::span(size_t depth) const {
  size_t bytes = run;
  for (size_t i = 0; i < depth; ++i) {
    bytes += (dims[i].size - 1) * dims[i].stride;
  }
  return bytes;
}

size_t Extent::count_runs() const {
  size_t count = 1;
  for (const Dim& dim : dims) {
    count *= dim.size;
  }
  return count;
}

namespace {

int64_t divide_down(int64_t a, int64_t b) {
  return a / b - (a % b < 0);
}

} // namespace

// Whether the innermost `depth` dimensions of this extent and the innermost `others` dimensions of the other one share
// a byte. `distance`: from the first byte of these dimensions here to the first byte of those there. Of the two
// outermost dimensions, takes the one with the larger stride, tries each of its indices at which the bounds overlap,
// and recurses. If both have the same stride, only the difference of their two indices matters, so the loop runs over
// the difference. `steps`: how many calls may still recurse; at 0 the answer is false.
bool Extent::overlaps(size_t depth, const Extent& other, size_t others, int64_t distance, size_t& steps) const {
  if (distance >= static_cast<int64_t>(span(depth)) || -distance >= static_cast<int64_t>(other.span(others))) {
    return false;
  }
  if (depth == 0 && others == 0) {
    return true;
  }
  if (steps == 0) {
    return false;
  }
  --steps;
  const int64_t stride = depth == 0 ? 0 : dims[depth - 1].stride;
  const int64_t other_stride = others == 0 ? 0 : other.dims[others - 1].stride;
  if (stride < other_stride) {
    return other.overlaps(others, *this, depth, -distance, steps);
  }
  const bool same = stride == other_stride;
  const size_t others_within = same ? others - 1 : others;
  const auto mine = static_cast<int64_t>(span(depth - 1));
  const auto theirs = static_cast<int64_t>(other.span(others_within));
  const int64_t first = std::max(same ? 1 - other.dims[others - 1].size : 0, divide_down(distance - mine, stride) + 1);
  const int64_t last = std::min(dims[depth - 1].size - 1, divide_down(distance + theirs - 1, stride));
  for (int64_t i = first; i <= last; ++i) {
    if (overlaps(depth - 1, other, others_within, distance - i * stride, steps)) {
      return true;
    }
  }
  return false;
}

bool Extent::shares_a_byte(const Extent& other) const {
  size_t steps = size_t{1} << 20; // After these, about 10 ms, the answer is false: a race may be missed.
  return overlaps(dims.size(), other, other.dims.size(), static_cast<int64_t>(other.begin - begin), steps);
}

} // namespace c10::openreg::sanitizer
