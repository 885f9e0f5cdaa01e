#include "simulator/sanitizer/RaceCheck.h"

#include <c10/util/StringUtil.h>

#include <algorithm>

namespace c10::openreg::sanitizer {
namespace {

// How many accesses to one block are kept. A program that writes a buffer piece by piece may have more. Then the oldest
// are forgotten, and a race may be missed.
constexpr size_t kMostAccesses = 4096;

std::string who(const Access& access) {
  return name_of_stream(access.stream, access.device);
}

// `orders`: "nothing orders", and what does not.
Report make_race(const ShadowBlock& block, const Access& now, const Access& before, bool is_host, const char* orders) {
  const bool reads = !now.writes();
  Report report{.kind = FindingKind::Race, .accesses = {now, before}, .block = block.size, .allocated = block.site};
  report.problem = c10::str(
      now.name,
      reads ? " reads what " : " overwrites what ",
      before.name,
      before.writes() ? (reads ? " may not have written yet" : " may still be writing") : " may still be reading",
      is_host ? c10::str(": the host does not wait for ", who(before), ".")
              : c10::str(": ", orders, " ", who(now), " after ", who(before), "."));
  report.remedy = is_host ? c10::str(
                                "Let the host wait between the two accesses: call event.synchronize() for an event "
                                "that was recorded after ",
                                before.name,
                                ", or stream.synchronize() for ",
                                who(before),
                                ".")
                          : c10::str(
                                "Order them: between the two accesses, with A = ",
                                who(now),
                                " and B = ",
                                who(before),
                                ", call A.wait_stream(B), or A.wait_event(event) with an event that B recorded after ",
                                before.name,
                                ".");
  return report;
}

} // namespace

void find_races(const ShadowBlock& block, const Access& access, const Clocks& clocks, std::vector<Report>& found) {
  for (const Access& each : block.accesses) {
    if (!clocks.is_before(each.actor, each.time, access.actor) && (access.writes() || each.writes()) &&
        access.extent.overlaps(each.extent)) {
      found.push_back(make_race(block, access, each, access.actor == kHost, "nothing orders"));
    }
  }
}

Report make_race_in_graph(const ShadowBlock& block, const Access& now, const Access& before) {
  Report report = make_race(block, now, before, false, "at each replay, nothing in the graph orders");
  if (block.is_of_graph) { // the block is a segment, which no line of the program has allocated
    report.block = 0;
  }
  return report;
}

void keep_access(ShadowBlock& block, Access access, const Clocks& clocks) {
  auto& accesses = block.accesses;
  bool is_known = false; // an earlier write of the same kernel, copy or fill covers this access
  std::erase_if(accesses, [&](const Access& each) {
    if (each.actor == access.actor && each.time == access.time && each.writes() && each.extent.covers(access.extent)) {
      is_known = true;
      return false;
    }
    // `each` is dropped if `access` covers its bytes and can stand for it in later comparisons. If `each` is ordered
    // before `access`, whoever waits for `access` has waited for `each`, too; but a read cannot stand for a write,
    // because two reads are no race. If the two are not ordered and one of them writes, find_races() has just reported
    // them, and without `each` the same bytes are not reported again.
    const bool is_replaced = clocks.is_before(each.actor, each.time, access.actor) ? access.writes() || !each.writes()
                                                                                   : access.writes() || each.writes();
    return is_replaced && access.extent.covers(each.extent);
  });
  if (is_known) {
    return;
  }
  if (accesses.size() >= kMostAccesses) { // work that the host knows to be done is ordered before all later work
    std::erase_if(accesses, [&](const Access& each) { return clocks.is_before(each.actor, each.time, kHost); });
  }
  if (accesses.size() >= kMostAccesses) {
    accesses.erase(accesses.begin(), accesses.begin() + kMostAccesses / 2);
  }
  accesses.push_back(std::move(access));
}

bool may_be_written(const ShadowBlock& block, const Extent& extent, const Clocks& clocks) {
  return std::any_of(block.accesses.begin(), block.accesses.end(), [&](const Access& each) {
    return each.writes() && !clocks.is_before(each.actor, each.time, kHost) && each.extent.overlaps(extent);
  });
}

std::vector<Access> find_users(const ShadowBlock& block, const Access& the_free, const Clocks& clocks) {
  std::vector<Access> users;
  for (const Access& each : block.accesses) {
    const bool is_recorded = // record_stream() was called with the stream
        std::find(block.users.begin(), block.users.end(), each.actor) != block.users.end();
    if (each.actor != kHost && !is_recorded && !clocks.is_before(each.actor, each.time, the_free.actor)) {
      users.push_back(each);
    }
  }
  return users;
}

Report make_early_free(const Access& the_free, const Access& user, size_t size, Site allocated) {
  Report report{.kind = FindingKind::Race, .accesses = {the_free, user}, .block = size, .allocated = allocated};
  if (the_free.device < 0) {
    report.problem = c10::str(
        "pinned memory is freed while ", user.name, " on ", who(user), " may still use it. The memory may be reused.");
    report.remedy = c10::str("Keep the tensor until the host has waited for ", who(user), ".");
    return report;
  }
  report.problem = c10::str(
      "a tensor is freed while ",
      user.name,
      " on ",
      who(user),
      " may still use its memory. The memory may be reused on ",
      who(the_free),
      ".");
  report.remedy = c10::str(
      "With A = ",
      who(the_free),
      " and B = ",
      who(user),
      ", call tensor.record_stream(B) or A.wait_stream(B) before the tensor is freed.");
  return report;
}

} // namespace c10::openreg::sanitizer
