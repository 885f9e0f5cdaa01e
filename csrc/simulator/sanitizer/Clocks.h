#pragma once

#include <openreg.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

// LITERALINCLUDE START: CLOCK RULES
// Keeps for each actor which work the actor knows to be done. An actor is a stream, or the host. Each actor has a
// vector clock (Fidge 1988, Mattern 1989).
//
// Rules: a stream knows the work of another stream if it has waited for an event that was recorded after that work. The
// host knows work if it has waited for it. All work that the host launches knows what the host knows. Nothing else
// orders two pieces of work: if the first one happens to be done when the second one begins, that is only a matter of
// timing. The threads of the host share one clock, because the sanitizer does not see the locks and queues by which
// they wait for each other. Nor does it see what another process does: whoever waits for an event that processes share
// (openreg_ipc.h) knows all work that this process has recorded in such events. The other process may have waited for
// each of these records before it made its own record.
// LITERALINCLUDE END: CLOCK RULES
namespace c10::openreg::sanitizer {

using Actor = uint32_t;
constexpr Actor kHost = 0;

class Clocks {
 public:
  Clocks();

  // The number of actors: the host and the streams that had work.
  Actor actors() const {
    return static_cast<Actor>(clocks_.size());
  }
  Actor actor_of(orStream_t stream);
  orStream_t stream_of(Actor actor) const {
    return streams_[actor];
  }
  int device_of(Actor actor) const {
    return devices_[actor];
  }

  // Advances the actor's clock for something that it does now, and returns the time.
  uint64_t step(Actor actor);

  // The time of the actor's last step().
  uint64_t now(Actor actor) const {
    return knowledge(actor, actor);
  }

  // Whether the work of `who` at `time` is certainly done before the work that `next` begins now.
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
  using VectorClock = std::vector<uint64_t>; // by actor; missing elements are 0

  std::vector<VectorClock> clocks_;
  std::vector<orStream_t> streams_;
  std::vector<int> devices_;
  std::vector<uint64_t> joined_; // by actor: the value of host_state_ when the stream last joined the host's clock
  uint64_t host_state_ = 1;      // counts the changes of the host's clock
  std::unordered_map<orStream_t, Actor> actors_;
  std::unordered_map<orEvent_t, VectorClock> events_;
  VectorClock shared_; // what was recorded in events that processes share
  orStream_t last_stream_ = nullptr;
  Actor last_actor_ = kHost;

  uint64_t knowledge(Actor of, Actor about) const {
    return about < clocks_[of].size() ? clocks_[of][about] : 0;
  }
  static bool join(VectorClock& mine, const VectorClock& other); // returns whether `mine` has changed
  void join(Actor actor, const VectorClock& other);
  void follow_host(Actor actor);
};

} // namespace c10::openreg::sanitizer
