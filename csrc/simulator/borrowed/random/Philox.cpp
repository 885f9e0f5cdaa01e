#include "simulator/borrowed/random/Philox.h"

namespace at::openreg {
namespace {

// The constants of the paper: two multipliers, and what is added to the halves of the key in each round.
constexpr uint64_t kFirstMultiplier = 0xD2511F53, kSecondMultiplier = 0xCD9E8D57;
constexpr uint32_t kFirstWeyl = 0x9E3779B9, kSecondWeyl = 0xBB67AE85;
constexpr int kRounds = 10;

// Compiles the function twice, because AVX2 halves its time: the loader takes the version that the processor can run. It
// chooses before a sanitizer of the compiler has started.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define OPENREG_WITH_AVX2 __attribute__((target_clones("avx2", "default")))
#else
#define OPENREG_WITH_AVX2
#endif

} // namespace

OPENREG_WITH_AVX2 void draw_words(const PhiloxStart& start, uint64_t call, uint64_t first_thread, PhiloxWords& words) {
  const uint64_t counter = start.call + call;
  auto& [a, b, c, d] = words;
  for (int lane = 0; lane < kLanes; ++lane) {
    const uint64_t thread = first_thread + lane;
    a[lane] = static_cast<uint32_t>(counter);
    b[lane] = static_cast<uint32_t>(counter >> 32);
    c[lane] = static_cast<uint32_t>(thread);
    d[lane] = static_cast<uint32_t>(thread >> 32);
  }
  auto first_key = static_cast<uint32_t>(start.seed);
  auto second_key = static_cast<uint32_t>(start.seed >> 32);
  for (int round = 0; round < kRounds; ++round) {
    for (int lane = 0; lane < kLanes; ++lane) { // one loop over all lanes, for vector instructions
      const uint64_t first = kFirstMultiplier * a[lane];
      const uint64_t second = kSecondMultiplier * c[lane];
      a[lane] = static_cast<uint32_t>(second >> 32) ^ b[lane] ^ first_key;
      b[lane] = static_cast<uint32_t>(second);
      c[lane] = static_cast<uint32_t>(first >> 32) ^ d[lane] ^ second_key;
      d[lane] = static_cast<uint32_t>(first);
    }
    first_key += kFirstWeyl;
    second_key += kSecondWeyl;
  }
}

} // namespace at::openreg
