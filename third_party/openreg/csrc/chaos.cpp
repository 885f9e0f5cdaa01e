#include "chaos.h"

#include <chrono>
#include <mutex>
#include <random>
#include <thread>

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

} // namespace

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
