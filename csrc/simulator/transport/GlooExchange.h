#pragma once

#include <vector>

#include "simulator/transport/GlooConnection.h"

namespace c10d::openreg {

// One collective in which every rank waits for all others (GlooEngine.h): each rank gives each other rank its plan and
// its data.
class GlooExchange final {
 public:
  GlooExchange(GlooConnection& connection, const CollectiveRequest& request, const Deadline& deadline);

  // Sends this rank's plan to every rank, with the data for that rank if it is small, and receives the same from every
  // rank. Throws if the plans do not fit together.
  void exchange_plans();

  // Sends and receives the data that did not come with the plans, and writes the outputs. To be called after
  // exchange_plans().
  void exchange_data();

  // How many bytes this rank gives to itself.
  uint64_t own_bytes() const {
    return own_.sends[rank_];
  }

 private:
  std::vector<at::Tensor> receive_parts();
  void reduce_parts(const std::vector<at::Tensor>& parts) const;

  GlooConnection& connection_;
  const CollectiveRequest& request_;
  const Deadline& deadline_;
  const int rank_;
  const int size_;
  const int tag_;
  const Plan own_;
  // What this rank got from each rank with exchange_plans().
  std::vector<Plan> plans_;
  std::vector<at::Tensor> small_data_; // kInline bytes each; the plan says how many are data; undefined for this rank
};

} // namespace c10d::openreg
