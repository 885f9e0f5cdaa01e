#pragma once

#include <map>
#include <vector>

#include "Bytes.h"
#include "Report.h"

// What the sanitizer knows about each block of memory, on the device and in pinned memory.
namespace c10::openreg::sanitizer {

struct Block {
  uintptr_t begin = 0;
  size_t size = 0;
  orStream_t stream = nullptr; // the stream that the block belongs to; null: none
  int device = -1;             // -1: pinned memory
  Site site = 0;               // where it was allocated
  uint64_t order = 0;          // the number of its allocation; 0: before the session
  std::vector<Access> accesses;
  std::vector<Actor> users; // the streams that record_stream() was called with
  Bytes unwritten;
  bool has_red_zone = false;
  bool is_armed = false; // a kernel has run on the block's stream, so the pattern has been written
};

class Shadow {
 public:
  // Adds a block that was allocated, and forgets the blocks that were at the same addresses.
  Block& add(const void* address, size_t size);
  void remove(const Block& block, Site freed);
  // The block that contains the address; null if there is none.
  Block* find(uintptr_t address);
  std::map<uintptr_t, Block>& blocks() {
    return blocks_;
  }

  struct Freed {
    size_t size;
    Site allocated;
    Site freed;
  };
  // The block that contained the address, if it was freed and the memory was not allocated again; otherwise null.
  const Freed* find_freed(uintptr_t address) const;

 private:
  std::map<uintptr_t, Block> blocks_;
  std::map<uintptr_t, Freed> freed_;
  Block* last_ = nullptr;
};

} // namespace c10::openreg::sanitizer
