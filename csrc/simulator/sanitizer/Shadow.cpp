#include "simulator/sanitizer/Shadow.h"

namespace c10::openreg::sanitizer {

ShadowBlock& Shadow::add(const void* address, size_t size) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  forget(begin, size); // blocks that were freed without an activity
  ShadowBlock& block = blocks_[begin] = ShadowBlock{};
  block.begin = begin;
  block.size = size;
  return block;
}

void Shadow::forget(uintptr_t begin, size_t size) {
  last_ = nullptr;
  auto next = blocks_.lower_bound(begin);
  while (next != blocks_.end() && next->first < begin + size) {
    next = blocks_.erase(next);
  }
  forget_freed(begin, size);
}

void Shadow::forget_unwritten(uintptr_t begin, size_t size) {
  for (auto next = blocks_.lower_bound(begin); next != blocks_.end() && next->first < begin + size; ++next) {
    next->second.unwritten = {};
  }
}

void Shadow::forget_freed(uintptr_t begin, size_t size) {
  auto freed = freed_.lower_bound(begin);
  if (freed != freed_.begin() && std::prev(freed)->first + std::prev(freed)->second.size > begin) {
    --freed;
  }
  while (freed != freed_.end() && freed->first < begin + size) {
    freed = freed_.erase(freed);
  }
}

void Shadow::remove(const ShadowBlock& block, Site freed) {
  last_ = nullptr;
  const uintptr_t begin = block.begin;
  freed_[begin] = {block.size, block.site, freed};
  blocks_.erase(begin);
}

const Shadow::Freed* Shadow::find_freed(uintptr_t address) const {
  const auto next = freed_.upper_bound(address);
  if (next == freed_.begin() || address - std::prev(next)->first >= std::prev(next)->second.size) {
    return nullptr;
  }
  return &std::prev(next)->second;
}

ShadowBlock* Shadow::find_before(uintptr_t address) {
  const auto next = blocks_.lower_bound(address);
  return next == blocks_.begin() ? nullptr : &std::prev(next)->second;
}

ShadowBlock* Shadow::find(uintptr_t address) {
  if (last_ && address - last_->begin < last_->size) {
    return last_;
  }
  auto next = blocks_.upper_bound(address);
  if (next == blocks_.begin()) {
    return nullptr;
  }
  ShadowBlock& block = std::prev(next)->second;
  return address - block.begin < block.size ? last_ = &block : nullptr;
}

} // namespace c10::openreg::sanitizer
