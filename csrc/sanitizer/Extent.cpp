#include "Extent.h"

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

// The bytes between the first byte of the innermost `depth` dimensions and the end of the last one.
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

// Whether a byte of the innermost `depth` dimensions lies in [low, high). `base`: the address where these dimensions
// begin.
bool Extent::touches(uintptr_t low, uintptr_t high, uintptr_t base, size_t depth) const {
  const auto inner = static_cast<int64_t>(depth == 0 ? run : span(depth - 1));
  const auto from = static_cast<int64_t>(low) - static_cast<int64_t>(base);
  const auto to = static_cast<int64_t>(high) - static_cast<int64_t>(base); // exclusive
  if (depth == 0) {
    return from < inner && to > 0;
  }
  const Dim& dim = dims[depth - 1];
  const int64_t first = std::max<int64_t>(0, from < inner ? 0 : (from - inner) / dim.stride + 1);
  const int64_t last = to <= 0 ? -1 : std::min<int64_t>(dim.size - 1, (to - 1) / dim.stride);
  for (int64_t i = first; i <= last; ++i) {
    if (touches(low, high, base + i * dim.stride, depth - 1)) {
      return true;
    }
  }
  return false;
}

bool Extent::shares_a_byte(const Extent& other) const {
  // A fast answer for rows of the same length: two extents that use different columns share no byte.
  if (!dims.empty() && !other.dims.empty() && dims.back().stride == other.dims.back().stride) {
    const auto row = static_cast<uintptr_t>(dims.back().stride);
    const size_t mine = span(dims.size() - 1);
    const size_t others = other.span(other.dims.size() - 1);
    const uintptr_t distance = (other.begin % row + row - begin % row) % row;
    if (mine <= distance && distance + others <= row) {
      return false;
    }
  }
  constexpr size_t kMostRuns = size_t{1} << 20; // takes about 10 ms
  const bool walk_mine = count_runs() <= other.count_runs();
  const Extent& walked = walk_mine ? *this : other;
  const Extent& asked = walk_mine ? other : *this;
  if (walked.count_runs() > kMostRuns) {
    return true;
  }
  bool found = false;
  walked.for_each_run([&](uintptr_t low, uintptr_t high) {
    found = found || asked.touches(low, high, asked.begin, asked.dims.size());
  });
  return found;
}

} // namespace c10::openreg::sanitizer
