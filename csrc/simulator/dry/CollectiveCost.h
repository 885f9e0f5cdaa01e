#pragma once

#include <openreg_activity.h>

#include <optional>
#include <vector>

#include "runtime/OpenRegException.h"

// How long collectives take, from the sizes of their tensors and the hosts of their ranks.
//
//   - The ranks form a ring that enters and leaves each host once. Every rank sends at the bandwidth of the slowest link:
//     that between the devices of a host, or those that a host's members of the group have to the network together.
//   - Each step of the ring has the latency of its link. An allreduce may use a tree instead, whose steps grow with the
//     logarithm of the hosts, if that takes less time.
//   - In an all_to_all, a gather and a scatter every rank sends to every other rank, to those of other hosts over its own
//     link to the network.
//
// Rule: all ranks of a collective begin at the same time, because dry execution knows one rank only.
namespace at::openreg {

struct LinkRates {
  double peer_bandwidth = 0;     // bytes per second that a collective reaches between the devices of a host
  double network_bandwidth = 0;  // and between hosts, for each device
  double peer_latency = 0;       // seconds of a step within a host
  double network_latency = 0;    // and between hosts
  double collective_latency = 0; // of a collective, besides its steps
};

enum class CollectiveKind { all_reduce, ring, exchange, message };

struct CollectiveWork {
  CollectiveKind kind;
  double bytes; // of all that the rank has before or afterwards
  int ranks;    // of the group
  int hosts;    // of the group; of a message: 1 if both ranks are on one host
};

double collective_time(const std::vector<CollectiveWork>& works, const LinkRates& rates);

// Sets the function that says what a launch does if it is a collective. nullopt: it is none.
using ReadCollective = std::optional<std::vector<CollectiveWork>> (*)(const orActivity& launch);
void set_collective_reader(ReadCollective read);
std::optional<std::vector<CollectiveWork>> read_collective(const orActivity& launch);

} // namespace at::openreg
