#include "host_limits.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "error.h"
#include "hooks.h"
#include "windows.h"

namespace openreg {
namespace {

constexpr int64_t kMinCheckInterval = int64_t{64} << 20;

std::atomic<size_t> granted{0};
std::atomic<int64_t> untilNextCheck{0};

// The value after `key` in a file with lines "key value" or "key: value kB", in the unit of the file; 0 if the key is
// missing.
uint64_t readKey(const std::string& path, const char* key) {
  std::ifstream file(path);
  std::string word;
  while (file >> word) {
    if (word == key) {
      uint64_t value = 0;
      file >> value;
      return value;
    }
  }
  return 0;
}

// The number in a file; `otherwise` if there is no file, or if it contains "max".
uint64_t readNumber(const std::string& path, uint64_t otherwise) {
  std::ifstream file(path);
  uint64_t value = 0;
  return file >> value ? value : otherwise;
}

// The memory cgroup of this process, or one of its ancestors. Each has its own limit.
struct Cgroup {
  std::string path;
  bool v2;

  // How many bytes the group may still take. The inactive part of the page cache counts as free: Linux gives it back
  // before a group runs out of memory.
  size_t available() const {
    constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();
    const uint64_t limit = readNumber(path + (v2 ? "/memory.max" : "/memory.limit_in_bytes"), kUnlimited);
    if (limit == kUnlimited) {
      return kUnlimited;
    }
    const uint64_t used = readNumber(path + (v2 ? "/memory.current" : "/memory.usage_in_bytes"), 0);
    const uint64_t cache = readKey(path + "/memory.stat", v2 ? "inactive_file" : "total_inactive_file");
    return limit + cache - std::min(limit + cache, used);
  }
};

std::vector<Cgroup> findCgroups() {
  std::vector<Cgroup> groups;
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) { // "4:memory:/path", and "0::/path" for version 2
    const size_t controllers = line.find(':') + 1;
    const size_t path = line.find(':', controllers) + 1;
    const std::string names = line.substr(controllers, path - 1 - controllers);
    const bool v2 = names.empty();
    if (!v2 && names != "memory") {
      continue;
    }
    // In a container, the path may be the host's, but only the container's own group is mounted, as the root. A level
    // that is not mounted has no files, and therefore no limit.
    const std::string root = v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    for (std::string level = line.substr(path); level.size() > 1; level.resize(level.rfind('/'))) {
      groups.push_back({root + level, v2});
    }
    groups.push_back({root, v2});
  }
  return groups;
}

size_t hostAvailable() {
  constexpr const char* kMeminfo = "/proc/meminfo";
  const uint64_t available = readKey(kMeminfo, "MemAvailable:");
  return available == 0 ? std::numeric_limits<size_t>::max() : (available + readKey(kMeminfo, "SwapFree:")) * 1024;
}

// The bytes of anonymous memory that the process has touched.
size_t residentBytes() {
  std::ifstream file("/proc/self/statm");
  size_t total = 0, resident = 0, shared = 0;
  file >> total >> resident >> shared;
  return (resident - std::min(resident, shared)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

} // namespace

orError_t chargeHostMemory(size_t bytes) {
  const size_t before = granted.fetch_add(bytes, std::memory_order_relaxed);
  if (!hostBacksMemory.load(std::memory_order_relaxed)) {
    return orSuccess;
  }
  if (untilNextCheck.fetch_sub(static_cast<int64_t>(bytes), std::memory_order_relaxed) > static_cast<int64_t>(bytes)) {
    return orSuccess;
  }
  static const std::vector<Cgroup>* const cgroups = new std::vector<Cgroup>(findCgroups());

  // Memory that was granted and not touched yet appears in no file. How much of the resident memory belongs to the
  // device is not known either. The calculation assumes that all of it does, and so grants too much rather than too
  // little.
  const size_t untouched = before - std::min(before, residentBytes());
  const size_t needed = bytes + untouched;
  size_t available = hostAvailable();
  const Cgroup* limiting = nullptr;
  for (const Cgroup& group : *cgroups) {
    if (const size_t left = group.available(); left < available) {
      available = left;
      limiting = &group;
    }
  }
  if (needed > available) {
    unchargeHostMemory(bytes);
    untilNextCheck.store(0, std::memory_order_relaxed);
    return fail(
        orErrorMemoryAllocation,
        "the host cannot back %s more: %s has %s left, and %s granted earlier may still be touched. Free memory, or "
        "set OPENREG_DEVICE_MEMORY to what the host can back",
        formatBytes(bytes).c_str(),
        limiting ? ("the memory cgroup " + limiting->path).c_str() : "its memory (MemAvailable in /proc/meminfo)",
        formatBytes(available).c_str(),
        formatBytes(untouched).c_str());
  }
  // The more memory is left, the later the next check.
  untilNextCheck.store(
      std::max(kMinCheckInterval, static_cast<int64_t>(std::min(available - needed, size_t{1} << 40) / 8)),
      std::memory_order_relaxed);
  return orSuccess;
}

void unchargeHostMemory(size_t bytes) {
  granted.fetch_sub(bytes, std::memory_order_relaxed);
}

} // namespace openreg
