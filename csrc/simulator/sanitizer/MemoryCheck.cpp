#include "simulator/sanitizer/MemoryCheck.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <iterator>

namespace c10::openreg::sanitizer {
namespace {

constexpr unsigned char kPattern = 0xA5;
constexpr size_t kGuard = size_t{2} << 20; // bytes of addresses, which need no memory

unsigned char* bytes_of(const Extent& zone) {
  return static_cast<unsigned char*>(orGetKernelPointer(reinterpret_cast<const void*>(zone.begin)));
}

} // namespace

std::atomic<size_t> red_zone{0};

void watch_ends_of_blocks(bool watch) {
  red_zone = watch ? kRedZone : 0;
  OPENREG_CHECK(orSetGuardSize(watch ? kGuard : 0));
}

Extent red_zone_of(const ShadowBlock& block) {
  constexpr size_t kGranule = 512; // bytes; the allocator rounds sizes up to a multiple of it
  const size_t taken = (block.size + kRedZone + kGranule - 1) / kGranule * kGranule;
  return {reinterpret_cast<const void*>(block.begin + block.size), taken - block.size};
}

void fill_red_zone(const Extent& zone, orStream_t stream) {
  orMemsetAsync(reinterpret_cast<void*>(zone.begin), kPattern, zone.run, stream);
}

Extent repair_red_zone(const ShadowBlock& block) {
  const Extent zone = red_zone_of(block);
  unsigned char* const bytes = bytes_of(zone);
  unsigned char* const end = bytes + zone.run;
  const auto is_damaged = [](unsigned char byte) { return byte != kPattern; };
  unsigned char* const first = std::find_if(bytes, end, is_damaged);
  if (first == end) {
    return {};
  }
  unsigned char* const last =
      std::find_if(std::make_reverse_iterator(end), std::make_reverse_iterator(first), is_damaged).base();
  std::fill(first, last, kPattern);
  return {reinterpret_cast<const void*>(zone.begin + (first - bytes)), static_cast<size_t>(last - first)};
}

Report make_overrun(const ShadowBlock& block, const Access& kernel) {
  Report report{.kind = FindingKind::Memory, .accesses = {kernel}, .block = block.size, .allocated = block.site};
  report.problem = c10::str(kernel.name, " wrote past the end of a tensor's memory.");
  report.remedy = "Compare the kernel's index with the number of elements before it writes.";
  return report;
}

Report make_underrun(const ShadowBlock& block, const Access& kernel) {
  Report report = make_overrun(block, kernel);
  report.problem = c10::str(kernel.name, " wrote before the beginning of a tensor's memory.");
  report.remedy = "Compare the kernel's index with 0 before it writes.";
  return report;
}

Report make_out_of_bounds(const ShadowBlock& block, const Access& access) {
  Report report = make_overrun(block, access);
  report.problem = c10::str(
      access.name,
      access.writes() ? " writes " : " reads ",
      access.extent.end - block.begin - block.size,
      " bytes past the end of a tensor's memory.");
  report.remedy = "Compare the size that the call gets with the size of the tensor.";
  return report;
}

Report make_use_after_free(const Access& access, size_t size, Site allocated, Site freed) {
  Report report{.kind = FindingKind::Memory, .accesses = {access}, .block = size, .allocated = allocated};
  report.problem = c10::str(access.name, " uses memory that was given back.");
  report.accesses.push_back(
      {.action = Access::Action::Free, .site = freed, .name = "the last reference", .extent = access.extent});
  report.remedy = "Keep a reference to the tensor until the kernel has run.";
  return report;
}

} // namespace c10::openreg::sanitizer
