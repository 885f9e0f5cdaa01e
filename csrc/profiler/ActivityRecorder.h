#pragma once

#include <c10/util/ApproximateClock.h>
#include <openreg_activity.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

// LITERALINCLUDE START: RECORDER RULES
// Records the activities of the device while a profiler is on. This file knows the device's terms only, and nothing of
// Kineto.
//
// Rules: the clock is c10::getApproximateTime(), which PyTorch's own events use. So no kernel begins before the
// operator that started it. The computing thread writes a record into a buffer of its own. A lock is taken only for a
// thread's first record, and for copies and fills, whose memory is looked up in the device library's tables. Only the
// thread that calls an operator knows to which operator a kernel belongs. The record of a kernel on another thread has
// the id of the call as its correlation, and the record of the call has the operator. The end of a collective comes on
// another thread than its begin: the two are joined when the recording stops.
// LITERALINCLUDE END: RECORDER RULES
namespace c10::openreg {

// LITERALINCLUDE START: RECORD
struct ActivityRecord {
  orActivityKind kind; // Kernel, Copy, Fill, Call or Synchronization
  uint64_t id;
  uint64_t correlation; // the id of the call that started the activity; 0: none
  const char* name;
  int device;
  orStream_t stream; // null: the activity belongs to no single stream
  int32_t thread;    // the system's id of the thread that did the activity
  approx_time_t begin;
  approx_time_t end;
  int32_t began_on;   // the thread on which the activity began; differs from `thread` if it ended on another thread
  uint64_t operation; // the innermost operator on the thread `began_on`; 0: none
  // For copies and fills.
  struct Endpoint {
    orMemoryType type;
    int device;
  } from, to;
  size_t bytes;
};
// LITERALINCLUDE END: RECORD

struct Recording {
  std::vector<ActivityRecord> records;                       // not sorted
  std::unordered_map<int32_t, std::vector<uint64_t>> ranges; // by thread: the ranges that began on it
};

// There is one recording at a time, as PyTorch has one profiler at a time.
void start_recording();
Recording stop_recording();

// To be called when the calling thread enters or leaves an operator, or when it begins a range of the user
// (record_function). No function is called at the end of a range: ranges need not nest, and may end on other threads.
void push_operation(uint64_t id);
void pop_operation();
void begin_range(uint64_t id);

} // namespace c10::openreg
