#pragma once

#include <cstdint>

#include "../queues.h"

// HARDWARE: the driver's streams and events, such as cudaStreamCreate and cudaEventRecord.
namespace abacus {

// A place in a queue: behind its first `count` pieces of work.
struct Mark {
  int64_t queue;
  int64_t count;
};

// Queue 0 is always there. Each thread has a current queue, at first queue 0.
int64_t new_queue();
int64_t current_queue();
void set_current_queue(int64_t queue);

// For tests: while a queue is held, it begins no work. On hardware, a kernel that waits for a flag of the host does this.
void hold(int64_t queue, bool held);

Mark mark(int64_t queue); // behind all work that is in the queue now
bool reached(Mark mark);
void wait_for(Mark mark);                     // on the host
void wait_in_queue(int64_t queue, Mark mark); // later work of `queue` waits

} // namespace abacus
