#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <functional>

#include "Engine.h"

namespace c10d::openreg {

// Makes a gloo group.
using MakeGloo = std::function<c10::intrusive_ptr<Backend>(
    c10::intrusive_ptr<Store> store, int rank, int size, std::chrono::milliseconds timeout)>;

// The engines of a group. OCCL_TRANSPORT, and the hosts of the ranks, decide which engine runs a request.
class Engines final {
 public:
  // `gloo` is a process group of the same ranks. `make_gloo` makes one more if the ranks run on several hosts.
  // Waits for the other ranks.
  Engines(
      const c10::intrusive_ptr<Store>& store,
      const c10::intrusive_ptr<Backend>& gloo,
      const MakeGloo& make_gloo,
      int rank,
      int size,
      std::chrono::milliseconds timeout);

  Engine& engine_for(const Request& request) const;
  void abort();

 private:
  std::shared_ptr<Engine> gloo_;
  std::shared_ptr<Engine> shared_; // null unless all ranks share memory
};

} // namespace c10d::openreg
