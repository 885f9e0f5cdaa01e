#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "Report.h"

// LITERALINCLUDE START: SESSION RULES
// The sanitizer. Between start() and stop() it observes the device (openreg_activity.h), and keeps its findings.
//
// Rules: there is one session at a time. Its lock is a leaf: a thread that holds it waits for nothing. So Python is
// asked for the line of the program before the lock is taken, and for the text of that line after the lock is released.
// If the session raises, a finding about work that begins stops that work. A free and an access of the host cannot
// fail, so a finding about them stops the next work of the same thread. A finding about a kernel that has run is raised
// by the thread that next begins work or waits for the device.
// LITERALINCLUDE END: SESSION RULES
namespace c10::openreg::sanitizer {

enum Check : unsigned { kRace = 1, kInit = 2, kMemory = 4, kLeak = 8 };

// Starts a session. Waits for all devices. Memory that is allocated already counts as written, and never as a leak.
// Throws if a session runs.
OPENREG_API void start(unsigned checks, bool raises);
// Waits for all devices if the session has the check kMemory.
OPENREG_API void stop();
// From now on, findings are only kept.
OPENREG_API void stop_raising();

// A report, in words.
struct Finding {
  std::string kind;
  std::string text;
  struct Part {
    std::string name;   // the name of the operator
    std::string action; // "reads", "writes", "frees", "allocates", "makes"
    std::string stream; // "the default stream of openreg:0", "the host"; for leaks place_of(Access)
    std::string site;   // "train.py:12 in step"
    std::vector<int64_t> shape;
    size_t bytes;
  };
  std::vector<Part> parts;
};

// The findings from number `first` on, of the running session or of the last one. `settles`: a tensor that was freed
// while another stream may use its memory is a finding even if no allocation has reused the memory yet.
OPENREG_API std::vector<Finding> findings(size_t first, bool settles);

// Whether this process ends with the status 1 if it would end with 0. The first call decides the place among the
// functions of atexit(): those that are registered later run as usual, and those that were registered earlier do not
// run if the status changes.
OPENREG_API void fail_at_exit(bool fails);

// Adds a finding for memory and handles that were made during the session and are not released yet.
OPENREG_API void look_for_leaks();

// Sets the function that throws a finding, given by its number. The thread whose work was stopped calls it.
OPENREG_API void set_raiser(void (*raise)(size_t finding));

// Sets the device tensors of the custom operator that the calling thread is in: kernels of the operator that do not
// tell their operands use these. null: the thread is in no custom operator. Returns the previous value.
using CustomOperands = std::vector<std::pair<at::Tensor, bool>>; // true: the operator writes the tensor
OPENREG_API const CustomOperands* exchange_custom_operands(const CustomOperands* operands);

// What the host does with a tensor.
enum class HostUse {
  Computes, // reads the bytes, and computes with them
  Moves,    // reads the bytes, and computes with some of them or with none
  Writes,
  Changes, // computes with the bytes, and writes them
  Exposes, // reads the bytes, and gives them to code that may write them and that the sanitizer does not see
};

// To be called for accesses of the host to pinned memory, which are no activities of the device. Ignores other memory.
OPENREG_API void note_host_access(const char* name, const at::Tensor& tensor, HostUse use);

} // namespace c10::openreg::sanitizer
