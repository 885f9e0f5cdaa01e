#include "distributed/Engines.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "distributed/GlooEngine.h"
#include "distributed/Header.h"
#include "distributed/SharedEngine.h"

namespace c10d::openreg {
namespace {

std::string_view chosen_transport() {
  const char* value = std::getenv("OCCL_TRANSPORT");
  const std::string_view transport = value == nullptr || *value == '\0' ? "auto" : value; // empty means unset
  TORCH_CHECK_VALUE(
      transport == "auto" || transport == "gloo" || transport == "shm",
      "OCCL_TRANSPORT is '",
      transport,
      "'. Set it to auto (the default), gloo or shm, or unset it.");
  return transport;
}

} // namespace

Engines::Engines(
    const c10::intrusive_ptr<Store>& store,
    const c10::intrusive_ptr<Backend>& gloo,
    const MakeGloo& make_gloo,
    int rank,
    int size,
    std::chrono::milliseconds timeout) {
  checks_headers(); // throws if OCCL_CHECK has a bad value
  const std::string_view transport = chosen_transport();
  GlooEngine::Hosts hosts;
  if (transport != "gloo" && size > 1) {
    SharedEngine::Placement placement = SharedEngine::make(*store, rank, size, timeout);
    const std::vector<int>& leaders = placement.leaders;
    if (leaders.size() == 1) {
      shared_ = placement.engine;
    } else if (placement.engine && leaders.size() < static_cast<size_t>(size)) {
      hosts.own = placement.engine;
      if (const auto own = std::find(leaders.begin(), leaders.end(), rank); own != leaders.end()) {
        hosts.leaders = make_gloo(
            c10::make_intrusive<PrefixStore>("leaders", store),
            static_cast<int>(own - leaders.begin()),
            static_cast<int>(leaders.size()),
            timeout);
      }
    }
    TORCH_CHECK(
        shared_ || transport == "auto",
        "OCCL_TRANSPORT is 'shm', but the ranks of the group cannot share memory: they run on several hosts or as "
        "several users, or there are more than 256 of them, or the device has no memory for the group. Set it to auto "
        "or gloo.");
  }
  gloo_ = std::make_shared<GlooEngine>(gloo, std::move(hosts));
}

Engine& Engines::engine() const {
  return shared_ ? static_cast<Engine&>(*shared_) : *gloo_;
}

void Engines::abort() {
  gloo_->abort();
  if (shared_) {
    shared_->abort();
  }
}

} // namespace c10d::openreg
