#include "distributed/CollectiveEngine.h"

#include <occl_transport.h>

#include <cstdlib>
#include <map>
#include <string_view>
#include <utility>

#include "distributed/OcclEngine.h"
#include "runtime/OpenRegObserver.h"

namespace c10d::openreg {
namespace {

constexpr const char* kAuto = "auto";
constexpr const char* kShared = "shm"; // OcclEngine

// The other transports.
std::map<std::string, MakeEngine, std::less<>>& transports() {
  static auto* const made = new std::map<std::string, MakeEngine, std::less<>>();
  return *made;
}

WrapEngine& engine_wrapper() {
  static WrapEngine wrapper = nullptr;
  return wrapper;
}

MakeEngine& engine_maker() {
  static MakeEngine maker = nullptr;
  return maker;
}

// What a sentence has between "auto" and "shm": ", gloo or ", or " or " if there is no other transport.
std::string other_choices() {
  std::string names;
  for (const auto& [name, make] : transports()) {
    names += ", " + name;
  }
  return names + " or ";
}

std::string_view chosen_transport() {
  const char* value = std::getenv("OCCL_TRANSPORT");
  const std::string_view transport = value == nullptr || *value == '\0' ? kAuto : value; // empty means unset
  TORCH_CHECK_VALUE(
      transport == kAuto || transport == kShared || transports().contains(transport),
      "OCCL_TRANSPORT is '",
      transport,
      "'. Set it to auto (the default)",
      other_choices(),
      kShared,
      ", or unset it.");
  return transport;
}

occl::Placement connect(const Ranks& ranks) {
  const occl::Bootstrap bootstrap{
      [&](const std::string& key, const std::vector<uint8_t>& value) { ranks.store->set(key, value); },
      [&](const std::string& key) {
        ranks.store->wait({key}, ranks.timeout);
        return ranks.store->get(key);
      }};
  using namespace c10::openreg;
  const ObservedCalls calls(CallKind::Internal); // the group frees the memory of the communicator, and not the program
  return occl::connect(bootstrap, ranks.rank, ranks.size);
}

std::shared_ptr<CollectiveEngine> choose_engine(const Ranks& group) {
  const std::string_view transport = chosen_transport();
  if (transport == kAuto || transport == kShared) {
    Ranks ranks = group;
    ranks.placement = connect(ranks);
    if (ranks.placement.communicator && ranks.placement.leaders.size() == 1) {
      return std::make_shared<OcclEngine>(ranks.placement.communicator);
    }
    TORCH_CHECK(
        transport == kAuto && !transports().empty(),
        "OCCL_TRANSPORT is '",
        transport,
        "', but the ranks of the group cannot share memory: they run on several hosts or as several users, or there "
        "are more than 256 of them, or the device has no memory for the group.",
        transports().empty() ? "" : c10::str(" Set it to auto or ", transports().begin()->first, "."));
    return transports().begin()->second(ranks);
  }
  return transports().find(transport)->second(group);
}

} // namespace

std::shared_ptr<CollectiveEngine> make_engine(
    const c10::intrusive_ptr<Store>& store, int rank, int size, std::chrono::milliseconds timeout) {
  occl::checksHeaders(); // the two functions throw if their variables have bad values
  occl::allowsSharedDevices();
  const MakeEngine make = engine_maker() != nullptr ? engine_maker() : &choose_engine;
  std::shared_ptr<CollectiveEngine> engine = make({store, rank, size, timeout, {}});
  return engine_wrapper() != nullptr ? engine_wrapper()(std::move(engine)) : engine;
}

void register_transport(const char* name, MakeEngine make) {
  transports()[name] = make;
}

void set_engine_wrapper(WrapEngine wrap) {
  engine_wrapper() = wrap;
}

void set_engine_maker(MakeEngine make) {
  engine_maker() = make;
}

} // namespace c10d::openreg
