#pragma once

#include <tuple>
#include <vector>

#include "aten/native/InlineOrQueued.h"
#include "simulator/borrowed/Fallback.h"
#include "simulator/borrowed/KernelScope.h"
#include "simulator/borrowed/random/RandomKernels.h"
#include "simulator/borrowed/routes/Wider.h"

// Runs the CPU kernel of an operator on device memory, as the fallback does (Fallback.h), but without boxing: for
// operators so frequent that building a stack of IValues costs too much time.
//
//   m.impl("add.Tensor", UnboxedCpuKernel<at::_ops::add_Tensor>::call);
//
// The steps are those of run_boxed() in Fallback.cpp, except that CpuKernel never queues. The types of the arguments
// are known at compile time.
namespace at::openreg {

// A list of borrowed tensors: the list does not own them, and their owner must keep them alive.
class BorrowedTensors {
 public:
  BorrowedTensors() = default;
  BorrowedTensors(BorrowedTensors&&) = default;
  ~BorrowedTensors() {
    for (Tensor& tensor : tensors_) {
      Borrow::destroyBorrow(tensor);
    }
  }
  void reserve(size_t size) {
    tensors_.reserve(size);
  }
  void push_back(const Tensor& tensor) {
    tensors_.push_back(Borrow::createBorrow(tensor));
  }
  template <class List> // TensorList, ITensorListRef
  operator List() const {
    return List(tensors_);
  }

 private:
  using Borrow = c10::MaybeOwnedTraits<Tensor>;
  std::vector<Tensor> tensors_;
};

// What the CPU kernel gets for `value`: aliases for tensors, the CPU's generator for a generator, any other value
// itself.
template <class T>
decltype(auto) aliased(KernelScope& scope, T& value) {
  using Value = std::remove_const_t<T>;
  if constexpr (std::is_same_v<Value, Tensor>) {
    return scope.alias(value);
  } else if constexpr (std::is_same_v<Value, std::optional<Tensor>>) {
    return value.has_value() ? std::optional<Tensor>(*scope.alias(*value)) : std::nullopt;
  } else if constexpr (std::is_same_v<Value, c10::List<std::optional<Tensor>>>) {
    c10::List<std::optional<Tensor>> list;
    list.reserve(value.size());
    for (const OptionalTensorRef tensor : IOptTensorListRef(value)) {
      list.push_back(tensor.has_value() ? std::optional<Tensor>(*scope.alias(*tensor)) : std::nullopt);
    }
    return list;
  } else if constexpr (std::is_same_v<Value, TensorList> || std::is_same_v<Value, ITensorListRef>) {
    BorrowedTensors list;
    list.reserve(value.size());
    for (const Tensor& tensor : value) {
      list.push_back(*scope.alias(tensor));
    }
    return list;
  } else if constexpr (std::is_same_v<Value, std::optional<Generator>>) {
    return std::optional<Generator>(scope.generator(value));
  } else {
    return (value);
  }
}

inline Tensor& argument_of(c10::MaybeOwned<Tensor>& alias) {
  return const_cast<Tensor&>(*alias); // an in-place kernel takes a `self` that is not const
}
template <class T>
T& argument_of(T& operand) {
  return operand;
}

// Converts the results of the CPU kernel to device tensors.
template <class... Tensors>
std::tuple<Tensors...> results(KernelScope& scope, std::tuple<Tensors...>&& values) {
  return std::apply([&](auto&... value) { return std::tuple<Tensors...>(scope.result(std::move(value))...); }, values);
}

inline Tensor results(KernelScope& scope, Tensor&& value) {
  return scope.result(std::move(value));
}

inline bool results(KernelScope&, bool value) { // equal()
  return value;
}

inline std::vector<Tensor> results(KernelScope& scope, std::vector<Tensor>&& values) {
  for (Tensor& value : values) {
    value = scope.result(std::move(value));
  }
  return std::move(values);
}

template <class Op, class Schema = typename Op::schema>
struct CpuKernel;

template <class Op, class Result, class... Args>
struct CpuKernel<Op, Result(Args...)> {
  static Result call(Args... args) {
    KernelScope scope(traits_of<Op>());
    const c10::Argument* argument = schema_of<Op>().arguments().data();
    (add_argument(scope, args, *argument++), ...);
    scope.enter();

    std::tuple<decltype(aliased(scope, args))...> operands{aliased(scope, args)...};
    const auto run = [](auto&... operand) -> decltype(auto) {
      if constexpr ((std::is_same_v<Args, std::optional<Generator>> || ...)) {
        if (C10_UNLIKELY(draws_as_gpu)) {
          return run_random_kernel<Op, Result, Args...>(argument_of(operand)...);
        }
      }
      return Op::redispatch(c10::DispatchKeySet(c10::DispatchKey::CPU), argument_of(operand)...);
    };
    if constexpr (std::is_void_v<Result>) { // in-place on lists
      std::apply(run, operands);
    } else if constexpr (std::is_same_v<Result, Tensor&>) { // in-place, out=: the result is the Tensor& argument
      scope.run_and_write_back([&] { std::apply(run, operands); });
      Tensor* written = nullptr;
      const auto note = [&](auto&& argument) {
        if constexpr (std::is_same_v<decltype(argument), Tensor&>) {
          written = &argument;
        }
      };
      (note(static_cast<Args&&>(args)), ...);
      return *written;
    } else {
      return results(scope, std::apply(run, operands));
    }
  }
};

// If the device executes inline (each kernel at once, on the calling thread), calls `route`. Otherwise calls
// run_boxed(), which may queue the call.
template <class Op, auto route, class Schema = typename Op::schema>
using Unboxed = InlineOrQueued<Op, route, &run_boxed, Schema>;

// The kernel to register for `Op`: runs CpuKernel if the device executes inline, else run_boxed(), which may queue the
// call. An operand of a dtype for which the CPU has no kernel is widened.
template <class Op, class Schema = typename Op::schema>
struct UnboxedCpuKernel;

template <class Op, class Result, class... Args>
struct UnboxedCpuKernel<Op, Result(Args...)> {
  static Result call(Args... args) {
    if (C10_UNLIKELY(is_narrow_call<Op>(args...))) {
      return Boxed<Op, &compute_in_wider_dtype<Op>>::call(args...);
    }
    return Unboxed<Op, &CpuKernel<Op>::call>::call(args...);
  }
};

} // namespace at::openreg
