#include "simulator/sanitizer/Site.h"

#include <atomic>

#include "runtime/OpenRegFixedLine.h"

namespace c10::openreg::sanitizer {
namespace {

std::atomic<std::string (*)(Site)> describe_site{nullptr};

} // namespace

void set_site_source(SiteSource source) {
  line_source = source.take;
  describe_site = source.describe;
}

Site current_site() {
  if (fixed_line.is_fixed) {
    return fixed_line.line;
  }
  const auto fn = line_source.load(std::memory_order_relaxed);
  return fn ? fn() : 0;
}

std::string describe(Site site) {
  const auto fn = describe_site.load();
  return fn && site != 0 ? fn(site) : "an unknown line";
}

} // namespace c10::openreg::sanitizer
