#pragma once

#include <c10/util/ApproximateClock.h>
#include <openreg_activity.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

// LITERALINCLUDE START: RECORDER RULES
// What the device did while a profiler was on, in the words of the device: no Kineto here.
//
// Rules: the time is c10::getApproximateTime(), which PyTorch's own events have, so that no kernel begins before the
// operator that started it. A record is written by the thread that computes, into a buffer of its own: nothing is locked
// and nothing is looked up while the program runs. Which operator a kernel belongs to is known on the thread that calls,
// and only there: a kernel on another thread finds it through its correlation, which is the id of the call.
// LITERALINCLUDE END: RECORDER RULES
namespace c10::openreg {

// LITERALINCLUDE START: RECORD
struct ActivityRecord {
  orActivityKind kind; // Kernel, Copy, Fill, Call or Synchronization
  uint64_t id;
  uint64_t correlation; // the id of the call that started it; 0: none
  const char* name;
  int device;
  orStream_t stream; // null: no single stream
  int32_t thread;    // the system's id of the thread that told
  approx_time_t begin;
  approx_time_t end;
  // The innermost operator, and the innermost range of the user (record_function), of the thread that told.
  uint64_t operation;
  uint64_t range;
  // Of copies and fills.
  struct Place {
    orMemoryType type;
    int device;
  } from, to;
  size_t bytes;
};
// LITERALINCLUDE END: RECORD

struct Recording {
  std::vector<ActivityRecord> records;                // in no order
  std::unordered_map<uint64_t, uint64_t> outer_range; // the range around a range
};

// One recording at a time, as PyTorch has one profiler at a time.
void start_recording();
Recording stop_recording();

// The calling thread enters and leaves an operator, or a range of the user.
void push_operation(uint64_t id);
void pop_operation();
void push_range(uint64_t id);
void pop_range();

} // namespace c10::openreg
