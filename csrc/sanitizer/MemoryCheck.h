#pragma once

#include <unordered_map>
#include <vector>

#include "Shadow.h"

// LITERALINCLUDE START: MEMORY RULES
// The memory check: a kernel writes past the end of a block, or uses a block that was given back.
//
// Rules: behind every block lie bytes that belong to nobody (OpenRegRedZone.h) and hold a pattern, which is looked at when a
// kernel that may have changed it ends. A write further away is not seen.
// LITERALINCLUDE END: MEMORY RULES
namespace c10::openreg::sanitizer {

constexpr size_t kRedZone = 512; // bytes, at least

// Where the red zone of a block lies.
Extent red_zone_of(const Block& block);

// Queues the pattern on the block's stream. Not under a lock.
void fill_red_zone(const Extent& zone, orStream_t stream);

// Whether the block's red zone still has its pattern. If not, it gets the pattern back.
bool is_red_zone_whole(const Block& block);

Report make_overrun(const Block& block, const Access& kernel);
Report make_use_after_free(const Access& access, size_t size, Site allocated, Site freed);

} // namespace c10::openreg::sanitizer
