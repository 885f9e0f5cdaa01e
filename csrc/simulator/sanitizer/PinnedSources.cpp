#include "simulator/sanitizer/PinnedSources.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstring>

namespace c10::openreg::sanitizer {
namespace {

uint64_t checksum_of(const Extent& extent) {
  constexpr uint64_t kPrime = 0x100000001b3; // of the hash FNV-1a
  uint64_t sum = 0xcbf29ce484222325;
  extent.for_each_run([&](uintptr_t begin, uintptr_t end) {
    for (; begin < end; begin += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, reinterpret_cast<const void*>(begin), std::min<size_t>(sizeof(word), end - begin));
      sum = (sum ^ word) * kPrime;
    }
  });
  return sum;
}

// Whether the memory is still pinned. A library may have freed it without a call that the sanitizer sees.
bool is_pinned(const Extent& extent) {
  orPointerAttributes attributes{};
  orPointerGetAttributes(&attributes, reinterpret_cast<const void*>(extent.begin));
  return attributes.type == orMemoryTypeHost &&
         extent.end <= reinterpret_cast<uintptr_t>(attributes.base) + attributes.size;
}

Report make_early_write(const Access& read, const Access& exposed) {
  Access write{.action = Access::Action::Write, .name = "the host"};
  write.extent = read.extent;
  write.site = exposed.site;
  Report report{.kind = FindingKind::Race, .accesses = {write, read}};
  report.problem = c10::str(
      "the host has overwritten pinned memory that ",
      read.name,
      " may still be reading, before it waited for ",
      name_of_stream(read.stream, read.device),
      ".");
  report.details = exposed.site != 0
                       ? c10::str(
                             "\n  The write was no operator. ",
                             exposed.name,
                             " gave out the memory, at ",
                             describe(exposed.site),
                             ".")
                       : "\n  The write was no operator, so its line is not known. It happened after the copy's line.";
  report.remedy = c10::str(
      "Let the host wait before it writes: call event.synchronize() for an event that was recorded after ",
      read.name,
      ".");
  return report;
}

} // namespace

void PinnedSources::add(const Access& read) {
  sources_.push_back({read, checksum_of(read.extent), {}});
}

void PinnedSources::expose(const Access& exposed) {
  for (Source& each : sources_) {
    if (each.read.extent.overlaps(exposed.extent)) {
      each.exposed = exposed;
    }
  }
}

template <class Fn>
void PinnedSources::check_if(const Fn& fn, std::vector<Report>& found) {
  std::erase_if(sources_, [&](const Source& each) {
    const bool is_due = fn(each.read);
    if (is_due && is_pinned(each.read.extent) && checksum_of(each.read.extent) != each.checksum) {
      found.push_back(make_early_write(each.read, each.exposed));
    }
    return is_due;
  });
}

void PinnedSources::check_overlapping(const Extent& extent, std::vector<Report>& found) {
  check_if([&](const Access& read) { return read.extent.overlaps(extent); }, found);
}

void PinnedSources::check_done(const Clocks& clocks, std::vector<Report>& found) {
  check_if([&](const Access& read) { return clocks.is_before(read.actor, read.time, kHost); }, found);
}

void PinnedSources::check_all(std::vector<Report>& found) {
  check_if([](const Access&) { return true; }, found);
}

void PinnedSources::forget(const Extent& extent) {
  std::erase_if(sources_, [&](const Source& each) { return each.read.extent.overlaps(extent); });
}

} // namespace c10::openreg::sanitizer
