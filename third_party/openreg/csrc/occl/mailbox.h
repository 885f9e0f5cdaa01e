#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

// The objects in the memory that the ranks of one host share.
namespace occl {

// A number that only grows. Other processes can wait until it changes.
struct Counter {
  alignas(64) std::atomic<uint32_t> value{0};
  std::atomic<uint32_t> sleepers{0};

  void set(uint32_t to);
  void increment();
  // Returns when the number is not `seen` any more, when somebody calls wake(), or after `time`.
  void sleep(uint32_t seen, std::chrono::nanoseconds time);
  void wake();
};

// The memory of a rank. Collectives use the plan (occl_transport.h) and the two halves for data. Messages use the pipes to the
// other ranks, which follow this object in memory.
struct Mailbox {
  static constexpr size_t kHalf = 512 << 10; // bytes; it fits into the processor's cache
  static constexpr size_t kPlan = 16 << 10;  // bytes

  Counter posted;
  Counter taken;
  Counter bell; // incremented by a rank that has written to this rank, has read from this rank, or gives up
  std::atomic<uint32_t> failed{0};
  alignas(64) char plan[kPlan];
  alignas(4096) char halves[2][kHalf];
};

// The bytes on their way from the owner of the memory to one other rank. The bytes follow this object in memory.
struct Pipe {
  alignas(64) std::atomic<uint32_t> written{0}; // bytes, modulo 2^32
  alignas(64) std::atomic<uint32_t> read{0};    // bytes, modulo 2^32; written by the receiver

  char* data() {
    return reinterpret_cast<char*>(this + 1);
  }
};

} // namespace occl
