#include "simulator/sanitizer/RedZoneWatch.h"

#include <mutex>
#include <utility>
#include <vector>

#include "simulator/ThreadOwned.h"
#include "simulator/sanitizer/Accesses.h"
#include "simulator/sanitizer/MemoryCheck.h"
#include "simulator/sanitizer/SessionState.h"

namespace c10::openreg::sanitizer {
namespace {

// The blocks whose red zones are checked when a kernel ends.
struct Suspects {
  std::vector<uintptr_t> addresses; // an address in each block
  bool all = false;                 // all blocks: the kernel did not tell its operands
};
// One element for each kernel that this thread is in.
thread_local constinit ThreadOwned<std::vector<Suspects>> suspects;

} // namespace

void begin_watch(const orActivity& activity, bool is_outermost) {
  if (is_outermost) {
    suspects->clear(); // left from a session that ended within a kernel
  }
  Suspects& mine = suspects->emplace_back();
  mine.all = !activity.operands;
  for (const Access& access : collect(activity)) {
    mine.addresses.push_back(access.extent.begin);
  }
}

void end_watch(const orActivity& activity, Site site) {
  if (suspects->empty()) { // the kernel began before the session
    return;
  }
  const Suspects mine = std::move(suspects->back());
  suspects->pop_back();
  const std::lock_guard lock(session_mutex);
  if (!session) {
    return;
  }
  const auto launch = session->launches.find(activity.correlation);
  Access kernel{
      .verb = Access::Verb::Write, .name = activity.name, .stream = activity.stream, .device = activity.device};
  kernel.site = site;
  uint64_t order = session->order;
  std::vector<ShadowBlock> launched_with;
  if (launch != session->launches.end()) {
    kernel.site = launch->second.site;
    order = launch->second.order;
    launched_with = std::move(launch->second.blocks);
    session->launches.erase(launch);
  }
  std::vector<Report> found;
  const auto is_damaged = [&](ShadowBlock& block) {
    if (block.order > order) { // allocated after the launch: its pattern may not be written yet
      return false;
    }
    block.is_armed |= block.stream == activity.stream;
    if (!block.has_red_zone || !block.is_armed) {
      return false;
    }
    kernel.extent = repair_red_zone(block);
    return !kernel.extent.empty();
  };
  const auto look = [&](ShadowBlock& block) {
    if (is_damaged(block)) {
      found.push_back(make_overrun(block, kernel));
    }
  };
  if (mine.all) {
    for (auto& [begin, block] : session->shadow.blocks()) {
      look(block);
    }
  }
  for (const uintptr_t address : mine.addresses) {
    if (ShadowBlock* const block = session->shadow.find(address)) {
      look(*block);
    }
  }
  for (ShadowBlock& block : launched_with) {
    const ShadowBlock* const now = session->shadow.find(block.begin);
    const bool is_freed = !now || now->order != block.order;
    if (is_freed && block.stream == activity.stream) { // work of this stream that reuses the memory runs later
      look(block);
    }
  }
  for (const uintptr_t address : mine.addresses) {
    const ShadowBlock* const block = session->shadow.find(address);
    ShadowBlock* const before = block ? session->shadow.find_before(block->begin) : nullptr;
    if (before && red_zone_of(*before).end == block->begin && is_damaged(*before)) {
      found.push_back(make_underrun(*block, kernel));
    }
  }
  if (activity.correlation != 0) { // the kernel was queued, so this thread may be one of the device
    add_late_reports(found);
  } else {
    add_new_reports(found);
  }
}

} // namespace c10::openreg::sanitizer
