#include "aten/native/Recurrent.h"

#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_thnn_fused_gru_cell_backward_ops.h>
#include <ATen/ops/_thnn_fused_gru_cell_ops.h>
#include <ATen/ops/_thnn_fused_lstm_cell_backward_impl_ops.h>
#include <ATen/ops/_thnn_fused_lstm_cell_ops.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>

#include "aten/native/DeviceCheck.h"

namespace at::openreg {
namespace {

Tensor join(TensorList gates) {
  return at::cat(gates, 1);
}

// Splits the columns of a tensor into `count` parts of equal size: gates, and in a workspace also other saved values.
std::vector<Tensor> gates_of(const Tensor& gates, int64_t count) {
  TORCH_CHECK(
      gates.dim() == 2 && gates.size(1) % count == 0,
      "Expected a tensor of 2 dimensions whose number of columns is a multiple of ",
      count,
      ", but got a tensor of sizes ",
      gates.sizes());
  return gates.unsafe_chunk(count, 1);
}

// Half precision is computed in float32, as in CUDA's fused cells.
Tensor widened(const Tensor& tensor) {
  const ScalarType type = toOpMathType(tensor.scalar_type());
  return type == tensor.scalar_type() ? tensor : tensor.to(type);
}

Tensor widened_with_bias(const Tensor& gates, const std::optional<Tensor>& bias) {
  return bias && bias->defined() ? widened(gates) + *bias : widened(gates);
}

// The result in the dtype of `like`.
Tensor rounded(const Tensor& result, const Tensor& like) {
  return result.scalar_type() == like.scalar_type() ? result : result.to(like.scalar_type());
}

// d sigmoid(x) / dx and d tanh(x) / dx, computed from y = sigmoid(x) and y = tanh(x).
Tensor sigmoid_slope(const Tensor& y) {
  return y * (1 - y);
}
Tensor tanh_slope(const Tensor& y) {
  return 1 - y * y;
}

} // namespace

std::tuple<Tensor, Tensor, Tensor> _thnn_fused_lstm_cell(
    const Tensor& input_gates,
    const Tensor& hidden_gates,
    const Tensor& cx,
    const std::optional<Tensor>& input_bias,
    const std::optional<Tensor>& hidden_bias) {
  check_devices<at::_ops::_thnn_fused_lstm_cell>(input_gates, hidden_gates, cx, input_bias, hidden_bias);
  const Tensor workspace = widened_with_bias(hidden_gates, hidden_bias) + widened_with_bias(input_gates, input_bias);
  const auto gates = gates_of(workspace, 4);
  Tensor in = gates[0].sigmoid_(), forget = gates[1].sigmoid_(), cell = gates[2].tanh_(), out = gates[3].sigmoid_();
  const Tensor cy = (forget * cx).add_(in * cell);
  return {rounded(out * cy.tanh(), cx), rounded(cy, cx), rounded(workspace, cx)};
}

std::tuple<Tensor, Tensor, Tensor> _thnn_fused_lstm_cell_backward_impl(
    const std::optional<Tensor>& grad_hy,
    const std::optional<Tensor>& grad_cy,
    const Tensor& cx,
    const Tensor& cy,
    const Tensor& workspace,
    bool has_bias) {
  check_devices<at::_ops::_thnn_fused_lstm_cell_backward_impl>(grad_hy, grad_cy, cx, cy, workspace);
  const bool has_hy = grad_hy && grad_hy->defined();
  const bool has_cy = grad_cy && grad_cy->defined();
  if (!has_hy && !has_cy) {
    return {};
  }
  const auto gates = gates_of(widened(workspace), 4);
  const Tensor &in = gates[0], &forget = gates[1], &cell = gates[2], &out = gates[3];
  const Tensor tanh_cy = widened(cy).tanh();
  Tensor grad_cell_state = has_cy ? widened(*grad_cy) : at::zeros_like(tanh_cy);
  Tensor grad_out = at::zeros_like(out);
  if (has_hy) {
    grad_out = *grad_hy * tanh_cy;
    grad_cell_state = grad_cell_state + *grad_hy * out * tanh_slope(tanh_cy);
  }
  const Tensor grad_gates = rounded(
      join(
          {grad_cell_state * cell * sigmoid_slope(in),
           grad_cell_state * cx * sigmoid_slope(forget),
           grad_cell_state * in * tanh_slope(cell),
           grad_out * sigmoid_slope(out)}),
      cx);
  return {grad_gates, rounded(grad_cell_state * forget, cx), has_bias ? grad_gates.sum(0) : Tensor()};
}

std::tuple<Tensor, Tensor> _thnn_fused_gru_cell(
    const Tensor& input_gates,
    const Tensor& hidden_gates,
    const Tensor& hx,
    const std::optional<Tensor>& input_bias,
    const std::optional<Tensor>& hidden_bias) {
  check_devices<at::_ops::_thnn_fused_gru_cell>(input_gates, hidden_gates, hx, input_bias, hidden_bias);
  const auto in = gates_of(widened_with_bias(input_gates, input_bias), 3);
  const auto hidden = gates_of(widened_with_bias(hidden_gates, hidden_bias), 3);
  const Tensor reset = (hidden[0] + in[0]).sigmoid_();
  const Tensor update = (hidden[1] + in[1]).sigmoid_();
  const Tensor candidate = (in[2] + hidden[2] * reset).tanh_();
  return {
      rounded((hx - candidate).mul_(update).add_(candidate), hx),
      rounded(join({reset, update, candidate, widened(hx), hidden[2]}), hx)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> _thnn_fused_gru_cell_backward(
    const Tensor& grad_hy, const Tensor& workspace, bool has_bias) {
  check_devices<at::_ops::_thnn_fused_gru_cell_backward>(grad_hy, workspace);
  const auto saved = gates_of(widened(workspace), 5);
  const Tensor &reset = saved[0], &update = saved[1], &candidate = saved[2], &hx = saved[3],
               &hidden_candidate = saved[4];
  const Tensor grad_candidate = grad_hy * (1 - update) * tanh_slope(candidate);
  const Tensor grad_update = grad_hy * (hx - candidate) * sigmoid_slope(update);
  const Tensor grad_reset = grad_candidate * hidden_candidate * sigmoid_slope(reset);
  const Tensor grad_input = rounded(join({grad_reset, grad_update, grad_candidate}), grad_hy);
  const Tensor grad_hidden = rounded(join({grad_reset, grad_update, grad_candidate * reset}), grad_hy);
  return {
      grad_input,
      grad_hidden,
      rounded(grad_hy * update, grad_hy),
      has_bias ? grad_input.sum(0) : Tensor(),
      has_bias ? grad_hidden.sum(0) : Tensor()};
}

} // namespace at::openreg
