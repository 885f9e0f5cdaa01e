#include "../backend.h"

#include <ATen/core/Tensor.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <torch/csrc/Generator.h>
#include <torch/library.h>

#include "generator.h"
#include "queues.h"

// The third step registers these classes in place of those of csrc/backend.cpp: streams, events and generators.
namespace abacus {
namespace {

// LITERALINCLUDE START: STREAM GUARD
// The id of a stream is the number of its queue. For PyTorch, an event is a void* of the backend, at first nullptr.
struct StreamGuard final : Guard {
  c10::Stream getStream(c10::Device) const override {
    return stream(current_queue());
  }
  c10::Stream getNewStream(c10::Device, int /*priority*/) const override {
    return stream(new_queue());
  }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool /*isHighPriority*/) const override {
    return stream(new_queue()); // HARDWARE: a few streams in turn, if the driver has few
  }
  c10::Stream exchangeStream(c10::Stream next) const override {
    const c10::Stream previous = stream(current_queue());
    set_current_queue(next.id());
    return previous;
  }
  bool queryStream(const c10::Stream& stream) const override {
    return reached(mark(stream.id()));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    wait_for(mark(stream.id()));
  }
  void synchronizeDevice(c10::DeviceIndex) const override {
    wait_for_device();
  }
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) {
      *event = new Mark();
    }
    *static_cast<Mark*>(*event) = mark(stream.id());
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) { // nobody waits for an event that was never recorded
      wait_in_queue(stream.id(), *static_cast<Mark*>(event));
    }
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || reached(*static_cast<Mark*>(event));
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) {
      wait_for(*static_cast<Mark*>(event));
    }
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<Mark*>(event);
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    c10::getDeviceAllocator(kType)->recordStream(data, stream);
  }

  static c10::Stream stream(int64_t queue) {
    return c10::Stream(c10::Stream::UNSAFE, kDevice, queue);
  }
};
// LITERALINCLUDE END: STREAM GUARD
C10_REGISTER_GUARD_IMPL(PrivateUse1, StreamGuard);

void record_stream(at::Tensor& self, c10::Stream stream) {
  c10::getDeviceAllocator(kType)->recordStream(self.storage().data_ptr(), stream);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("record_stream", record_stream);
}

// LITERALINCLUDE START: GENERATOR HOOKS
struct GeneratorHooks final : Hooks {
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return default_generator();
  }
  at::Generator getNewGenerator(c10::DeviceIndex) const override {
    return at::make_generator<Generator>();
  }
};
// LITERALINCLUDE END: GENERATOR HOOKS
const bool registered = (at::RegisterPrivateUse1HooksInterface(new GeneratorHooks), true);

PyObject* python_default_generator(PyObject*, PyObject*) {
  return THPGenerator_Wrap(default_generator());
}

PyObject* python_hold(PyObject*, PyObject* arguments) {
  long long queue = 0;
  int held = 0;
  if (!PyArg_ParseTuple(arguments, "Lp", &queue, &held)) {
    return nullptr;
  }
  hold(queue, held != 0);
  Py_RETURN_NONE;
}

} // namespace
} // namespace abacus

extern "C" PyMODINIT_FUNC PyInit__C() {
  static PyMethodDef methods[] = {
      {"default_generator", abacus::python_default_generator, METH_NOARGS, nullptr},
      {"hold", abacus::python_hold, METH_VARARGS, nullptr},
      {nullptr, nullptr, 0, nullptr}};
  static PyModuleDef module = {PyModuleDef_HEAD_INIT, "_C", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};
  return PyModule_Create(&module);
}
