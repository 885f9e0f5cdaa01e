#include "simulator/dry/CollectiveCost.h"

#include <algorithm>
#include <atomic>
#include <cmath>

namespace at::openreg {
namespace {

std::atomic<ReadCollective> reader{nullptr};

double time_of(const CollectiveWork& work, const LinkRates& rates) {
  if (work.ranks < 2) {
    return 0;
  }
  const double ranks = work.ranks, hosts = work.hosts, of_host = ranks / hosts;
  const double others = (ranks - 1) / ranks; // the share of the bytes that other ranks have
  const double bandwidth =
      work.hosts == 1 ? rates.peer_bandwidth : std::min(rates.peer_bandwidth, of_host * rates.network_bandwidth);
  const double steps = (ranks - hosts) * rates.peer_latency + (hosts - 1) * rates.network_latency;
  switch (work.kind) {
    case CollectiveKind::all_reduce: {
      const double tree_steps = (of_host - 1) * rates.peer_latency + std::log2(hosts) * rates.network_latency;
      return 2 * std::min(others * work.bytes / bandwidth + steps, work.bytes / bandwidth + tree_steps);
    }
    case CollectiveKind::ring:
      return others * work.bytes / bandwidth + steps;
    case CollectiveKind::exchange: {
      const double within = std::max(of_host - 1, 0.0) / ranks, between = (ranks - of_host) / ranks;
      return std::max(
          within * work.bytes / rates.peer_bandwidth + rates.peer_latency,
          between > 0 ? between * work.bytes / rates.network_bandwidth + rates.network_latency : 0);
    }
    case CollectiveKind::message:
      return work.hosts == 1 ? work.bytes / rates.peer_bandwidth + rates.peer_latency
                             : work.bytes / rates.network_bandwidth + rates.network_latency;
  }
  return 0;
}

} // namespace

double collective_time(const std::vector<CollectiveWork>& works, const LinkRates& rates) {
  double seconds = 0;
  bool has_others = false;
  for (const CollectiveWork& each : works) {
    seconds += time_of(each, rates);
    has_others |= each.ranks > 1;
  }
  return has_others ? seconds + rates.collective_latency : 0;
}

void set_collective_reader(ReadCollective read) {
  reader = read;
}

std::optional<std::vector<CollectiveWork>> read_collective(const orActivity& launch) {
  const ReadCollective read = reader;
  return read != nullptr ? read(launch) : std::nullopt;
}

} // namespace at::openreg
