#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <limits>
#include <string>
#include <vector>

#include "runtime/OpenRegException.h"
#include "runtime/OpenRegTorchVersion.h"

namespace c10d::openreg {

struct OPENREG_API GroupOptions : Backend::Options {
  // The settings of NCCL's communicators that programs change. They have no effect here.
  struct Config {
    static constexpr int kUndefined = std::numeric_limits<int>::min(); // NCCL_CONFIG_UNDEF_INT
    int blocking = kUndefined;
    int cga_cluster_size = kUndefined;
    int min_ctas = kUndefined;
    int max_ctas = kUndefined;
    int split_share = kUndefined;
    int traffic_class = kUndefined;
    std::string net_name;
  };

  explicit GroupOptions(std::chrono::milliseconds timeout = kBackendDefaultTimeout)
      : Backend::Options("occl", timeout) {}
  bool is_high_priority_stream = false;
  Config config;
#if OPENREG_TORCH_AT_LEAST(2, 14)
  // When PyTorch splits a group, it copies the group's options, sets the new group's name in the copy, and passes the
  // copy to split().
  c10::intrusive_ptr<Backend::Options> clone() const override {
    return c10::make_intrusive<GroupOptions>(*this);
  }
#endif

  // The options of a new group that is split from this group. `ranks`: the members of the new group, as ranks of this
  // group. `options`: what the caller of split() passes, or null.
  c10::intrusive_ptr<GroupOptions> for_split(
      const std::vector<int>& ranks, const c10::intrusive_ptr<Backend::Options>& options) const;
};

} // namespace c10d::openreg
