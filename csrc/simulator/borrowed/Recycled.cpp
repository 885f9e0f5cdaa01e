#include "simulator/borrowed/Recycled.h"

#include <c10/macros/Macros.h>

#include <array>
#include <atomic>
#include <new>
#include <utility>

#include "simulator/ThreadOwned.h"

namespace at::openreg {
namespace {

struct Free {
  Free* next;
};

constexpr size_t kStep = 256;          // sizes are rounded up to a multiple of it
constexpr size_t kLists = 8;           // a larger object comes from malloc()
constexpr size_t kMostBytes = 1 << 20; // of one list

// The memory that any thread gave back. A thread takes a list as a whole, so that no list changes while it is read.
struct Given {
  std::atomic<Free*> first{nullptr};
  std::atomic<size_t> bytes{0}; // about: an update is lost if two threads give at the same time
};
std::array<Given, kLists> given;

// The memory that the thread has taken and not used yet.
struct Taken {
  std::array<Free*, kLists> lists{};

  ~Taken() {
    for (Free* first : lists) {
      while (first != nullptr) {
        ::operator delete(std::exchange(first, first->next));
      }
    }
  }
};
thread_local constinit c10::openreg::ThreadOwned<Taken> taken;

size_t list_of(size_t size) {
  return (size - 1) / kStep;
}

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kRecycles = false; // the sanitizer looks for uses of freed memory
#else
constexpr bool kRecycles = true;
#endif

} // namespace

void* Recycled::operator new(size_t size) {
  const size_t number = list_of(size);
  if (!kRecycles || number >= kLists) {
    return ::operator new(size);
  }
  Free*& first = taken->lists[number];
  if (C10_UNLIKELY(first == nullptr)) {
    first = given[number].first.exchange(nullptr, std::memory_order_acquire);
    given[number].bytes.store(0, std::memory_order_relaxed);
    if (first == nullptr) {
      return ::operator new((number + 1) * kStep);
    }
  }
  return std::exchange(first, first->next);
}

void Recycled::operator delete(void* memory, size_t size) {
  const size_t number = list_of(size);
  if (!kRecycles || number >= kLists || given[number].bytes.load(std::memory_order_relaxed) > kMostBytes) {
    ::operator delete(memory);
    return;
  }
  auto& [first, bytes] = given[number];
  bytes.store(bytes.load(std::memory_order_relaxed) + (number + 1) * kStep, std::memory_order_relaxed);
  Free* const mine = new (memory) Free{first.load(std::memory_order_relaxed)};
  while (!first.compare_exchange_weak(mine->next, mine, std::memory_order_release, std::memory_order_relaxed)) {
  }
}

} // namespace at::openreg
