#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <functional>

#include "distributed/Engine.h"

namespace c10d::openreg {

// Makes a gloo group.
using MakeGloo = std::function<c10::intrusive_ptr<Backend>(
    c10::intrusive_ptr<Store> store, int rank, int size, std::chrono::milliseconds timeout)>;

// The engines of a group. OCCL_TRANSPORT and the hosts of the ranks decide which engine runs the requests.
class Engines final {
 public:
  // `gloo` is a process group of the same ranks. If all_reduce has steps by hosts (GlooEngine.h), `make_gloo` makes
  // another process group, of the first ranks of the hosts. Waits for the other ranks.
  Engines(
      const c10::intrusive_ptr<Store>& store,
      const c10::intrusive_ptr<Backend>& gloo,
      const MakeGloo& make_gloo,
      int rank,
      int size,
      std::chrono::milliseconds timeout);

  Engine& engine() const;
  void abort();

 private:
  std::shared_ptr<Engine> gloo_;
  std::shared_ptr<Engine> shared_; // null unless all ranks share memory and OCCL_TRANSPORT allows it
};

} // namespace c10d::openreg
