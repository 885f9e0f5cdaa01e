#pragma once

#include <atomic>

// Errors of queued work that only an observer of the device finds, such as the sanitizer.
namespace c10::openreg {

// The observer's function: throws what it has found in work that has run, or returns. Null: nobody looks.
inline std::atomic<void (*)()> late_error_source{nullptr};

// To be called after the program has waited for the device, without a lock.
inline void throw_late_error() {
  if (const auto source = late_error_source.load(std::memory_order_relaxed)) {
    source();
  }
}

} // namespace c10::openreg
