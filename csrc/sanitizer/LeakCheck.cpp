#include "LeakCheck.h"

#include <c10/util/StringUtil.h>

#include <string>
#include <utility>

namespace c10::openreg::sanitizer {

void find_leaks(Shadow& shadow, const std::map<const void*, Handle>& handles, std::vector<Report>& found) {
  struct Leak {
    size_t count = 0;
    size_t bytes = 0;
  };
  std::map<std::pair<bool, Site>, Leak> leaks; // whether the memory is pinned, and its line
  for (const auto& [begin, block] : shadow.blocks()) {
    if (block.order != 0) {
      Leak& leak = leaks[{block.device < 0, block.site}];
      ++leak.count;
      leak.bytes += block.size;
    }
  }
  for (const auto& [key, leak] : leaks) {
    const char* const what = key.first ? "of pinned memory" : "of device memory";
    Report report{.kind = Kind::Leak};
    report.problem = c10::str(
        leak.bytes,
        " bytes ",
        what,
        " in ",
        leak.count,
        " blocks are still allocated. They were allocated at the line below.");
    Access access{.verb = Access::Verb::Write, .site = key.second, .name = key.first ? "pinned memory" : "a tensor"};
    access.extent = Extent(nullptr, leak.bytes);
    report.accesses.push_back(access);
    report.remedy =
        "Drop the references to them: lists and caches that grow, closures, reference cycles, stored graphs.";
    found.push_back(std::move(report));
  }
  std::map<std::pair<std::string, Site>, size_t> counts;
  for (const auto& [object, handle] : handles) {
    ++counts[{handle.name, handle.site}];
  }
  for (const auto& [key, count] : counts) {
    Report report{.kind = Kind::Leak};
    report.problem = c10::str(count, " results of ", key.first, " were never destroyed.");
    Access access{.verb = Access::Verb::Write, .site = key.second, .name = "a handle"};
    report.accesses.push_back(access);
    found.push_back(std::move(report));
  }
}

} // namespace c10::openreg::sanitizer
