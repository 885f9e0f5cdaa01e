#include "simulator/sanitizer/LeakCheck.h"

#include <c10/util/StringUtil.h>

#include <string_view>
#include <utility>

namespace c10::openreg::sanitizer {

void find_leaks(
    Shadow& shadow, const std::map<const void*, Handle>& handles, uint64_t last, std::vector<Report>& found) {
  struct Leak {
    size_t count = 0;
    size_t bytes = 0;
  };
  std::map<std::pair<int, Site>, Leak> leaks; // by the device, -1 for pinned memory, and the line
  for (const auto& [begin, block] : shadow.blocks()) {
    if (block.order != 0 && block.order <= last && !block.is_of_graph) {
      Leak& leak = leaks[{block.device, block.site}];
      ++leak.count;
      leak.bytes += block.size;
    }
  }
  for (const auto& [key, leak] : leaks) {
    const auto [device, site] = key;
    const bool is_pinned = device < 0;
    Report report{.kind = FindingKind::Leak};
    report.problem = c10::str(
        leak.bytes,
        " bytes ",
        is_pinned ? "of pinned memory" : "of device memory",
        " in ",
        leak.count,
        " blocks are still allocated. They were allocated at the line below.");
    Access access{.action = Access::Action::Allocate, .site = site};
    access.name = is_pinned ? "the allocator of pinned memory" : "the device allocator";
    access.device = device;
    access.extent = Extent(nullptr, leak.bytes);
    report.accesses.push_back(access);
    report.remedy =
        "Drop the references to them: lists and caches that grow, closures, reference cycles, stored graphs.";
    found.push_back(std::move(report));
  }
  std::map<std::pair<std::string_view, Site>, size_t> counts;
  for (const auto& [object, handle] : handles) {
    if (handle.order <= last) {
      counts[{handle.name, handle.site}] += handle.openings;
    }
  }
  for (const auto& [key, count] : counts) {
    Report report{.kind = FindingKind::Leak};
    report.problem = c10::str(count, " results of ", key.first, " were never destroyed.");
    report.accesses.push_back({.action = Access::Action::Make, .site = key.second, .name = key.first.data()});
    found.push_back(std::move(report));
  }
}

} // namespace c10::openreg::sanitizer
