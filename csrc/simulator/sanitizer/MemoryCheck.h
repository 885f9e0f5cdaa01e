#pragma once

#include <atomic>
#include <unordered_map>
#include <vector>

#include "simulator/sanitizer/Shadow.h"

// The memory check: a kernel writes past the end of a block, or uses a block that was freed.
//
// Rules: behind each block is a red zone: bytes that belong to no tensor and hold a pattern. When a kernel that may
// have changed the pattern ends, the pattern is compared. Behind a block of more than 1 MiB that fills its segment
// there is a guard (orSetGuardSize) too: a kernel that reads or writes there faults. Other accesses further away are
// not found.
namespace c10::openreg::sanitizer {

constexpr size_t kRedZone = 512; // the least size of a red zone in bytes

// What the caching allocator adds to the size of a block: kRedZone or 0.
extern std::atomic<size_t> red_zone;

// Whether blocks that are allocated from now on have red zones and guards.
void watch_ends_of_blocks(bool watch);

// The red zone of a block.
Extent red_zone_of(const ShadowBlock& block);

// Queues a fill of the red zone with the pattern on the block's stream. Do not call it under a lock.
void fill_red_zone(const Extent& zone, orStream_t stream);

// The bytes of the block's red zone from the first to the last that has lost the pattern; empty if there is none.
// Restores the pattern.
Extent repair_red_zone(const ShadowBlock& block);

// The kernel has changed bytes behind the block.
Report make_overrun(const ShadowBlock& block, const Access& kernel);
// The kernel has changed bytes before the block. These bytes are the red zone of another block.
Report make_underrun(const ShadowBlock& block, const Access& kernel);
// A kernel, copy or fill begins, and its operand does not end within the block.
Report make_out_of_bounds(const ShadowBlock& block, const Access& access);
Report make_use_after_free(const Access& access, size_t size, Site allocated, Site freed);

} // namespace c10::openreg::sanitizer
