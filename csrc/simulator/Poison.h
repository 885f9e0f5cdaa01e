#pragma once

#include <c10/core/Stream.h>
#include <openreg.h>

// OPENREG_POISON: every byte of device memory that is new or free is 0xFF. A program that reads memory before it writes
// to it gets NaN as a floating-point number and -1 as a signed integer.
namespace c10::openreg {

bool poison_is_on();

// Fills memory now: new memory, which nobody uses yet.
void poison(const void* address, size_t size);

// Queues the fill of freed memory of `stream`, as a kernel would be. If the calling thread's kernel has the turn of the
// stream, the fill runs at once. Returns an event that passes when the memory is filled, or null if it is filled
// already. Until then a kernel that runs on its launching thread must not get the memory.
orEvent_t queue_poison(void* address, size_t size, Stream stream);

} // namespace c10::openreg
