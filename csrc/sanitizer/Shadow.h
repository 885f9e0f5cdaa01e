#pragma once

#include <map>
#include <vector>

#include "Bytes.h"
#include "Report.h"

// What is known of every block of memory: of the device, and pinned memory of the host.
namespace c10::openreg::sanitizer {

struct Block {
  uintptr_t begin = 0;
  size_t size = 0;
  orStream_t stream = nullptr; // that it belongs to; null: none
  int device = -1;             // -1: pinned memory
  Site site = 0;               // where it was allocated
  uint64_t order = 0;          // of its allocation; 0: before the sanitizer began
  std::vector<Access> accesses;
  std::vector<Actor> users; // streams that record_stream() has named
  Bytes unwritten;
  bool has_red_zone = false;
  bool is_armed = false; // a kernel of the block's stream has run, and so the pattern was written before
};

class Shadow {
 public:
  // A block of the allocator. Forgets what was there before.
  Block& add(const void* address, size_t size);
  void remove(const Block& block, Site freed);
  // The block that the address lies in; null: none.
  Block* find(uintptr_t address);
  std::map<uintptr_t, Block>& blocks() {
    return blocks_;
  }

  struct Freed {
    size_t size;
    Site allocated;
    Site freed;
  };
  // The block that the address lay in, if it was given back and not handed out again; null: none.
  const Freed* find_freed(uintptr_t address) const;

 private:
  std::map<uintptr_t, Block> blocks_;
  std::map<uintptr_t, Freed> freed_;
  Block* last_ = nullptr;
};

} // namespace c10::openreg::sanitizer
