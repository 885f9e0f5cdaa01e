#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "hooks.h"
#include "pinned_memory.h"

// orExecutionChaos. It acts through the random schedule of hooks.h.
namespace openreg {
namespace {

constexpr size_t kLongestPause = 500; // microseconds

// The random choices: one sequence for the whole process.
struct Sequence {
  std::mutex mutex;
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

// Fills all elements with 0xFF bytes.
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

// If the work will write pinned memory without reading it, this function fills that memory with 0xFF bytes at once. A
// host that reads the memory too early then does not find the old contents, which may happen to be right. Pinned memory
// that pending work may still use is left alone here. (A copy poisons its destination once more when it starts; a kernel
// does not.) Returns the number of the work in HostMemory::pending; 0: it is not there.
uint64_t noteHostMemory(const orKernel& what) {
  std::vector<HostRange> ranges;
  std::vector<Strided> written;
  if (what.operands != nullptr) {
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
    what.operands(what.data, visit, const_cast<void*>(static_cast<const void*>(&collect)));
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
  memory.pending.emplace(number, what.operands != nullptr ? std::optional(std::move(ranges)) : std::nullopt);
  return number;
}

// All work is queued, and a program that misses a synchronisation gets wrong results:
//   - Each thread takes its next work from a random stream, whatever the priorities.
//   - Each piece of work is delayed before it starts and again before it counts as done. Half of the delays are 0, the
//     others are at most 0.5 ms.
//   - When a copy starts, its destination is filled with 0xFF bytes (NaN for floating point), and the copy is delayed
//     once more. Neither happens if the destination overlaps the source.
//   - Pinned memory that queued work will write and not read is filled earlier: see noteHostMemory().
class Chaos final : public RandomSchedule {
 public:
  void seed(uint64_t seed) override {
    const std::lock_guard lock(sequence().mutex);
    sequence().engine.seed(seed);
  }

  size_t choose(size_t count) override {
    const std::lock_guard lock(sequence().mutex);
    return sequence().engine() % count;
  }

  void pause() override {
    const size_t choice = choose(2 * kLongestPause);
    if (choice < kLongestPause) {
      std::this_thread::sleep_for(std::chrono::microseconds(choice + 1));
    }
  }

  void beforeCopy(void* to, size_t size) override {
    std::memset(to, 0xFF, size);
    pause();
  }

  uint64_t queued(const orKernel& what) override {
    return noteHostMemory(what);
  }

  void done(uint64_t number) override {
    const std::lock_guard lock(hostMemory().mutex);
    hostMemory().pending.erase(number);
  }
};

const bool registered = (randomSchedule = new Chaos(), true); // lives until the process ends

} // namespace
} // namespace openreg
