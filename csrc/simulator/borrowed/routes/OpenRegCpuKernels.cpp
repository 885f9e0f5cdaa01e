#include "simulator/borrowed/routes/OpenRegCpuKernels.h"

#include <ATen/Operators.h>
#include <ATen/ops/_efficientzerotensor.h>
#include <ATen/ops/zeros_like.h>

#include "aten/native/NondeterminismChecks.h"
#include "simulator/borrowed/CpuKernel.h"
#include "simulator/borrowed/Fallback.h"
#include "simulator/borrowed/routes/Route.h"
#include "simulator/borrowed/routes/Softmax.h"
#include "simulator/borrowed/routes/Sum.h"
#include "simulator/borrowed/routes/Wider.h"

// The operators that take the unboxed route to the CPU's kernel: those that a network's forward, backward and optimizer
// call in every step and that have no faster route (OpenRegStructured.cpp).
namespace at::openreg {
namespace {

// The unboxed form of check_and_run(), for operators that are called often.
template <class Op, class Schema = typename Op::schema>
struct CheckedCpuKernel;

template <class Op, class Result, class... Args>
struct CheckedCpuKernel<Op, Result(Args...)> {
  static Result call(Args... args) {
    if (C10_LIKELY(!globalContext().deterministicAlgorithms())) {
      return UnboxedCpuKernel<Op>::call(args...);
    }
    return Boxed<Op, &check_and_run<&run_boxed>>::call(args...);
  }
};

template <template <class, class> class Kernel, class... Ops>
void add(torch::Library& m) {
  const auto impl = [&](const char* name, const char* overload, auto* kernel) {
    m.impl(
        *overload ? (std::string(name) + "." + overload).c_str() : name, routed(torch::CppFunction(kernel), "unboxed"));
  };
  (impl(Ops::name, Ops::overload_name, &Kernel<Ops, typename Ops::schema>::call), ...);
}

template <class... Ops>
void cpu_kernels(torch::Library& m) {
  add<UnboxedCpuKernel, Ops...>(m);
}

// PyTorch may call dot and vdot with a ZeroTensor: a tensor of zeros that has no memory (torch._efficientzerotensor, a
// tangent of forward-mode differentiation). The result is then a ZeroTensor too (ATen/ZeroTensorFallback.cpp,
// native/Blas.cpp), and the CPU's kernel is called only for its checks and the dtype of its result.
template <class Op, class Schema>
struct InnerProduct;

template <class Op>
struct InnerProduct<Op, Tensor(const Tensor&, const Tensor&)> {
  static Tensor call(const Tensor& self, const Tensor& other) {
    if (C10_LIKELY(!self._is_zerotensor() && !other._is_zerotensor())) {
      return UnboxedCpuKernel<Op>::call(self, other);
    }
    const auto with_memory = [](const Tensor& each) { return each._is_zerotensor() ? at::zeros_like(each) : each; };
    return at::_efficientzerotensor({}, UnboxedCpuKernel<Op>::call(with_memory(self), with_memory(other)).options());
  }
};

// equal() compares no elements, and so does not wait, if the sizes decide, or if both operands are the same view of the
// same memory. As on CUDA (cuda_equal() in native/cuda/Equal.cpp), such operands are equal even if they contain NaN.
template <class Op, class Schema>
struct Equality;

template <class Op>
struct Equality<Op, bool(const Tensor&, const Tensor&)> {
  static bool call(const Tensor& self, const Tensor& other) {
    if (self.device() == other.device() && self.dtype() == other.dtype()) {
      if (self.sizes() != other.sizes()) {
        return false;
      }
      if (self.numel() == 0 || (self.is_alias_of(other) && self.storage_offset() == other.storage_offset() &&
                                self.strides() == other.strides())) {
        return true;
      }
    }
    return UnboxedCpuKernel<Op>::call(self, other);
  }
};

// sum() and mean() of all elements. Their CPU kernels call the overload with dimensions as an operator, and a profile
// would show an operator within one of the same name. PyTorch's tables make one row of the two, with the device time of
// the inner operator, which is 0. So the overload with dimensions is called without a second operator.
template <class Op, class Schema>
struct OverAllElements;

template <class Op>
struct OverAllElements<Op, Tensor(const Tensor&, std::optional<ScalarType>)> {
  struct Computed : Op {
    static Tensor redispatch(c10::DispatchKeySet keys, const Tensor& self, std::optional<ScalarType> dtype) {
      using OverDimensions =
          std::conditional_t<std::is_same_v<Op, at::_ops::sum>, at::_ops::sum_dim_IntList, at::_ops::mean_dim>;
      return OverDimensions::redispatch(keys, self, std::nullopt, false, dtype);
    }
  };
  static Tensor call(const Tensor& self, std::optional<ScalarType> dtype) {
    if (std::is_same_v<Op, at::_ops::sum> && C10_UNLIKELY(is_summed_in_parts(self, dtype))) {
      return sum_in_parts(self, std::nullopt, false, dtype);
    }
    return UnboxedCpuKernel<Computed>::call(self, dtype);
  }
};

template <class Op, class Schema>
struct Sum;

template <class Op>
struct Sum<Op, Tensor(const Tensor&, OptionalIntArrayRef, bool, std::optional<ScalarType>)> {
  static Tensor call(const Tensor& self, OptionalIntArrayRef dims, bool keepdim, std::optional<ScalarType> dtype) {
    return sum_in_parts(self, dims, keepdim, dtype); // only of a large tensor of integers
  }
};

// As on CUDA, randperm(0) draws no number. So the generator and the out= tensor may be of any device.
template <class Op, class Schema>
struct Permutation;

template <class Op>
struct Permutation<Op, Tensor&(c10::SymInt, std::optional<Generator>, Tensor&)> {
  static Tensor& call(c10::SymInt n, std::optional<Generator> generator, Tensor& out) {
    if (C10_UNLIKELY(n == 0)) {
      out.resize_({0});
      return out;
    }
    return UnboxedCpuKernel<Op>::call(std::move(n), std::move(generator), out);
  }
};

// On CUDA, the argument `driver` names an algorithm of cuSOLVER (svd_cusolver() in
// native/cuda/linalg/BatchLinearAlgebraLib.cpp). The CPU's kernel has one algorithm, and refuses the argument. Here the
// names are accepted and have no effect. The driver is checked last, as on CUDA.
template <class Op, class Schema = typename Op::schema>
struct Svd;

template <class Op, class Result, class... Out>
struct Svd<Op, Result(const Tensor&, bool, bool, std::optional<std::string_view>, Out...)> {
  static Result call(
      const Tensor& self, bool full_matrices, bool compute_uv, std::optional<std::string_view> driver, Out... out) {
    Result result = Boxed<Op, &fallback>::call(self, full_matrices, compute_uv, std::nullopt, out...);
    TORCH_CHECK(
        !driver || *driver == "gesvd" || *driver == "gesvdj" || *driver == "gesvda" || self.sym_numel() == 0,
        "torch.linalg.svd: unknown svd driver ",
        *driver,
        " in svd_cusolver computation. Check doc at https://pytorch.org/docs/stable/generated/torch.linalg.svd.html");
    return result;
  }
};

} // namespace

void register_cpu_kernels(torch::Library& m) {
  using namespace at::_ops;
  using at::_ops::equal; // not the function at::equal()

  // Elementwise
  cpu_kernels<
      angle,
      bitwise_and_Tensor,
      bitwise_not,
      bitwise_or_Tensor,
      bitwise_xor_Tensor,
      fill__Tensor,
      gelu,
      gelu_backward,
      hardtanh,
      hardtanh_backward,
      isnan,
      logical_and,
      logical_not,
      logical_or,
      masked_fill__Tensor,
      pow_Scalar,
      rsub_Tensor>(m);

  // Reductions and scans
  cpu_kernels<
      all,
      all_dim,
      amax,
      amin,
      any,
      any_dim,
      argmax,
      argmin,
      cummax,
      cumprod,
      cumsum,
      linalg_vector_norm,
      logsumexp,
      max,
      max_dim,
      mean_dim,
      min,
      min_dim,
      norm_ScalarOpt_dim,
      prod,
      prod_dim_int,
      std_correction,
      sum_IntList_out,
      var_correction,
      var_mean_correction>(m);

  add<OverAllElements, mean, sum>(m);
  add<Sum, sum_dim_IntList>(m);
  add<InnerProduct, dot, vdot>(m);
  add<Equality, equal>(m);

  m.impl("_linalg_svd", routed(torch::CppFunction(&Svd<_linalg_svd>::call), "registered fallback"));
  m.impl("_linalg_svd.U", routed(torch::CppFunction(&Svd<_linalg_svd_U>::call), "registered fallback"));

  // Matrix products, normalisation, pooling, losses
  cpu_kernels<
      addmm,
      addmm_,
      addmv,
      avg_pool2d,
      avg_pool2d_backward,
      addmm_out,
      addmv_out,
      baddbmm,
      binary_cross_entropy,
      binary_cross_entropy_backward,
      bmm,
      bmm_out,
      _adaptive_avg_pool2d,
      huber_loss,
      huber_loss_backward,
      max_pool2d_with_indices,
      max_pool2d_with_indices_backward,
      mm,
      mm_out,
      mse_loss,
      mse_loss_backward,
      native_batch_norm_backward,
      native_group_norm,
      native_group_norm_backward,
      native_layer_norm,
      native_layer_norm_backward,
      nll_loss2d_backward,
      nll_loss_backward,
      nll_loss_forward,
      smooth_l1_loss,
      smooth_l1_loss_backward>(m);

  // Softmax, which can convert the dtype on an accelerator
  m.impl("_softmax", routed(torch::CppFunction(&softmax<_softmax>), "unboxed"));
  m.impl("_softmax_backward_data", routed(torch::CppFunction(&softmax_backward<_softmax_backward_data>), "unboxed"));
  m.impl("_log_softmax", routed(torch::CppFunction(&softmax<_log_softmax>), "unboxed"));
  m.impl(
      "_log_softmax_backward_data",
      routed(torch::CppFunction(&softmax_backward<_log_softmax_backward_data>), "unboxed"));

  // Operators that may raise in a deterministic program
  add<CheckedCpuKernel, _adaptive_avg_pool2d_backward, nll_loss2d_forward>(m);

  // Indexing, joining, sorting
  cpu_kernels<
      _index_put_impl_,
      cat,
      embedding_dense_backward,
      flip,
      gather,
      index_Tensor,
      index_add,
      index_add_,
      index_copy,
      index_fill__int_Scalar,
      index_select,
      masked_select,
      nonzero,
      repeat_interleave_Tensor,
      roll,
      scatter_src,
      scatter_value,
      scatter__src,
      scatter__value,
      scatter_add,
      scatter_add_,
      searchsorted_Tensor,
      sort_stable,
      topk,
      tril,
      triu,
      unique_consecutive,
      bucketize_Tensor>(m);

  // Random numbers; rand, randn and dropout are composed of the operators that work in place
  cpu_kernels<
      bernoulli__Tensor,
      bernoulli__float,
      bernoulli_out,
      exponential_,
      multinomial,
      normal_,
      random_,
      random__from,
      random__to,
      uniform_>(m);

  // Factories
  cpu_kernels<arange_start_out, eye_out, eye_m_out, linspace_out>(m);
  add<Permutation, randperm_generator_out>(m);

  // Optimizers
  cpu_kernels<
      _amp_foreach_non_finite_check_and_unscale_,
      _amp_update_scale_,
      _fused_adagrad_,
      _fused_adam_,
      _fused_adamw_,
      _fused_sgd_>(m);
}

} // namespace at::openreg
