#include "aten/native/NondeterminismChecks.h"

#include <ATen/core/Reduction.h>

#include <atomic>
#include <sstream>
#include <string_view>

namespace at::openreg {
namespace {

// The arguments of one call, by name.
class BoxedCall {
 public:
  BoxedCall(const c10::FunctionSchema& schema, const torch::jit::Stack& stack)
      : schema_(schema), first_(stack.data() + stack.size() - schema.arguments().size()) {}

  const c10::IValue& operator[](const std::string& name) const {
    return first_[*schema_.argumentIndexWithName(name)];
  }

 private:
  const c10::FunctionSchema& schema_;
  const c10::IValue* first_;
};

// ---- Under which condition CUDA's kernel of PyTorch 2.13 raises

bool in_every_call(const BoxedCall&) {
  return true;
}

bool is_floating(const BoxedCall& call) {
  return call["self"].toTensor().is_floating_point();
}

bool has_weights(const BoxedCall& call) {
  return !call["weights"].isNone();
}

bool reduces(const BoxedCall& call) {
  return call["reduction"].toInt() != Reduction::None;
}

bool takes_maximum(const BoxedCall& call) {
  constexpr int64_t kMax = 2; // native/EmbeddingBag.h, EmbeddingBagMode::MAX
  return call["mode"].toInt() == kMax;
}

bool accumulates(const BoxedCall& call) { // without accumulation, the CPU's kernel raises by itself
  return call["accumulate"].toBool();
}

// Only a product raises. For a sum or a mean, CUDA has a deterministic algorithm (native/TensorAdvancedIndexing.cpp,
// _scatter_via_index_put).
bool multiplies(const BoxedCall& call) {
  const auto reduce = call["reduce"].toStringView();
  return reduce == "prod" || reduce == "multiply";
}

struct NondeterministicKernel {
  const char* operators; // of the namespace aten, with their overloads
  const char* kernel;    // the name in the sentence that CUDA's kernel raises
  bool (*applies)(const BoxedCall&) = in_every_call;
};

// The table is that of PyTorch 2.13, and also serves later versions. The rows have the order of the docstring of
// torch.use_deterministic_algorithms(), which does not name all of them. The docstring is wrong about three operators:
// CUDA's kernels of cumsum and reflection_pad2d_backward do not raise, and max_pool3d_with_indices_backward raises. The
// comment after a row names the file in aten/src/ATen/native/cuda that contains CUDA's kernel. CUDA's kernels of
// replication_pad*_backward raise too, but have no row: in a deterministic program, torch.nn.functional.pad() pads a
// CUDA tensor with other operators, so no module calls these kernels.
constexpr NondeterministicKernel kNondeterministicKernels[] = {
    {"avg_pool3d_backward avg_pool3d_backward.grad_input", "avg_pool3d_backward_cuda"}, // AveragePool3d.cu
    {"_adaptive_avg_pool2d_backward", "adaptive_avg_pool2d_backward_cuda"},             // AdaptiveAveragePooling.cu
    {"_adaptive_avg_pool3d_backward", "adaptive_avg_pool3d_backward_cuda"},             // AdaptiveAveragePooling3d.cu
    {"adaptive_avg_pool3d_backward.grad_input", "adaptive_avg_pool3d_backward_out_cuda"},
    {"adaptive_max_pool2d_backward adaptive_max_pool2d_backward.grad_input",
     "adaptive_max_pool2d_backward_cuda"}, // AdaptiveMaxPooling2d.cu
    {"fractional_max_pool2d_backward fractional_max_pool2d_backward.grad_input",
     "fractional_max_pool2d_backward_cuda"},                                   // FractionalMaxPool2d.cu
    {"fractional_max_pool3d_backward", "fractional_max_pool3d_backward_cuda"}, // FractionalMaxPool3d.cu
    {"fractional_max_pool3d_backward.grad_input", "fractional_max_pool3d_backward_out_cuda"},
    {"upsample_linear1d_backward upsample_linear1d_backward.grad_input",
     "upsample_linear1d_backward_out_cuda"}, // UpSampleLinear1d.cu
    {"upsample_bilinear2d_backward upsample_bilinear2d_backward.grad_input",
     "upsample_bilinear2d_backward_out_cuda"}, // UpSampleBilinear2d.cu
    {"_upsample_bilinear2d_aa_backward _upsample_bilinear2d_aa_backward.grad_input",
     "upsample_bilinear2d_aa_backward_out_cuda"}, // UpSampleBilinear2d.cu
    {"upsample_bicubic2d_backward upsample_bicubic2d_backward.grad_input",
     "upsample_bicubic2d_backward_out_cuda"}, // UpSampleBicubic2d.cu
    {"_upsample_bicubic2d_aa_backward _upsample_bicubic2d_aa_backward.grad_input",
     "upsample_bicubic2d_aa_backward_out_cuda"}, // UpSampleBilinear2d.cu
    {"upsample_trilinear3d_backward upsample_trilinear3d_backward.grad_input",
     "upsample_trilinear3d_backward_out_cuda"},                                    // UpSampleTrilinear3d.cu
    {"max_pool3d_with_indices_backward", "max_pool3d_with_indices_backward_cuda"}, // DilatedMaxPool3d.cu
    {"max_pool3d_with_indices_backward.grad_input", "max_pool3d_with_indices_backward_out_cuda"},
    {"reflection_pad1d_backward reflection_pad1d_backward.grad_input",
     "reflection_pad1d_backward_out_cuda"}, // ReflectionPad.cu
    {"reflection_pad3d_backward reflection_pad3d_backward.grad_input",
     "reflection_pad3d_backward_out_cuda"}, // ReflectionPad.cu
    {"nll_loss2d_forward nll_loss2d_forward.output", "nll_loss2d_forward_out_cuda_template", reduces}, // NLLLoss2d.cu
    {"_ctc_loss_backward _ctc_loss_backward.Tensor", "ctc_loss_backward_gpu"},                         // LossCTC.cu
    {"_embedding_bag_backward _embedding_bag_dense_backward",
     "embedding_bag_backward_cuda_max",
     takes_maximum},                                                               // EmbeddingBag.cu
    {"put_", "put_", accumulates},                                                 // ../TensorAdvancedIndexing.cpp
    {"histc histc.out", "_histc_cuda with floating point input", is_floating},     // SummaryOps.cu
    {"bincount", "_bincount_cuda", has_weights},                                   // SummaryOps.cu
    {"median.dim_values nanmedian.dim_values", "median CUDA with indices output"}, // Sorting.cpp
    {"grid_sampler_2d_backward", "grid_sampler_2d_backward_cuda"},                 // GridSampler.cu
    {"grid_sampler_3d_backward", "grid_sampler_3d_backward_cuda"},                 // GridSampler.cu
    {"scatter_reduce.two scatter_reduce_.two scatter_reduce.two_out",
     "scatter_reduce_cuda_prod_",
     multiplies}, // ScatterGatherKernel.cu
    {"scatter.reduce scatter_.reduce scatter.reduce_out", "scatter_reduce_cuda_kernel", multiplies}, // the same
    {"index_reduce index_reduce_ index_reduce.out", "index_reduce_cuda"},                            // Indexing.cu
};

const ska::flat_hash_map<std::string, const NondeterministicKernel*>& rows_by_name() {
  static const auto* all = [] {
    auto* rows = new ska::flat_hash_map<std::string, const NondeterministicKernel*>;
    for (const NondeterministicKernel& kernel : kNondeterministicKernels) {
      std::istringstream operators(kernel.operators);
      for (std::string name; operators >> name;) {
        rows->emplace("aten::" + name, &kernel);
      }
    }
    return rows;
  }();
  return *all;
}

std::atomic<bool> are_on{true};

// The row of an operator. Null: the operator has no row, or the checks are off.
const NondeterministicKernel* find(const c10::OperatorHandle& op) {
  if (!are_on.load(std::memory_order_relaxed)) {
    return nullptr;
  }
  const auto found = rows_by_name().find(c10::toString(op.operator_name()));
  return found == rows_by_name().end() ? nullptr : found->second;
}

} // namespace

const std::vector<std::string>& nondeterministic_operators() {
  static const auto* names = [] {
    auto* all = new std::vector<std::string>;
    for (const auto& [name, _] : rows_by_name()) {
      all->push_back(name);
    }
    return all;
  }();
  return *names;
}

void set_nondeterminism_checks(bool on) {
  are_on = on;
}

bool has_nondeterminism_check(const c10::OperatorHandle& op) {
  return find(op) != nullptr;
}

void check_nondeterminism(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const NondeterministicKernel* row = find(op);
  if (row && row->applies(BoxedCall(op.schema(), stack))) {
    globalContext().alertNotDeterministic(row->kernel);
  }
}

} // namespace at::openreg
