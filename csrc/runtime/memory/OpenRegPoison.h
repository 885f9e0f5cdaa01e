#pragma once

#include "runtime/memory/OpenRegBlock.h"

// OPENREG_POISON: every byte of memory that is new or free is 0xFF. A program that reads memory before it writes to it
// gets NaN as a floating-point number and -1 as a signed integer.
namespace c10::openreg {

bool poison_is_on();

// Fills memory now. For memory that a kernel of the calling thread uses next.
void poison_now(const char* address, size_t size);

// Queues the fill of a block on the block's stream, as a kernel would be. If the calling thread's kernel has the turn
// of that stream, the fill runs at once.
void queue_poison(const Block* block);

} // namespace c10::openreg
