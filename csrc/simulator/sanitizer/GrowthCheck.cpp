#include "simulator/sanitizer/GrowthCheck.h"

#include <algorithm>
#include <bit>

namespace c10::openreg::sanitizer {
namespace {

constexpr uint64_t kSlack = 1;
constexpr size_t kLeastRounds = 5;

} // namespace

GrowthCheck::Key GrowthCheck::key_of(const ShadowBlock& block) {
  return {block.device, block.site, std::bit_width(block.size)};
}

void GrowthCheck::enter(Site outer) {
  if (outer != 0 && outer != outer_) {
    outer_ = outer;
    ++visit_;
  }
}

void GrowthCheck::note_allocation(ShadowBlock& block) {
  if (block.site == 0) {
    return;
  }
  PiledUp& line = lines_[key_of(block)];
  if (line.round == 0 || line.visit != visit_) {
    ++line.round;
    line.visit = visit_;
  }
  block.round = block.last_use = line.round;
}

void GrowthCheck::note_use(ShadowBlock& block) {
  if (block.round != 0) {
    block.last_use = lines_[key_of(block)].round;
  }
}

void GrowthCheck::note_free(const ShadowBlock& block) {
  if (block.round != 0) {
    PiledUp& line = lines_[key_of(block)];
    line.add(block, line.round);
  }
}

// `freed`: the round in which the block is freed.
void GrowthCheck::PiledUp::add(const ShadowBlock& block, uint64_t freed) {
  if (is_no_leak || freed - block.round <= kSlack) {
    return;
  }
  rounds.insert(block.round);
  first_free = std::min(first_free, freed);
  ++blocks;
  bytes += block.size;
  if (block.last_use - block.round > kSlack || first_free < *rounds.rbegin()) {
    is_no_leak = true;
    rounds.clear();
  }
}

std::vector<GrowthCheck::Growing> GrowthCheck::find(Shadow& shadow, const std::set<uintptr_t>& owned) const {
  std::set<uintptr_t> left_out;
  for (const uintptr_t address : owned) {
    if (const ShadowBlock* const block = shadow.find(address)) {
      left_out.insert(block->begin);
    }
  }
  std::map<Key, PiledUp> lines = lines_;
  for (const auto& [begin, block] : shadow.blocks()) {
    if (block.round != 0 && !left_out.contains(begin)) {
      lines[key_of(block)].add(block, UINT64_MAX);
    }
  }
  std::vector<Growing> found;
  for (const auto& [key, line] : lines) {
    if (line.rounds.size() >= kLeastRounds) {
      found.push_back({std::get<0>(key), std::get<1>(key), line.rounds.size(), line.blocks, line.bytes});
    }
  }
  return found;
}

} // namespace c10::openreg::sanitizer
