#pragma once

#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "simulator/sanitizer/Shadow.h"

// Memory that piles up although the program can reach it, in a loop that no optimizer divides into steps: in each round
// of the loop a line allocates memory, which is kept and which nobody uses any more.
//
// Rules: `outer` is the innermost line of the program outside of all modules. A line that allocates begins a round if
// `outer` has changed since its last allocation. So the layers that a module calls in a loop belong to one round, and
// so do all tensors that one statement makes. A block is idle if its line has begun more than kSlack rounds after its
// last use. A line leaks if the idle blocks of at least kLeastRounds rounds exist at the same time. It does not leak if
// any block was used again after so many rounds: the program collects results, or has a cache.
namespace c10::openreg::sanitizer {

class GrowthCheck {
 public:
  // The program allocates memory or launches work in this line (Site.h). 0 changes nothing.
  void enter(Site outer);
  void note_allocation(ShadowBlock& block);
  void note_use(ShadowBlock& block);
  void note_free(const ShadowBlock& block);

  struct Growing {
    int device; // -1: pinned memory
    Site site;  // of the allocations
    size_t rounds;
    size_t blocks;
    size_t bytes;
  };
  // The lines that leak. `owned`: addresses in blocks that exist and are no leak: parameters, for example.
  std::vector<Growing> find(Shadow& shadow, const std::set<uintptr_t>& owned) const;

 private:
  // The allocations of one line whose sizes are about the same. A line often makes a loss, and what backward() needs.
  struct PiledUp {
    uint64_t round = 0;
    uint64_t visit = 0; // of the last allocation
    bool is_no_leak = false;
    uint64_t first_free = UINT64_MAX; // the round in which the first idle block was freed
    std::set<uint64_t> rounds;        // of the idle blocks
    size_t blocks = 0;
    size_t bytes = 0;

    void add(const ShadowBlock& block, uint64_t freed);
  };
  using Key = std::tuple<int, Site, int>; // the device, the line, and the number of bits of the size

  std::map<Key, PiledUp> lines_;
  Site outer_ = 0;
  uint64_t visit_ = 0; // how often `outer` has changed

  static Key key_of(const ShadowBlock& block);
};

} // namespace c10::openreg::sanitizer
