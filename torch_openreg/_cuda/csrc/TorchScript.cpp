#include <c10/core/Event.h>
#include <torch/custom_class.h>

#include "runtime/OpenRegStream.h"

// What TorchScript knows of torch.cuda: the classes Stream and Event, and the operators to which torch.jit.script
// compiles calls of torch.cuda's functions. A CPU build of PyTorch has neither. Their names and arguments are those of
// torch/csrc/jit/cuda/cuda.h and torch/csrc/jit/runtime/register_cuda_ops.cpp.
namespace c10::openreg {
namespace {

// The device of a stream: without an index, the current one.
DeviceIndex index_of(std::optional<Device> device) {
  return device ? with_index(*device).index() : current_device();
}

DeviceIndex checked_index(int64_t index) {
  check_device_index(index);
  return static_cast<DeviceIndex>(index);
}

// The device of a stream: a negative index means the current one, as in c10/cuda/CUDAStream.h.
DeviceIndex index_of(std::optional<int64_t> index) {
  return index.value_or(-1) < 0 ? current_device() : checked_index(*index);
}

struct ScriptStream final : torch::CustomClassHolder {
  explicit ScriptStream(const Stream& stream) : stream(stream) {}
  ScriptStream(std::optional<Device> device, int64_t priority)
      : stream(getStreamFromPool(static_cast<int>(priority), index_of(device))) {}

  const Stream stream;
};

struct ScriptEvent final : torch::CustomClassHolder {
  // `blocking` says how the host waits on CUDA. An event of TorchScript has no handle for other processes.
  ScriptEvent(bool enable_timing, bool /*blocking*/, bool interprocess)
      : event(DeviceType::CUDA, enable_timing ? EventFlag::BACKEND_DEFAULT : EventFlag::PYTORCH_DEFAULT) {
    TORCH_CHECK(!interprocess || !enable_timing, "torch.cuda.Event: interprocess=True needs enable_timing=False.");
  }

  Event event;
};

using ScriptStreamPtr = intrusive_ptr<ScriptStream>;
using EventPtr = intrusive_ptr<ScriptEvent>;

ScriptStreamPtr script_stream(const Stream& stream) {
  return make_intrusive<ScriptStream>(stream);
}

TORCH_LIBRARY(cuda, m) {
  // Both classes exist before a method of either uses them.
  auto stream = m.class_<ScriptStream>("Stream").def(
      torch::init<std::optional<Device>, int64_t>(),
      "",
      {torch::arg("device") = std::nullopt, torch::arg("priority") = 0});
  auto event = m.class_<ScriptEvent>("Event").def(
      torch::init<bool, bool, bool>(),
      "",
      {torch::arg("enable_timing") = false, torch::arg("blocking") = false, torch::arg("interprocess") = false});
  stream.def("query", [](const ScriptStreamPtr& self) { return self->stream.query(); })
      .def("synchronize", [](const ScriptStreamPtr& self) { self->stream.synchronize(); })
      .def("wait_event", [](const ScriptStreamPtr& self, const EventPtr& event) { event->event.block(self->stream); })
      .def(
          "wait_stream",
          [](const ScriptStreamPtr& self, const ScriptStreamPtr& other) {
            wait_for_stream(self->stream, other->stream);
          })
      .def(
          "record_event",
          [](const ScriptStreamPtr& self, const EventPtr& event) {
            event->event.record(self->stream);
            return event;
          })
      .def("device_index", [](const ScriptStreamPtr& self) { return int64_t(self->stream.device_index()); })
      .def_property("device", [](const ScriptStreamPtr& self) { return self->stream.device(); })
      .def("id", [](const ScriptStreamPtr& self) { return int64_t(self->stream.id()); });
  event.def("query", [](const EventPtr& self) { return self->event.query(); })
      .def("synchronize", [](const EventPtr& self) { self->event.synchronize(); })
      .def("record", [](const EventPtr& self, const ScriptStreamPtr& stream) { self->event.record(stream->stream); })
      .def("wait", [](const EventPtr& self, const ScriptStreamPtr& stream) { self->event.block(stream->stream); })
      .def("elapsed_time", [](const EventPtr& self, const EventPtr& end) {
        return self->event.elapsedTime(end->event);
      });

  // These operators depend on the current device or stream, or change it. Node::hasSideEffects() in
  // torch/csrc/jit/ir/ir.cpp lists only some of them, and the optimiser would fold, merge or remove the others.
  const auto stateful = [](const char* schema) { return torch::schema(schema, AliasAnalysisKind::CONSERVATIVE); };
  m.def(
      stateful("current_stream.device(Device? device) -> __torch__.torch.classes.cuda.Stream"),
      [](std::optional<Device> device) { return script_stream(getCurrentOpenRegStream(index_of(device))); });
  m.def(
      stateful("current_stream.int(int? val) -> __torch__.torch.classes.cuda.Stream"),
      [](std::optional<int64_t> index) { return script_stream(getCurrentOpenRegStream(index_of(index))); });
  m.def(
      stateful("default_stream.device(Device? device) -> __torch__.torch.classes.cuda.Stream"),
      [](std::optional<Device> device) { return script_stream(getDefaultOpenRegStream(index_of(device))); });
  m.def(
      stateful("default_stream.int(int? val) -> __torch__.torch.classes.cuda.Stream"),
      [](std::optional<int64_t> index) { return script_stream(getDefaultOpenRegStream(index_of(index))); });
  m.def(stateful("set_stream(__torch__.torch.classes.cuda.Stream stream) -> ()"), [](const ScriptStreamPtr& stream) {
    set_device(stream->stream.device_index());
    setCurrentOpenRegStream(OpenRegStream(stream->stream));
  });
  m.def(stateful("_current_device() -> int"), [] { return int64_t(current_device()); });
  m.def(stateful("_set_device(int val) -> ()"), [](int64_t index) { set_device(checked_index(index)); });
  m.def(stateful("_exchange_device(int index) -> int"), [](int64_t index) {
    return int64_t(exchange_device(index < 0 ? -1 : checked_index(index)));
  });
  m.def(stateful("_maybe_exchange_device(int index) -> int"), [](int64_t index) {
    return int64_t(maybe_exchange_device(index < 0 ? -1 : checked_index(index)));
  });
  m.def(stateful("synchronize() -> ()"), [] { device_synchronize(); });
  m.def(stateful("synchronize.device(Device? device) -> ()"), [](std::optional<Device> device) {
    device_synchronize(device ? checked_index(device->index()) : current_device());
  });
  m.def(stateful("synchronize.int(int? val) -> ()"), [](std::optional<int64_t> index) {
    device_synchronize(index ? checked_index(*index) : current_device());
  });
  m.def("device_index(Device device) -> int", [](Device device) { return int64_t(device.index()); });
  m.def("device_count() -> int", [] { return int64_t(device_count()); });
}

} // namespace
} // namespace c10::openreg
