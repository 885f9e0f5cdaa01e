#include "simulator/transport/FaultyEngine.h"

#include <openreg_faults.h>

#include <utility>

#include "runtime/OpenRegException.h"

// The faults of messages (openreg_faults.h): each request passes them before the group's engine starts it.
namespace c10d::openreg {
namespace {

// Whether a fault drops the message. If a fault makes the message fail, throws that failure.
bool is_dropped(const CollectiveRequest& request) {
  size_t size = 0;
  for (const at::Tensor& tensor : request.inputs.empty() ? request.outputs : request.inputs) {
    size += tensor.nbytes();
  }
  bool dropped = false;
  OPENREG_CHECK(orRequestMessage(request.device, size, &dropped));
  return dropped;
}

class FaultyEngine final : public CollectiveEngine {
 public:
  explicit FaultyEngine(std::shared_ptr<CollectiveEngine> engine) : engine_(std::move(engine)) {}

  void prepare(const CollectiveRequest& request) override {
    engine_->prepare(request);
  }

  void start(std::shared_ptr<CollectiveRequest> request, Done done) override {
    if (is_dropped(*request)) {
      done(nullptr); // its sender gets no error
    } else {
      engine_->start(std::move(request), std::move(done));
    }
  }

  bool completes_at_once() const override {
    return engine_->completes_at_once();
  }

  void abort() override {
    engine_->abort();
  }

  const CollectiveEngine& engine() const {
    return *engine_;
  }

 private:
  const std::shared_ptr<CollectiveEngine> engine_;
};

const bool faults_are_registered = [] {
  set_engine_wrapper([](std::shared_ptr<CollectiveEngine> engine) -> std::shared_ptr<CollectiveEngine> {
    return std::make_shared<FaultyEngine>(std::move(engine));
  });
  return true;
}();

} // namespace

const CollectiveEngine& without_faults(const CollectiveEngine& engine) {
  const auto* const faulty = dynamic_cast<const FaultyEngine*>(&engine);
  return faulty != nullptr ? faulty->engine() : engine;
}

} // namespace c10d::openreg
