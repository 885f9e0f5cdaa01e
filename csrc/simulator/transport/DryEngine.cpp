#include "simulator/transport/DryEngine.h"

#include <ATen/core/Tensor.h>
#include <openreg_dry.h>

#include <cstring>
#include <memory>

#include "distributed/CollectiveEngine.h"
#include "distributed/InterpreterUse.h"
#include "simulator/dry/Undecided.h"

namespace c10d::openreg {
namespace {

orContents contents_of(const at::Tensor& bytes) {
  return orDryContents(orGetDevicePointer(bytes.data_ptr()), bytes.nbytes());
}

// Answers a request as if each of the other ranks had the same data as this one.
class DryEngine final : public CollectiveEngine {
 public:
  explicit DryEngine(int rank) : rank_(static_cast<size_t>(rank)) {}

  void start(std::shared_ptr<CollectiveRequest> request, Done done) override {
    for (size_t i = 0; i < request->outputs.size(); ++i) {
      answer(request->outputs[i], source_of(*request, i));
    }
    release(request);
    done(nullptr);
  }

  void abort() override {}

 private:
  const size_t rank_;

  // What output number `index` gets: from every rank (all_gather), for this rank (scatter and reduce_scatter), or from
  // and for each rank (all_to_all). Null: only another rank has it.
  const at::Tensor* source_of(const CollectiveRequest& request, size_t index) const {
    const std::vector<at::Tensor>& inputs = request.inputs;
    if (inputs.empty()) {
      return nullptr;
    }
    return &inputs[inputs.size() == 1 ? 0 : request.outputs.size() == 1 ? rank_ : index];
  }

  static void answer(const at::Tensor& output, const at::Tensor* source) {
    if (output.nbytes() == 0 || contents_of(output) == orContentsAbsent) {
      return;
    }
    const bool has_source =
        source != nullptr && source->nbytes() == output.nbytes() && contents_of(*source) != orContentsAbsent;
    if (!has_source) {
      std::memset(output.data_ptr(), 0, output.nbytes());
    } else if (source->data_ptr() != output.data_ptr()) {
      std::memmove(output.data_ptr(), source->data_ptr(), output.nbytes());
    }
  }
};

} // namespace

void start_dry_world() {
  at::openreg::answer_collectives();
  set_engine_maker(
      [](const Ranks& ranks) -> std::shared_ptr<CollectiveEngine> { return std::make_shared<DryEngine>(ranks.rank); });
}

} // namespace c10d::openreg
