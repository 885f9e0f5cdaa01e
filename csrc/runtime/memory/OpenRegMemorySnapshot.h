#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include "runtime/memory/OpenRegBlock.h"

namespace c10::openreg {

using c10::CachingDeviceAllocator::SegmentInfo;
using c10::CachingDeviceAllocator::TraceEntry;

// What the allocator holds, and its history if that was asked for: torch.openreg.memory._snapshot().
struct MemorySnapshot {
  std::vector<SegmentInfo> segments;                  // of all devices, by address
  std::vector<std::vector<TraceEntry>> device_traces; // by device, oldest entry first
};

// The segment whose first block is `first`.
SegmentInfo segment_info(const Block* first);

} // namespace c10::openreg
