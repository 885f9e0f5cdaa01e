#pragma once

#include <ATen/core/Tensor.h>

// Fused LSTM and GRU cells. PyTorch's RNNs call these operators on every PrivateUse1 device, so a backend must supply
// them. These operators have no CPU kernels, because on the CPU PyTorch's RNNs call other operators. Here the cells are
// computed with other operators of the device.
namespace at::openreg {

// Returns hy, cy, and the activated gates, which the backward needs.
std::tuple<Tensor, Tensor, Tensor> _thnn_fused_lstm_cell(
    const Tensor& input_gates,
    const Tensor& hidden_gates,
    const Tensor& cx,
    const std::optional<Tensor>& input_bias,
    const std::optional<Tensor>& hidden_bias);
// Returns the gradients of the gates, of cx, and one gradient for both biases (undefined if `has_bias` is false).
// Without grad_hy and grad_cy, all three are undefined.
std::tuple<Tensor, Tensor, Tensor> _thnn_fused_lstm_cell_backward_impl(
    const std::optional<Tensor>& grad_hy,
    const std::optional<Tensor>& grad_cy,
    const Tensor& cx,
    const Tensor& cy,
    const Tensor& workspace,
    bool has_bias);

// Returns hy, and a tensor that the backward needs: the activated gates (reset, update, candidate), hx, and the
// candidate's hidden gate with its bias, before the reset gate multiplies it.
std::tuple<Tensor, Tensor> _thnn_fused_gru_cell(
    const Tensor& input_gates,
    const Tensor& hidden_gates,
    const Tensor& hx,
    const std::optional<Tensor>& input_bias,
    const std::optional<Tensor>& hidden_bias);
// Returns the gradients of the input gates, of the hidden gates, of hx, and of both biases (undefined if `has_bias` is
// false).
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> _thnn_fused_gru_cell_backward(
    const Tensor& grad_hy, const Tensor& workspace, bool has_bias);

} // namespace at::openreg
