#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "hooks.h"
#include "pinned_memory.h"
#include "simulator/forks.h"
#include "simulator/last_resort.h"
#include "simulator/order.h"
#include "stream.h"
#include "windows.h"

// orExecutionChaos. It acts through the schedule of hooks.h.
namespace openreg {
namespace {

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
    if (isNothingPinned()) {
      return 0;
    }
    const auto collect = [&](const orOperand& operand) {
      const auto address = reinterpret_cast<uintptr_t>(operand.data);
      const bool isDevices = windows.containsDevice(address) || windows.containsKernel(address);
      if (!isDevices && findPinned(address)) {
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

// Every item as late as the host allows. Only what somebody waits for runs. If there is a choice, the item that was
// queued last comes first, so each pair of items that no event orders runs against the order of the calls; and copies
// from and to the host come last.
size_t chooseLate(const std::vector<HeldItem>& items) {
  const auto isLater = [](const HeldItem& a, const HeldItem& b) {
    return std::tuple(a.isNeeded, !a.isHostCopy, a.number) < std::tuple(b.isNeeded, !b.isHostCopy, b.number);
  };
  return std::max_element(items.begin(), items.end(), isLater) - items.begin();
}

// Probabilistic concurrency testing (Burckhardt, Kothari, Musuvathi and Nagarakatte, ASPLOS 2010) with streams in place
// of threads. Each stream gets a random rank, and the item of the highest rank runs. At kDepth - 1 change points the
// stream of the highest rank gets the lowest rank of all. After kWindow choices, all ranks and change points are drawn
// anew, because a race that a loop repeats would otherwise be missed each time.
//
// Within a window, with n streams, a wrong order that d constraints describe (d <= kDepth) is found with a probability
// of at least 1 / (n * kWindow^(d - 1)).
class RandomRanks {
 public:
  void seed(uint64_t seed) {
    engine_.seed(seed);
    choice_ = kWindow;
  }

  size_t choose(const std::vector<HeldItem>& items) {
    const auto highest = [&] {
      const auto isLower = [](const HeldItem& a, const HeldItem& b) { return a.stream->rank < b.stream->rank; };
      return std::max_element(items.begin(), items.end(), isLower) - items.begin();
    };
    if (choice_ == kWindow) {
      choice_ = 0;
      ++window_;
      lowest_ = kFirst;
      std::generate(std::begin(changes_), std::end(changes_), [&] { return engine_() % kWindow; });
    }
    for (const HeldItem& item : items) {
      if (std::exchange(item.stream->rankedIn, window_) != window_) {
        item.stream->rank = kFirst + engine_() % kFirst;
      }
    }
    for (const size_t change : changes_) {
      if (change == choice_) {
        items[highest()].stream->rank = --lowest_;
      }
    }
    ++choice_;
    return highest();
  }

 private:
  static constexpr size_t kDepth = 3;
  static constexpr size_t kWindow = 64;
  static constexpr uint64_t kFirst = uint64_t{1} << 62; // the first ranks are not below this number

  std::mt19937_64 engine_;
  uint64_t window_ = 0;     // how many windows have begun, with any seed
  size_t choice_ = kWindow; // the number of the next choice in its window
  uint64_t lowest_ = kFirst;
  size_t changes_[kDepth - 1] = {};
};

// A program that misses a synchronisation gets wrong results: all work is queued, and runs in an unusual order when the
// host waits (hold.cpp). Seed 0: as late as possible; the others: at random.
//
// Pinned memory that queued work will write and not read is filled with 0xFF bytes (NaN for floating point): see
// noteHostMemory().
class Chaos final : public Schedule {
 public:
  std::string configure() override {
    return readOrder();
  }

  void seed(uint64_t seed) override {
    isLate_ = seed == 0;
    parentsWait = isLate_;
    ranks_.seed(seed);
  }

  size_t choose(const std::vector<HeldItem>& items) override {
    return isLate_ ? chooseLate(items) : ranks_.choose(items);
  }

  uint64_t queued(const orKernel& what) override {
    return noteHostMemory(what);
  }

  void done(uint64_t number) override {
    const std::lock_guard lock(hostMemory().mutex);
    hostMemory().pending.erase(number);
  }

  void holding() override {
    watchForLastResort();
  }

 private:
  bool isLate_ = true; // guarded by the scheduler's lock, as the ranks
  RandomRanks ranks_;
};

const bool chaosIsRegistered = (schedule = new Chaos(), true); // lives until the process ends

} // namespace
} // namespace openreg
