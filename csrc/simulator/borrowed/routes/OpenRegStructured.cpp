#include "simulator/borrowed/routes/OpenRegStructured.h"

#include <ATen/NativeFunctions.h>
#include <ATen/Operators.h>
#include <ATen/native/Activation.h>
#include <ATen/native/BinaryOps.h>
#include <ATen/native/Fill.h>
#include <ATen/native/IndexKernel.h>
#include <ATen/native/Lerp.h>
#include <ATen/native/PointwiseOps.h>
#include <ATen/native/Pow.h>
#include <ATen/native/TensorCompare.h>
#include <ATen/native/UnaryOps.h>

#include "simulator/borrowed/Structured.h"
#include "simulator/borrowed/Stub.h"
#include "simulator/borrowed/routes/Route.h"

// Elementwise operators whose checks, promotion and iteration are PyTorch's: the backend supplies the output
// (structured kernels) and the inner loop (stubs).
namespace at::openreg {
namespace {

void add(torch::Library& m, const char* name, const char* overload, auto* kernel) {
  m.impl(
      *overload ? (std::string(name) + "." + overload).c_str() : name,
      routed(torch::CppFunction(kernel), "structured"));
}

// A stub, and its name for profilers.
template <auto& stub, StubName name>
struct Stub {
  static void fill() {
    stub.set_privateuse1_dispatch_ptr(&StubKernel<stub, name>::call);
  }
};
#define STUB(stub) Stub<native::stub, #stub>()

// Registers the operators that one structured kernel computes, and fills the stubs that this kernel calls.
template <class Kernel, class... Ops, class... Stubs>
void structured(torch::Library& m, Stubs... stubs) {
  (stubs.fill(), ...);
  (add(m, Ops::name, Ops::overload_name, &Named<Ops, &StructuredKernel<Kernel, Ops>::call>::call), ...);
}

// Registers an operator for which PyTorch has one function for all devices, and fills the stubs that it calls.
template <class Op, auto kernel, class... Stubs>
void shared(torch::Library& m, Stubs... stubs) {
  (stubs.fill(), ...);
  add(m, Op::name, Op::overload_name, &Named<Op, &SharedKernel<Op, kernel>::call>::call);
}

// An overloaded name cannot be a template argument. Each of these constants names one overload.
constexpr auto fill_number_ = static_cast<Tensor& (*)(Tensor&, const Scalar&)>(native::fill_);
constexpr auto fill_mask_ = static_cast<Tensor& (*)(Tensor&, const Tensor&, const Scalar&)>(native::masked_fill__cpu);
constexpr auto select = static_cast<Tensor (*)(const Tensor&, const Tensor&, const Tensor&)>(native::where);

} // namespace

void register_structured(torch::Library& m) {
  // LITERALINCLUDE START: STRUCTURED
  structured<native::structured_ufunc_add_CPU, _ops::add_Tensor, _ops::add__Tensor, _ops::add_out>(m, STUB(add_stub));
  structured<native::structured_sub_out, _ops::sub_Tensor, _ops::sub__Tensor, _ops::sub_out>(m); // through add_stub
  structured<native::structured_mul_out, _ops::mul_Tensor, _ops::mul__Tensor, _ops::mul_out>(m, STUB(mul_stub));
  structured<native::structured_div_out, _ops::div_Tensor, _ops::div__Tensor, _ops::div_out>(m, STUB(div_true_stub));
  // LITERALINCLUDE END: STRUCTURED
  structured<native::structured_acos_out, _ops::acos>(m, STUB(acos_stub));
  structured<native::structured_addcdiv_out, _ops::addcdiv, _ops::addcdiv_>(m, STUB(addcdiv_stub));
  structured<native::structured_addcmul_out, _ops::addcmul, _ops::addcmul_>(m, STUB(addcmul_stub));
  structured<native::structured_asin_out, _ops::asin>(m, STUB(asin_stub));
  structured<native::structured_atan2_out, _ops::atan2>(m, STUB(atan2_stub));
  structured<native::structured_atan_out, _ops::atan>(m, STUB(atan_stub));
  structured<native::structured_ceil_out, _ops::ceil>(m, STUB(ceil_stub));
  structured<native::structured_clamp_Tensor_out, _ops::clamp_Tensor>(m, STUB(clamp_stub));
  structured<native::structured_clamp_max_out, _ops::clamp_max>(m, STUB(clamp_max_scalar_stub));
  structured<native::structured_clamp_min_out, _ops::clamp_min>(m, STUB(clamp_min_scalar_stub));
  structured<native::structured_clamp_out, _ops::clamp, _ops::clamp_>(m, STUB(clamp_scalar_stub));
  structured<native::structured_cos_out, _ops::cos>(m, STUB(cos_stub));
  structured<native::structured_cosh_out, _ops::cosh>(m, STUB(cosh_stub));
  structured<native::structured_div_out_mode, _ops::div_Tensor_mode>(m, STUB(div_floor_stub), STUB(div_trunc_stub));
  structured<native::structured_elu_backward_out, _ops::elu_backward>(m, STUB(elu_backward_stub));
  structured<native::structured_elu_out, _ops::elu>(m, STUB(elu_stub));
  structured<native::structured_eq_Scalar_out, _ops::eq_Scalar>(m, STUB(eq_stub));
  structured<native::structured_eq_Tensor_out, _ops::eq_Tensor>(m);
  structured<native::structured_erf_out, _ops::erf>(m, STUB(erf_stub));
  structured<native::structured_exp_out, _ops::exp, _ops::exp_>(m, STUB(exp_stub));
  structured<native::structured_expm1_out, _ops::expm1>(m, STUB(expm1_stub));
  structured<native::structured_floor_out, _ops::floor>(m, STUB(floor_stub));
  structured<native::structured_fmod_out, _ops::fmod_Tensor>(m, STUB(fmod_stub));
  structured<native::structured_ge_Scalar_out, _ops::ge_Scalar>(m, STUB(ge_stub));
  structured<native::structured_ge_Tensor_out, _ops::ge_Tensor>(m);
  structured<native::structured_gt_Scalar_out, _ops::gt_Scalar>(m, STUB(gt_stub));
  structured<native::structured_gt_Tensor_out, _ops::gt_Tensor>(m);
  structured<native::structured_le_Scalar_out, _ops::le_Scalar>(m, STUB(le_stub));
  structured<native::structured_le_Tensor_out, _ops::le_Tensor>(m);
  structured<native::structured_leaky_relu_backward_out, _ops::leaky_relu_backward>(m, STUB(leaky_relu_backward_stub));
  structured<native::structured_leaky_relu_out, _ops::leaky_relu>(m, STUB(leaky_relu_stub));
  structured<native::structured_lerp_Scalar, _ops::lerp_Scalar, _ops::lerp__Scalar>(m, STUB(lerp_kernel_scalar_weight));
  structured<native::structured_lerp_Tensor, _ops::lerp_Tensor, _ops::lerp__Tensor>(m, STUB(lerp_kernel_tensor_weight));
  structured<native::structured_log10_out, _ops::log10>(m, STUB(log10_stub));
  structured<native::structured_log1p_out, _ops::log1p>(m, STUB(log1p_stub));
  structured<native::structured_log2_out, _ops::log2>(m, STUB(log2_stub));
  structured<native::structured_log_out, _ops::log, _ops::log_>(m, STUB(log_stub));
  structured<native::structured_lt_Scalar_out, _ops::lt_Scalar>(m, STUB(lt_stub));
  structured<native::structured_lt_Tensor_out, _ops::lt_Tensor>(m);
  structured<native::structured_maximum_out, _ops::maximum>(m, STUB(maximum_stub));
  structured<native::structured_minimum_out, _ops::minimum>(m, STUB(minimum_stub));
  structured<native::structured_ne_Scalar_out, _ops::ne_Scalar>(m, STUB(ne_stub));
  structured<native::structured_ne_Tensor_out, _ops::ne_Tensor>(m);
  structured<native::structured_neg_out, _ops::neg, _ops::neg_>(m, STUB(neg_stub));
  structured<native::structured_pow_Tensor_Scalar_out, _ops::pow_Tensor_Scalar>(m, STUB(pow_tensor_scalar_stub));
  structured<native::structured_pow_Tensor_Tensor_out, _ops::pow_Tensor_Tensor>(m, STUB(pow_tensor_tensor_stub));
  structured<native::structured_reciprocal_out, _ops::reciprocal>(m, STUB(reciprocal_stub));
  structured<native::structured_remainder_out, _ops::remainder_Tensor>(m, STUB(remainder_stub));
  structured<native::structured_round_out, _ops::round>(m, STUB(round_stub));
  structured<native::structured_rsqrt_out, _ops::rsqrt>(m, STUB(rsqrt_stub));
  structured<native::structured_sigmoid_backward_out, _ops::sigmoid_backward>(m, STUB(sigmoid_backward_stub));
  structured<native::structured_sigmoid_out, _ops::sigmoid, _ops::sigmoid_>(m, STUB(sigmoid_stub));
  structured<native::structured_sign_out, _ops::sign>(m, STUB(sign_stub));
  structured<native::structured_silu_backward_out, _ops::silu_backward>(m, STUB(silu_backward_stub));
  structured<native::structured_silu_out, _ops::silu>(m, STUB(silu_stub));
  structured<native::structured_sin_out, _ops::sin>(m, STUB(sin_stub));
  structured<native::structured_sinh_out, _ops::sinh>(m, STUB(sinh_stub));
  structured<native::structured_softplus_out, _ops::softplus>(m, STUB(softplus_stub));
  structured<native::structured_sqrt_out, _ops::sqrt, _ops::sqrt_>(m, STUB(sqrt_stub));
  structured<native::structured_tan_out, _ops::tan>(m, STUB(tan_stub));
  structured<native::structured_tanh_backward_out, _ops::tanh_backward>(m, STUB(tanh_backward_stub));
  structured<native::structured_tanh_out, _ops::tanh, _ops::tanh_>(m, STUB(tanh_stub));
  structured<native::structured_threshold_backward_out, _ops::threshold_backward>(m); // through threshold_stub
  structured<native::structured_threshold_out, _ops::threshold>(m, STUB(threshold_stub));
  structured<native::structured_trunc_out, _ops::trunc>(m, STUB(trunc_stub));

  shared<_ops::abs_out, native::abs_out>(m, STUB(abs_stub));
  shared<_ops::fill__Scalar, fill_number_>(m, STUB(fill_stub));
  shared<_ops::masked_fill__Scalar, fill_mask_>(m, STUB(masked_fill_stub));
  shared<_ops::relu, native::relu>(m);
  shared<_ops::relu_, native::relu_>(m);
  shared<_ops::where_self, select>(m, STUB(where_kernel));
  STUB(kaiser_window_stub).fill(); // kaiser_window() is a composite operator that calls this stub
}

} // namespace at::openreg
