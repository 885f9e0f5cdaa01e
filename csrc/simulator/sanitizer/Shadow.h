#pragma once

#include <map>
#include <vector>

#include "simulator/sanitizer/Bytes.h"
#include "simulator/sanitizer/Report.h"

// What the sanitizer knows about each block of memory, on the device and in pinned memory. A Site is a line of the
// program (Site.h), an Actor is a stream or the host (Clocks.h), an Access is one use of the memory (Report.h).
namespace c10::openreg::sanitizer {

// What the sanitizer knows of a block. This is not the allocator's own Block (OpenRegCachingAllocator.h): the sanitizer
// knows only what the activities name.
struct ShadowBlock {
  uintptr_t begin = 0;
  size_t size = 0;
  orStream_t stream = nullptr; // the stream that the block belongs to; null: none
  int device = -1;             // -1: pinned memory
  Site site = 0;               // where it was allocated
  // 1 for the allocators' first block of the session, and so on. 0: allocated before the session, or memory of
  // orMalloc() or orIpcOpenMemHandle(), which the leak check counts as a handle.
  uint64_t order = 0;
  uint64_t round = 0;    // of the line, when it allocated the block (GrowthCheck.h); 0: that check leaves the block out
  uint64_t last_use = 0; // the round of the line when the block was last used
  std::vector<Access> accesses;
  std::vector<Actor> users; // the streams that record_stream() was called with
  Bytes unwritten;          // the bytes that nobody has written since the allocation (the init check)
  bool is_of_graph = false; // a segment of graphs (Replays.h)
  uint64_t last_write = 0;  // SessionState::writes at the last write
  bool has_red_zone = false;
  // Whether the red zone can be checked: a kernel that was launched after the allocation has ended on the block's
  // stream, so the fill of the red zone, which was queued before it, has run.
  bool is_armed = false;
};

class Shadow {
 public:
  // Adds a block that was allocated, and forgets the blocks that were at the same addresses.
  ShadowBlock& add(const void* address, size_t size);
  // Forgets all blocks in this range.
  void forget(uintptr_t begin, size_t size);
  // Forgets the freed blocks in this range, because the memory was allocated again.
  void forget_freed(uintptr_t begin, size_t size);
  // Removes the block, and remembers that the line `freed` of the program freed it.
  void remove(const ShadowBlock& block, Site freed);
  // The block that contains the address; null if there is none.
  ShadowBlock* find(uintptr_t address);
  // The block with the highest address below `address`; null if there is none.
  ShadowBlock* find_before(uintptr_t address);
  // The bytes of all blocks in this range count as written.
  void forget_unwritten(uintptr_t begin, size_t size);
  std::map<uintptr_t, ShadowBlock>& blocks() {
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
  std::map<uintptr_t, ShadowBlock> blocks_;
  std::map<uintptr_t, Freed> freed_;
  ShadowBlock* last_ = nullptr; // the last result of find(): the next access is often to the same block
};

} // namespace c10::openreg::sanitizer
