#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "Report.h"

// LITERALINCLUDE START: SESSION RULES
// The sanitizer. Between start() and stop() it observes the device (openreg_activity.h) and keeps what it finds.
//
// Rules: one session at a time. Its lock is a leaf: Python is asked for the line before the lock is taken, and for words
// after. A finding about work that begins stops that work, if the session raises; a finding about what cannot fail (a free,
// an access of the host) stops the next work of its thread.
// LITERALINCLUDE END: SESSION RULES
namespace c10::openreg::sanitizer {

enum Check : unsigned { kRace = 1, kInit = 2, kMemory = 4, kLeak = 8 };

// Waits for all devices. Memory that is allocated already counts as written, and as no leak.
OPENREG_API void start(unsigned checks, bool raises);
OPENREG_API void stop();

// A report in words.
struct Finding {
  std::string kind;
  std::string text;
  struct Part {
    std::string name;   // of the operator
    std::string action; // "reads", "writes", "frees"
    std::string stream; // "the default stream of openreg:0", "the host"
    std::string site;   // "train.py:12 in step"
    std::vector<int64_t> shape;
    size_t bytes;
  };
  std::vector<Part> parts;
};

// All findings from number `first` on, of the session that runs or was the last one. `settles`: a tensor whose memory
// nobody has reused yet counts as freed too early, too.
OPENREG_API std::vector<Finding> findings(size_t first, bool settles);

// Memory and handles that were made during the session and are still there.
OPENREG_API void look_for_leaks();

// What throws a finding, by its number. Called by the thread whose work was stopped.
OPENREG_API void set_raiser(void (*raise)(size_t finding));

// The device tensors of the custom operator that the calling thread is in, for kernels that do not say what they touch; null:
// none. Returns the previous ones.
using CustomOperands = std::vector<std::pair<at::Tensor, bool>>; // and whether the operator writes it
OPENREG_API const CustomOperands* exchange_custom_operands(const CustomOperands* operands);

// For the host's own accesses to pinned memory, which pass no kernel.
OPENREG_API void note_host_access(const char* name, const at::Tensor& tensor, bool writes);

} // namespace c10::openreg::sanitizer
