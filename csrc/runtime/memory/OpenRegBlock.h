#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <memory>
#include <vector>

namespace c10::openreg {

class BlockPool;

// A piece of a segment of device memory, allocated or free. The blocks of a segment form a list in the order of their
// addresses. A segment is what one orMalloc() gave.
struct Block {
  char* address; // in the device window (openreg.h, section Memory)
  size_t size;
  DeviceIndex device;
  BlockPool* pool;
  size_t requested_size = 0;
  size_t red_zone = 0;   // the last bytes of `size`, which the sanitizer watches (OpenRegRedZone.h)
  uint64_t freed_at = 0; // The pool's count of searches when the block became free. The block's age follows from it.
  bool allocated = false;
  bool binned = false;        // free, and in one of its pool's bins, where neighbours are not merged
  bool poison_queued = false; // free, and its poison fill is queued but not done
  int event_count = 0;        // free, but this many events must pass before the block may be reused
  Block* previous = nullptr;
  Block* next = nullptr;
  Block* next_in_bin = nullptr;
  std::vector<Stream> stream_uses;                                 // the streams that recordStream() named
  std::shared_ptr<GatheredContext> context_when_allocated;         // null if the history does not record it
  std::shared_ptr<GatheredContext> context_when_segment_allocated; // only in the first block of a segment

  Block(char* address, size_t size, DeviceIndex device, BlockPool* pool)
      : address(address), size(size), device(device), pool(pool) {}

  // The size that the statistics count. It leaves out the red zone, so the sanitizer does not change the statistics.
  size_t counted_size() const {
    return size - red_zone;
  }
  bool is_split() const {
    return previous || next;
  }
};

struct BlockComparatorSize {
  bool operator()(const Block* a, const Block* b) const {
    return a->size != b->size ? a->size < b->size : a->address < b->address;
  }
};

// Every block of a device by its address, allocated or free.
using BlockTable = ska::flat_hash_map<char*, Block*>;

} // namespace c10::openreg
