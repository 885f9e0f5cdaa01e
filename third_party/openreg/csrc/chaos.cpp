#include "chaos.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "pinned_memory.h"

namespace openreg {
namespace {

constexpr size_t kLongestPause = 500; // microseconds

struct Sequence {
  std::mutex mutex;
  uint64_t seed = 0;
  std::mt19937_64 engine;
};

Sequence& sequence() {
  static auto* const sequence = new Sequence(); // never deleted: threads use it until the process is gone
  return *sequence;
}

// The range of addresses from the first to the last byte of an operand in pinned memory.
struct HostRange {
  uintptr_t begin, end;
  bool isRead;

  bool overlaps(const HostRange& other) const {
    return begin < other.end && other.begin < end;
  }
};

HostRange rangeOf(const orOperand& operand) {
  const auto data = reinterpret_cast<uintptr_t>(operand.data);
  HostRange range{data, data + operand.itemSize, (operand.access & orAccessRead) != 0};
  for (int i = 0; i < operand.dims; ++i) {
    if (operand.sizes[i] == 0) {
      return {data, data, range.isRead};
    }
    const int64_t extent = (operand.sizes[i] - 1) * operand.strides[i];
    (extent < 0 ? range.begin : range.end) += static_cast<uintptr_t>(extent);
  }
  return range;
}

// A copy of an operand. The original is valid only while the work's `operands` function runs.
struct Strided {
  std::vector<int64_t> sizes, strides;
  orOperand operand;

  explicit Strided(const orOperand& told)
      : sizes(told.sizes, told.sizes + told.dims), strides(told.strides, told.strides + told.dims), operand(told) {
    operand.sizes = sizes.data();
    operand.strides = strides.data();
  }
  Strided(Strided&&) = default; // a moved vector keeps the address of its elements
};

// The pinned memory that queued work uses, by the work's number. nullopt: the work does not describe its operands, and
// may use all memory.
struct HostMemory {
  std::mutex mutex;
  uint64_t last = 0;
  std::map<uint64_t, std::optional<std::vector<HostRange>>> pending;
};

HostMemory& hostMemory() {
  static auto* const memory = new HostMemory(); // never deleted, as above
  return *memory;
}

} // namespace

uint64_t noteHostMemory(const Work& work) {
  std::vector<HostRange> ranges;
  std::vector<Strided> written;
  if (work.what.operands != nullptr) {
    const auto collect = [&](const orOperand& operand) {
      if (findPinned(reinterpret_cast<uintptr_t>(operand.data))) {
        ranges.push_back(rangeOf(operand));
        if (operand.access == orAccessWrite) {
          written.emplace_back(operand);
        }
      }
    };
    const auto visit = [](const orOperand* operand, void* context) {
      (*static_cast<decltype(collect)*>(context))(*operand);
    };
    work.what.operands(work.what.data, visit, const_cast<void*>(static_cast<const void*>(&collect)));
    if (ranges.empty()) {
      return 0;
    }
  }
  HostMemory& memory = hostMemory();
  const std::lock_guard lock(memory.mutex);
  for (const Strided& operand : written) {
    const HostRange range = rangeOf(operand.operand);
    const auto isRead = [&](const HostRange& own) { return own.isRead && own.overlaps(range); };
    const auto mayUse = [&](const auto& pending) {
      return !pending.second || std::any_of(pending.second->begin(), pending.second->end(), [&](const HostRange& used) {
        return used.overlaps(range);
      });
    };
    if (std::none_of(ranges.begin(), ranges.end(), isRead) &&
        std::none_of(memory.pending.begin(), memory.pending.end(), mayUse)) {
      poison(operand.operand);
    }
  }
  const uint64_t number = ++memory.last;
  memory.pending.emplace(number, work.what.operands != nullptr ? std::optional(std::move(ranges)) : std::nullopt);
  return number;
}

void forgetHostMemory(uint64_t number) {
  if (number != 0) {
    const std::lock_guard lock(hostMemory().mutex);
    hostMemory().pending.erase(number);
  }
}

void poison(const orOperand& operand) {
  if (operand.dims == 0) {
    std::memset(const_cast<void*>(operand.data), 0xFF, operand.itemSize);
    return;
  }
  orOperand slice = operand;
  --slice.dims;
  ++slice.sizes;
  ++slice.strides;
  for (int64_t i = 0; i < operand.sizes[0]; ++i) {
    poison(slice);
    slice.data = static_cast<const char*>(slice.data) + operand.strides[0];
  }
}

void seedChaos(uint64_t seed) {
  const std::lock_guard lock(sequence().mutex);
  sequence().seed = seed;
  sequence().engine.seed(seed);
}

uint64_t chaosSeed() {
  const std::lock_guard lock(sequence().mutex);
  return sequence().seed;
}

size_t chaosChoice(size_t count) {
  const std::lock_guard lock(sequence().mutex);
  return sequence().engine() % count;
}

void chaosPause() {
  const size_t choice = chaosChoice(2 * kLongestPause);
  if (choice < kLongestPause) {
    std::this_thread::sleep_for(std::chrono::microseconds(choice + 1));
  }
}

} // namespace openreg
