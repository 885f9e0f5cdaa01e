#include "OpenRegStructured.h"

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
#include <torch/library.h>

#include "../Structured.h"
#include "../Stub.h"
#include "Route.h"

// Elementwise operators whose checks, promotion and iteration are PyTorch's: the backend supplies the output (structured
// kernels) and the inner loop (stubs).
namespace at::openreg {
namespace {

// LITERALINCLUDE START: STRUCTURED
void add(torch::Library& m, const char* name, const char* overload, auto* kernel) {
  m.impl(
      *overload ? (std::string(name) + "." + overload).c_str() : name,
      routed(torch::CppFunction(kernel), "structured"));
}

template <class Kernel, class... Ops>
void structured(torch::Library& m) {
  (add(m, Ops::name, Ops::overload_name, &Unboxed<Ops, &StructuredKernel<Kernel, Ops>::call>::call), ...);
}

template <class Op, auto kernel>
void shared(torch::Library& m) {
  add(m, Op::name, Op::overload_name, &Unboxed<Op, &SharedKernel<Op, kernel>::call>::call);
}

// Overloads of one name cannot be template arguments.
constexpr auto fill_number_ = static_cast<Tensor& (*)(Tensor&, const Scalar&)>(native::fill_);
constexpr auto fill_mask_ = static_cast<Tensor& (*)(Tensor&, const Tensor&, const Scalar&)>(native::masked_fill__cpu);
constexpr auto select = static_cast<Tensor (*)(const Tensor&, const Tensor&, const Tensor&)>(native::where);

} // namespace

void register_structured() {
  static torch::Library m(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  structured<native::structured_ufunc_add_CPU, _ops::add_Tensor, _ops::add__Tensor, _ops::add_out>(m);
  structured<native::structured_sub_out, _ops::sub_Tensor, _ops::sub__Tensor, _ops::sub_out>(m);
  structured<native::structured_mul_out, _ops::mul_Tensor, _ops::mul__Tensor, _ops::mul_out>(m);
  structured<native::structured_div_out, _ops::div_Tensor, _ops::div__Tensor, _ops::div_out>(m);
  // LITERALINCLUDE END: STRUCTURED
  structured<native::structured_acos_out, _ops::acos>(m);
  structured<native::structured_addcdiv_out, _ops::addcdiv, _ops::addcdiv_>(m);
  structured<native::structured_addcmul_out, _ops::addcmul, _ops::addcmul_>(m);
  structured<native::structured_asin_out, _ops::asin>(m);
  structured<native::structured_atan2_out, _ops::atan2>(m);
  structured<native::structured_atan_out, _ops::atan>(m);
  structured<native::structured_ceil_out, _ops::ceil>(m);
  structured<native::structured_clamp_Tensor_out, _ops::clamp_Tensor>(m);
  structured<native::structured_clamp_max_out, _ops::clamp_max>(m);
  structured<native::structured_clamp_min_out, _ops::clamp_min>(m);
  structured<native::structured_clamp_out, _ops::clamp, _ops::clamp_>(m);
  structured<native::structured_cos_out, _ops::cos>(m);
  structured<native::structured_cosh_out, _ops::cosh>(m);
  structured<native::structured_div_out_mode, _ops::div_Tensor_mode>(m);
  structured<native::structured_elu_backward_out, _ops::elu_backward>(m);
  structured<native::structured_elu_out, _ops::elu>(m);
  structured<native::structured_eq_Scalar_out, _ops::eq_Scalar>(m);
  structured<native::structured_eq_Tensor_out, _ops::eq_Tensor>(m);
  structured<native::structured_erf_out, _ops::erf>(m);
  structured<native::structured_exp_out, _ops::exp, _ops::exp_>(m);
  structured<native::structured_expm1_out, _ops::expm1>(m);
  structured<native::structured_floor_out, _ops::floor>(m);
  structured<native::structured_fmod_out, _ops::fmod_Tensor>(m);
  structured<native::structured_ge_Scalar_out, _ops::ge_Scalar>(m);
  structured<native::structured_ge_Tensor_out, _ops::ge_Tensor>(m);
  structured<native::structured_gt_Scalar_out, _ops::gt_Scalar>(m);
  structured<native::structured_gt_Tensor_out, _ops::gt_Tensor>(m);
  structured<native::structured_le_Scalar_out, _ops::le_Scalar>(m);
  structured<native::structured_le_Tensor_out, _ops::le_Tensor>(m);
  structured<native::structured_leaky_relu_backward_out, _ops::leaky_relu_backward>(m);
  structured<native::structured_leaky_relu_out, _ops::leaky_relu>(m);
  structured<native::structured_lerp_Scalar, _ops::lerp_Scalar, _ops::lerp__Scalar>(m);
  structured<native::structured_lerp_Tensor, _ops::lerp_Tensor, _ops::lerp__Tensor>(m);
  structured<native::structured_log10_out, _ops::log10>(m);
  structured<native::structured_log1p_out, _ops::log1p>(m);
  structured<native::structured_log2_out, _ops::log2>(m);
  structured<native::structured_log_out, _ops::log, _ops::log_>(m);
  structured<native::structured_lt_Scalar_out, _ops::lt_Scalar>(m);
  structured<native::structured_lt_Tensor_out, _ops::lt_Tensor>(m);
  structured<native::structured_maximum_out, _ops::maximum>(m);
  structured<native::structured_minimum_out, _ops::minimum>(m);
  structured<native::structured_ne_Scalar_out, _ops::ne_Scalar>(m);
  structured<native::structured_ne_Tensor_out, _ops::ne_Tensor>(m);
  structured<native::structured_neg_out, _ops::neg, _ops::neg_>(m);
  structured<native::structured_pow_Tensor_Scalar_out, _ops::pow_Tensor_Scalar>(m);
  structured<native::structured_pow_Tensor_Tensor_out, _ops::pow_Tensor_Tensor>(m);
  structured<native::structured_reciprocal_out, _ops::reciprocal>(m);
  structured<native::structured_remainder_out, _ops::remainder_Tensor>(m);
  structured<native::structured_round_out, _ops::round>(m);
  structured<native::structured_rsqrt_out, _ops::rsqrt>(m);
  structured<native::structured_sigmoid_backward_out, _ops::sigmoid_backward>(m);
  structured<native::structured_sigmoid_out, _ops::sigmoid, _ops::sigmoid_>(m);
  structured<native::structured_sign_out, _ops::sign>(m);
  structured<native::structured_silu_backward_out, _ops::silu_backward>(m);
  structured<native::structured_silu_out, _ops::silu>(m);
  structured<native::structured_sin_out, _ops::sin>(m);
  structured<native::structured_sinh_out, _ops::sinh>(m);
  structured<native::structured_softplus_out, _ops::softplus>(m);
  structured<native::structured_sqrt_out, _ops::sqrt, _ops::sqrt_>(m);
  structured<native::structured_tan_out, _ops::tan>(m);
  structured<native::structured_tanh_backward_out, _ops::tanh_backward>(m);
  structured<native::structured_tanh_out, _ops::tanh, _ops::tanh_>(m);
  structured<native::structured_threshold_backward_out, _ops::threshold_backward>(m);
  structured<native::structured_threshold_out, _ops::threshold>(m);
  structured<native::structured_trunc_out, _ops::trunc>(m);

  shared<_ops::abs_out, native::abs_out>(m);
  shared<_ops::fill__Scalar, fill_number_>(m);
  shared<_ops::masked_fill__Scalar, fill_mask_>(m);
  shared<_ops::relu, native::relu>(m);
  shared<_ops::relu_, native::relu_>(m);
  shared<_ops::where_self, select>(m);
}

} // namespace at::openreg

// LITERALINCLUDE START: STUB
namespace at::native {

#define OPENREG_STUB(stub)                        \
  static constexpr char name_of_##stub[] = #stub; \
  REGISTER_PRIVATEUSE1_DISPATCH(stub, (&at::openreg::StubKernel<stub, name_of_##stub>::call))

OPENREG_STUB(add_stub)
OPENREG_STUB(mul_stub)
OPENREG_STUB(div_true_stub)
// LITERALINCLUDE END: STUB
OPENREG_STUB(abs_stub)
OPENREG_STUB(acos_stub)
OPENREG_STUB(addcdiv_stub)
OPENREG_STUB(addcmul_stub)
OPENREG_STUB(asin_stub)
OPENREG_STUB(atan2_stub)
OPENREG_STUB(atan_stub)
OPENREG_STUB(ceil_stub)
OPENREG_STUB(clamp_max_scalar_stub)
OPENREG_STUB(clamp_min_scalar_stub)
OPENREG_STUB(clamp_scalar_stub)
OPENREG_STUB(clamp_stub)
OPENREG_STUB(cos_stub)
OPENREG_STUB(cosh_stub)
OPENREG_STUB(div_floor_stub)
OPENREG_STUB(div_trunc_stub)
OPENREG_STUB(elu_backward_stub)
OPENREG_STUB(elu_stub)
OPENREG_STUB(eq_stub)
OPENREG_STUB(erf_stub)
OPENREG_STUB(exp_stub)
OPENREG_STUB(expm1_stub)
OPENREG_STUB(fill_stub)
OPENREG_STUB(floor_stub)
OPENREG_STUB(fmod_stub)
OPENREG_STUB(ge_stub)
OPENREG_STUB(gt_stub)
OPENREG_STUB(le_stub)
OPENREG_STUB(leaky_relu_backward_stub)
OPENREG_STUB(leaky_relu_stub)
OPENREG_STUB(lerp_kernel_scalar_weight)
OPENREG_STUB(lerp_kernel_tensor_weight)
OPENREG_STUB(log10_stub)
OPENREG_STUB(log1p_stub)
OPENREG_STUB(log2_stub)
OPENREG_STUB(log_stub)
OPENREG_STUB(lt_stub)
OPENREG_STUB(masked_fill_stub)
OPENREG_STUB(maximum_stub)
OPENREG_STUB(minimum_stub)
OPENREG_STUB(ne_stub)
OPENREG_STUB(neg_stub)
OPENREG_STUB(pow_tensor_scalar_stub)
OPENREG_STUB(pow_tensor_tensor_stub)
OPENREG_STUB(reciprocal_stub)
OPENREG_STUB(remainder_stub)
OPENREG_STUB(round_stub)
OPENREG_STUB(rsqrt_stub)
OPENREG_STUB(sigmoid_backward_stub)
OPENREG_STUB(sigmoid_stub)
OPENREG_STUB(sign_stub)
OPENREG_STUB(silu_backward_stub)
OPENREG_STUB(silu_stub)
OPENREG_STUB(sin_stub)
OPENREG_STUB(sinh_stub)
OPENREG_STUB(softplus_stub)
OPENREG_STUB(sqrt_stub)
OPENREG_STUB(tan_stub)
OPENREG_STUB(tanh_backward_stub)
OPENREG_STUB(tanh_stub)
OPENREG_STUB(threshold_stub)
OPENREG_STUB(trunc_stub)
OPENREG_STUB(where_kernel)

#undef OPENREG_STUB

} // namespace at::native
