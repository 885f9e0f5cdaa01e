#pragma once

#include <utility>

#include "distributed/ThreadedEngine.h"

namespace c10d::openreg {

// The engine for ranks on one host: the device's library of collectives (occl.h).
class OcclEngine final : public ThreadedEngine {
 public:
  explicit OcclEngine(std::shared_ptr<occl::Communicator> communicator) : communicator_(std::move(communicator)) {}

  void abort() override;

 private:
  void run(CollectiveRequest& request) override;

  const std::shared_ptr<occl::Communicator> communicator_;
};

} // namespace c10d::openreg
