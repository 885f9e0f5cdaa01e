#pragma once

#include <openreg.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

// LITERALINCLUDE START: CLOCK RULES
// Who knows of what: a vector clock for each stream and one for the host (Fidge 1988, Mattern 1989).
//
// Rules: work on a stream is known to a stream that has waited for an event recorded after it, and to the host once the
// host has waited. What the host knows, everything that it launches later knows. Nothing else orders: that work happened
// to be done is luck. The threads of the host share one clock, because the locks and queues by which they wait for each
// other are not seen.
// LITERALINCLUDE END: CLOCK RULES
namespace c10::openreg::sanitizer {

using Actor = uint32_t;
constexpr Actor kHost = 0;

class Clocks {
 public:
  Clocks();

  Actor actor_of(orStream_t stream);
  orStream_t stream_of(Actor actor) const {
    return streams_[actor];
  }
  int device_of(Actor actor) const {
    return devices_[actor];
  }

  // The time of something that the actor does now.
  uint64_t step(Actor actor);

  // The time of what the actor did last.
  uint64_t now(Actor actor) const {
    return knowledge(actor, actor);
  }

  // Whether what `who` did at `time` is over before what `next` does now.
  bool is_before(Actor who, uint64_t time, Actor next) const {
    return who == next || time <= knowledge(next, who) || time <= knowledge(kHost, who);
  }

  void record(orEvent_t event, Actor stream);
  void forget(orEvent_t event) {
    events_.erase(event);
  }
  void wait(Actor waiting, orEvent_t event);
  void host_waits(Actor stream) {
    join(kHost, clocks_[stream]);
  }
  void host_waits_for_device(int device);

 private:
  using Clock = std::vector<uint64_t>; // by actor; what is missing is 0

  std::vector<Clock> clocks_;
  std::vector<orStream_t> streams_;
  std::vector<int> devices_;
  std::vector<uint64_t> joined_; // the state of the host's clock that the stream has
  uint64_t host_state_ = 1;
  std::unordered_map<orStream_t, Actor> actors_;
  std::unordered_map<orEvent_t, Clock> events_;
  orStream_t last_stream_ = nullptr;
  Actor last_actor_ = kHost;

  uint64_t knowledge(Actor of, Actor about) const {
    return about < clocks_[of].size() ? clocks_[of][about] : 0;
  }
  void join(Actor actor, const Clock& other);
  void follow_host(Actor actor);
};

} // namespace c10::openreg::sanitizer
