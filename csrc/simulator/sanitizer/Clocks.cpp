#include "simulator/sanitizer/Clocks.h"

#include <openreg_ipc.h>

#include <algorithm>

namespace c10::openreg::sanitizer {

Clocks::Clocks() : clocks_(1), streams_{nullptr}, devices_{-1}, joined_{0} {}

Actor Clocks::actor_of(orStream_t stream) {
  if (stream == last_stream_ && last_actor_ != kHost) {
    return last_actor_;
  }
  const auto [found, is_new] = actors_.try_emplace(stream, static_cast<Actor>(clocks_.size()));
  if (is_new) {
    int device = -1;
    orStreamGetDevice(stream, &device);
    clocks_.emplace_back();
    streams_.push_back(stream);
    devices_.push_back(device);
    joined_.push_back(0);
  }
  last_stream_ = stream;
  return last_actor_ = found->second;
}

bool Clocks::join(VectorClock& mine, const VectorClock& other) {
  if (mine.size() < other.size()) {
    mine.resize(other.size());
  }
  bool changed = false;
  for (size_t i = 0; i < other.size(); ++i) {
    changed |= mine[i] < other[i];
    mine[i] = std::max(mine[i], other[i]);
  }
  return changed;
}

void Clocks::join(Actor actor, const VectorClock& other) {
  const bool changed = join(clocks_[actor], other);
  host_state_ += actor == kHost && changed;
}

void Clocks::follow_host(Actor actor) {
  if (joined_[actor] != host_state_ && actor != kHost) {
    join(actor, clocks_[kHost]);
    joined_[actor] = host_state_;
  }
}

uint64_t Clocks::step(Actor actor) {
  follow_host(actor);
  VectorClock& mine = clocks_[actor];
  if (mine.size() <= actor) {
    mine.resize(actor + 1);
  }
  host_state_ += actor == kHost;
  return ++mine[actor];
}

void Clocks::record(orEvent_t event, Actor stream) {
  follow_host(stream);
  events_[event] = clocks_[stream];
  if (orIpcIsShared(event)) {
    join(shared_, clocks_[stream]);
  }
}

void Clocks::wait(Actor waiting, orEvent_t event) {
  const auto known = events_.find(event);
  if (known != events_.end()) {
    join(waiting, known->second);
  }
  if (orIpcIsShared(event)) {
    join(waiting, shared_);
  }
}

void Clocks::host_waits_for_device(int device) {
  for (Actor stream = 1; stream < clocks_.size(); ++stream) {
    if (devices_[stream] == device) {
      host_waits(stream);
    }
  }
}

} // namespace c10::openreg::sanitizer
