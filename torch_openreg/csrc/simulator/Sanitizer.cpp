#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>

#include <set>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "Bindings.h"
#include "runtime/OpenRegFunctions.h"
#include "simulator/RuntimeObserver.h"
#include "simulator/sanitizer/HostAccess.h"
#include "simulator/sanitizer/Replays.h"
#include "simulator/sanitizer/Session.h"
#include "simulator/sanitizer/SessionState.h"
#include "simulator/sanitizer/Site.h"

namespace py = pybind11;
using c10::openreg::sanitizer::Site;
using c10::openreg::sanitizer::Sites;
using torch::wrap_pybind_function_no_gil;

namespace {

// ---- lines of Python

struct Line {
  PyCodeObject* code; // Lines holds a reference, so the object lives
  int number;

  bool operator==(const Line&) const = default;
};

struct HashLine {
  size_t operator()(const Line& line) const {
    return std::hash<const void*>()(line.code) * 31 + line.number;
  }
};

enum class CodeKind { Program, Library, ModuleCall }; // ModuleCall: of a library, calls a torch.nn.Module

// Guarded by Python's interpreter lock. Lines keeps every code object that it has seen, so the address identifies the
// object.
struct Lines {
  std::unordered_map<PyCodeObject*, CodeKind> kinds;
  std::unordered_map<Line, Site, HashLine> known;
  std::vector<Line> all{{nullptr, 0}};
  std::vector<std::string> library_folders;
};

Lines& lines() {
  static auto* const instance = new Lines();
  return *instance;
}

// The folders of the packages torch and torch_openreg. A program's own folder may have one of these names.
const std::vector<std::string>& library_folders() {
  std::vector<std::string>& folders = lines().library_folders;
  if (folders.empty()) {
    std::vector<std::string> found;
    for (const char* name : {"torch", "torch_openreg"}) {
      const auto file = py::module_::import(name).attr("__file__").cast<std::string>();
      found.push_back(file.substr(0, file.rfind('/') + 1));
    }
    folders = std::move(found);
  }
  return folders;
}

CodeKind find_kind(PyCodeObject* code) {
  const std::string file = py::handle(code->co_filename).cast<std::string>();
  bool is_library = false;
  for (const std::string& folder : library_folders()) {
    is_library |= file.starts_with(folder);
  }
  if (is_library && file.ends_with("/nn/modules/module.py")) {
    return CodeKind::ModuleCall;
  }
  for (const std::string_view part : {"<frozen", "/contextlib.py", "/threading.py", "/triton/runtime/"}) {
    is_library |= file.find(part) != std::string::npos;
  }
  return is_library ? CodeKind::Library : CodeKind::Program;
}

CodeKind kind_of(PyCodeObject* code) {
  library_folders(); // imports modules, which may change the table
  const auto [found, is_new] = lines().kinds.try_emplace(code, CodeKind::Program);
  if (is_new) {
    Py_INCREF(code);
    found->second = find_kind(code);
  }
  return found->second;
}

Site number_of(const Line& line) {
  if (!line.code) {
    return 0;
  }
  const auto [found, is_new] = lines().known.try_emplace(line, static_cast<Site>(lines().all.size()));
  if (is_new) {
    lines().all.push_back(line);
  }
  return found->second;
}

// Calls fn(frame, code, kind) for each frame of the calling thread, the innermost first, until fn returns false.
template <class Fn>
void for_each_frame(const Fn& fn) {
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  while (frame) {
    PyCodeObject* const code = PyFrame_GetCode(frame);
    const CodeKind kind = kind_of(code); // also keeps the code object
    Py_DECREF(code);
    const bool goes_on = fn(frame, code, kind);
    PyFrameObject* const outer = goes_on ? PyFrame_GetBack(frame) : nullptr;
    Py_DECREF(frame);
    frame = outer;
  }
}

// The innermost line of the program, that is, outside of the libraries. If there is none, the innermost line. The outer
// line is the innermost line of the program outside of all modules. 0: no line.
Sites take_lines(bool with_outer) {
  if (!Py_IsInitialized()) {
    return {};
  }
  const py::gil_scoped_acquire gil;
  Line line{nullptr, 0};
  Line outer{nullptr, 0};
  bool found = false;
  for_each_frame([&](PyFrameObject* frame, PyCodeObject* code, CodeKind kind) {
    const bool is_program = kind == CodeKind::Program;
    if (!found && (is_program || !line.code)) {
      line = {code, PyFrame_GetLineNumber(frame)};
      found = is_program;
    }
    if (kind == CodeKind::ModuleCall) {
      outer.code = nullptr;
    } else if (is_program && !outer.code) {
      outer = {code, PyFrame_GetLineNumber(frame)};
    }
    return with_outer || !found;
  });
  return {number_of(line), with_outer ? number_of(outer) : 0};
}

std::string describe_line(Site site) {
  if (!Py_IsInitialized()) {
    return "an unknown line";
  }
  const py::gil_scoped_acquire gil;
  const Line& line = lines().all.at(site);
  const auto text = [](PyObject* string) { return py::handle(string).cast<std::string>(); };
  return c10::str(text(line.code->co_filename), ":", line.number, " in ", text(line.code->co_name));
}

// ---- findings

// Throws torch.openreg.sanitizer.Error.
void raise(size_t finding) {
  const py::gil_scoped_acquire gil;
  const py::object error = py::module_::import("torch_openreg.openreg.sanitizer").attr("_make_error")(finding);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  python_error thrown;
  thrown.persist();
  throw thrown;
}

// ---- numbers that a capture freezes (torch_openreg/simulator/_frozen.py)

using c10::openreg::sanitizer::NumberSource;

py::module_ frozen() {
  return py::module_::import("torch_openreg.simulator._frozen");
}

void note_numbers(uintptr_t graph, Site site, const std::vector<double>& numbers) {
  const py::gil_scoped_acquire gil;
  frozen().attr("note")(graph, site, numbers);
}

std::vector<NumberSource::Changed> find_changed_numbers(uintptr_t graph) {
  std::vector<NumberSource::Changed> changed;
  const py::gil_scoped_acquire gil;
  for (const auto& [what, site] :
       frozen().attr("find_changed")(graph).cast<std::vector<std::pair<std::string, Site>>>()) {
    changed.push_back({what, site});
  }
  return changed;
}

// The host is about to read the tensor in a way that is no operator. `name`: the name of the method. `exposes`: the
// method gives the memory to code that may write it.
void note_host_read(const at::Tensor& tensor, const std::string& name, bool exposes) {
  static auto* const names = new std::set<std::string>(); // guarded by Python's interpreter lock
  const char* const kept = names->insert(name).first->c_str();
  const py::gil_scoped_release no_gil;
  using c10::openreg::sanitizer::HostUse;
  c10::openreg::sanitizer::note_host_access(kept, tensor, exposes ? HostUse::Exposes : HostUse::Computes);
}

void start(unsigned checks, bool raises) {
  c10::openreg::check_not_forked();
  c10::openreg::sanitizer::set_site_source({&take_lines, &describe_line});
  c10::openreg::sanitizer::set_number_source({&note_numbers, &find_changed_numbers});
  c10::openreg::sanitizer::set_raiser(&raise);
  c10::openreg::observe_runtime();
  c10::openreg::sanitizer::start(checks, raises);
}

py::list findings(size_t first, bool settles) {
  std::vector<c10::openreg::sanitizer::Finding> found;
  {
    const py::gil_scoped_release no_gil;
    found = c10::openreg::sanitizer::findings(first, settles);
  }
  py::list result;
  for (const auto& each : found) {
    py::list parts;
    for (const auto& part : each.parts) {
      parts.append(
          py::make_tuple(part.name, part.action, part.stream, part.site, py::tuple(py::cast(part.shape)), part.bytes));
    }
    result.append(py::make_tuple(each.kind, each.text, parts));
  }
  return result;
}

// The lines whose memory grows from round to round of a loop (GrowthCheck.h): device, line, rounds, blocks, bytes.
py::list growing(const std::set<uintptr_t>& owned) {
  std::vector<c10::openreg::sanitizer::GrowthCheck::Growing> found;
  {
    const py::gil_scoped_release no_gil;
    found = c10::openreg::sanitizer::growing(owned);
  }
  py::list result;
  for (const auto& each : found) {
    const std::string line = each.site == 0 ? "" : describe_line(each.site);
    result.append(py::make_tuple(each.device, line, each.rounds, each.blocks, each.bytes));
  }
  return result;
}

void add_sanitizer(py::module_& module) {
  module.def("_sanitizer_start", wrap_pybind_function_no_gil(&start));
  module.def("_sanitizer_stop", wrap_pybind_function_no_gil(&c10::openreg::sanitizer::stop));
  module.def("_sanitizer_stop_raising", wrap_pybind_function_no_gil(&c10::openreg::sanitizer::stop_raising));
  module.def("_sanitizer_fail_at_exit", &c10::openreg::sanitizer::fail_at_exit);
  module.def("_sanitizer_look_for_leaks", wrap_pybind_function_no_gil(&c10::openreg::sanitizer::look_for_leaks));
  module.def("_sanitizer_findings", &findings);
  module.def("_sanitizer_growing", &growing);
  module.def("_sanitizer_note_host_read", &note_host_read);
}

const Bindings sanitizer_bindings(&add_sanitizer);

} // namespace
