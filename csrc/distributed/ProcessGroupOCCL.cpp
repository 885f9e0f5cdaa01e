#include "ProcessGroupOCCL.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <openreg_faults.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Utils.hpp>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "GlooEngine.h"
#include "Header.h"
#include "Reduce.h"
#include "SharedEngine.h"
#include "runtime/OpenRegKernel.h"

namespace c10d::openreg {
namespace {

constexpr const char* kCollectives = "";

// ---- arguments, with the checks and the sentences of ProcessGroupNCCL

void check_tensor(const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(
      tensor.is_privateuseone() && !tensor.is_sparse(),
      "Tensors must be ",
      c10::DeviceTypeName(c10::DeviceType::PrivateUse1, /*lower_case=*/false),
      " and dense");
  TORCH_CHECK_VALUE(tensor.is_contiguous(tensor.suggest_memory_format()), "Tensors must be contiguous");
}

const at::Tensor& check_single(const std::vector<at::Tensor>& tensors) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "Expecting one tensor only but got ", tensors.size());
  check_tensor(tensors[0]);
  return tensors[0];
}

void check_list(const std::vector<at::Tensor>& tensors, int size, at::ScalarType dtype) {
  TORCH_CHECK_VALUE(
      tensors.size() == static_cast<size_t>(size), "Tensor list input to scatter/gather must match number of ranks");
  for (const at::Tensor& tensor : tensors) {
    check_tensor(tensor);
    TORCH_CHECK_TYPE(tensor.scalar_type() == dtype, "All tensor operands to scatter/gather must have the same dtype");
  }
}

void check_root(int64_t root, int size) {
  TORCH_CHECK_VALUE(0 <= root && root < size, "invalid root rank: ", root);
}

// ---- aliases: flat tensors of the CPU over the device's bytes, which keep the storage

at::Tensor alias(const at::Tensor& tensor, at::ScalarType dtype) {
  const auto numel = static_cast<int64_t>(tensor.nbytes() / c10::elementSize(dtype));
  const at::TensorOptions options = at::TensorOptions(at::kCPU).dtype(dtype);
  if (numel == 0) {
    return at::empty({0}, options);
  }
  return at::from_blob(orGetKernelPointer(tensor.data_ptr()), {numel}, [storage = tensor.storage()](void*) {}, options);
}

// For what is only moved: bytes of any type.
at::Tensor bytes_of(const at::Tensor& tensor) {
  return alias(tensor, at::kByte);
}

std::vector<at::Tensor> bytes_of(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> aliases;
  for (const at::Tensor& tensor : tensors) {
    aliases.push_back(bytes_of(tensor));
  }
  return aliases;
}

// Pieces of `rows` along the first dimension; `splits` empty: `size` equal ones.
std::vector<at::Tensor> pieces(const at::Tensor& flat, std::vector<int64_t> splits, int64_t rows, int size) {
  if (splits.empty()) {
    splits.assign(size, rows / size);
  }
  const int64_t row = rows == 0 ? 0 : flat.numel() / rows;
  std::vector<at::Tensor> result;
  int64_t offset = 0;
  for (const int64_t split : splits) {
    result.push_back(flat.narrow(0, offset, split * row));
    offset += split * row;
  }
  return result;
}

// How a reduction of `tensor` is computed: on which type of elements, with which operator.
struct Reducing {
  at::ScalarType dtype;
  Reduction reduction;
};

Reducing reducing(const ReduceOp& op, const at::Tensor& tensor, int size, const char* name) {
  Reducing result{tensor.scalar_type(), {}};
  if (tensor.is_complex()) {
    TORCH_CHECK(isComplexViewAsRealAllowed(op), name, " does not support ", op.op_, " on complex tensors");
    result.dtype = c10::toRealValueType(result.dtype);
  }
  TORCH_CHECK_TYPE(!c10::isFloat8Type(result.dtype), "Float8 dtypes are not currently supported for OCCL reductions");
  const bool is_bool = result.dtype == at::kBool;
  result.dtype = is_bool ? at::kByte : result.dtype;
  TORCH_CHECK_TYPE(
      can_reduce(result.dtype), "Input tensor data type is not supported for OCCL process group: ", result.dtype);
  switch (op.op_) {
    case ReduceOp::AVG:
      TORCH_CHECK_TYPE(!is_bool, "Cannot use ReduceOp.AVG with Boolean inputs");
      result.reduction.op = ReduceOp::SUM;
      result.reduction.divisor = size;
      break;
    case ReduceOp::PREMUL_SUM: {
      TORCH_CHECK(at::isFloatingType(result.dtype), "PreMulSum Data type must be half, float, bfloat16 or double");
      result.reduction.op = ReduceOp::SUM;
      const auto* supplement = dynamic_cast<const PreMulSumSupplement*>(op.supplement_.get());
      TORCH_CHECK(supplement != nullptr, "PREMUL_SUM needs a factor: use torch.distributed._make_nccl_premul_sum()");
      result.reduction.factor = supplement->double_factor;
      if (supplement->tensor_factor.defined()) {
        const at::Tensor& factor = supplement->tensor_factor;
        result.reduction.factor_tensor = factor.is_cpu() ? factor : alias(factor, factor.scalar_type());
      }
      break;
    }
    case ReduceOp::SUM: // of Booleans: whether any is true
      result.reduction.op = is_bool ? ReduceOp::MAX : ReduceOp::SUM;
      break;
    case ReduceOp::PRODUCT:
    case ReduceOp::MIN:
    case ReduceOp::MAX:
      result.reduction.op = op.op_;
      break;
    case ReduceOp::BAND:
      C10_THROW_ERROR(ValueError, "Cannot use ReduceOp.BAND with OCCL");
    case ReduceOp::BOR:
      C10_THROW_ERROR(ValueError, "Cannot use ReduceOp.BOR with OCCL");
    case ReduceOp::BXOR:
      C10_THROW_ERROR(ValueError, "Cannot use ReduceOp.BXOR with OCCL");
    default:
      C10_THROW_ERROR(ValueError, "Unhandled ReduceOp");
  }
  return result;
}

void set_reduction(Request& request, const ReduceOp& op, const Reducing& reducing) {
  request.reduction = reducing.reduction;
  request.op = op.op_;
}

const char* name_of(OpType type) {
  switch (type) {
    case OpType::BROADCAST:
      return "occl:broadcast";
    case OpType::ALLREDUCE:
    case OpType::ALLREDUCE_COALESCED:
      return "occl:all_reduce";
    case OpType::REDUCE:
      return "occl:reduce";
    case OpType::ALLGATHER:
      return "occl:all_gather";
    case OpType::_ALLGATHER_BASE:
      return "occl:_all_gather_base";
    case OpType::GATHER:
      return "occl:gather";
    case OpType::SCATTER:
      return "occl:scatter";
    case OpType::REDUCE_SCATTER:
      return "occl:reduce_scatter";
    case OpType::_REDUCE_SCATTER_BASE:
      return "occl:_reduce_scatter_base";
    case OpType::ALLTOALL_BASE:
    case OpType::ALLTOALL:
      return "occl:all_to_all";
    case OpType::SEND:
      return "occl:send";
    case OpType::RECV:
    case OpType::RECVANYSOURCE:
      return "occl:recv";
    case OpType::BARRIER:
      return "occl:barrier";
    default:
      return "occl:coalesced";
  }
}

} // namespace

// ---- one call: what is queued on a communication stream

struct ProcessGroupOCCL::Call {
  c10::intrusive_ptr<ProcessGroupOCCL> group;
  c10::DeviceIndex device;
  OpType type;
  uint64_t sequence;
  Chains chains;
  std::shared_ptr<WorkState> state;
  orCompletion_t completion = nullptr;
  std::atomic<size_t> running{0};
  std::mutex mutex{};
  std::exception_ptr failure{};

  static void visit(void* data, orOperandFn_t visit, void* context) {
    for (const auto& [key, requests] : static_cast<const Call*>(data)->chains) {
      for (const auto& request : requests) {
        for (const at::Tensor& input : request->inputs) {
          c10::openreg::visit_tensor(*input.unsafeGetTensorImpl(), orAccessRead, visit, context);
        }
        for (const at::Tensor& output : request->outputs) {
          c10::openreg::visit_tensor(*output.unsafeGetTensorImpl(), orAccessWrite, visit, context);
        }
      }
    }
  }

  static void begin(void* data, orCompletion_t completion) {
    const std::shared_ptr<Call> call(static_cast<Call*>(data));
    call->completion = completion;
    call->state->started = WorkState::Clock::now();
    Chains chains = std::move(call->chains); // the last of them may finish, and delete the call's, before this returns
    call->running = chains.size();
    for (auto& [key, requests] : chains) {
      next(call, std::move(requests), 0);
    }
  }

  static void next(const std::shared_ptr<Call>& call, std::vector<std::shared_ptr<Request>> requests, size_t index) {
    if (index == requests.size()) {
      if (--call->running == 0) {
        call->finish();
      }
      return;
    }
    std::shared_ptr<Request> request = std::move(requests[index]);
    Engine::Done done = [call, requests = std::move(requests), index, request](std::exception_ptr failure) mutable {
      call->note(*request, failure);
      request.reset();
      next(call, std::move(requests), index + 1);
    };
    try {
      if (meets_fault(call->device, *request)) {
        done(nullptr);
      } else {
        call->group->engine_for(*request).start(request, done);
      }
    } catch (...) {
      done(std::current_exception());
    }
  }

  // Whether a test wants this message to be lost. Throws the failure that it wants.
  static bool meets_fault(c10::DeviceIndex device, const Request& request) {
    size_t size = 0;
    for (const at::Tensor& tensor : request.inputs.empty() ? request.outputs : request.inputs) {
      size += tensor.nbytes();
    }
    bool is_dropped = false;
    OPENREG_CHECK(orRequestMessage(device, size, &is_dropped));
    return is_dropped;
  }

  void note(const Request& request, const std::exception_ptr& exception) {
    const std::lock_guard lock(mutex);
    if (request.source >= 0) {
      state->source = request.source;
    }
    if (exception && !failure) {
      failure = explain(request, exception);
    }
  }

  // Out of memory and mismatches say it themselves; what gloo says of a connection lacks which collective it was.
  std::exception_ptr explain(const Request& request, const std::exception_ptr& exception) const {
    try {
      std::rethrow_exception(exception);
    } catch (const c10::OutOfMemoryError&) {
      return exception;
    } catch (const Refusal&) {
      return exception;
    } catch (const std::exception& error) {
      const std::string_view text(error.what());
      const bool timed_out =
          text.find("imed out") != std::string_view::npos || text.find("timeout") != std::string_view::npos;
      group->error_ = timed_out ? ErrorType::TIMEOUT : ErrorType::COMM_ERROR;
      try {
        C10_THROW_ERROR(
            DistBackendError,
            c10::str(
                "[Rank ",
                group->getRank(),
                timed_out ? "] collective operation timeout: WorkOCCL(SeqNum="
                          : "] collective operation failed: WorkOCCL(SeqNum=",
                request.sequence,
                ", OpType=",
                opTypeToString(request.type),
                ", TensorShape=",
                c10::IntArrayRef(request.shape),
                ", Timeout(ms)=",
                request.timeout.count(),
                "). ",
                timed_out ? "Another rank has not called it, calls another collective, or has ended. "
                          : "Another rank has ended, or has given up. ",
                text));
      } catch (...) {
        return std::current_exception();
      }
    }
  }

  void finish() {
    const auto keep = group; // may be the last one
    if (failure && keep->error_ == ErrorType::SUCCESS) {
      keep->error_ = ErrorType::COMM_ERROR;
    }
    state->finish(failure);
    if (keep->hook_) {
      keep->hook_.add(
          std::make_shared<WorkInfo>(
              type,
              sequence,
              state->started,
              state->finished,
              std::chrono::duration<float>(state->finished - state->started)));
    }
    orCompletionSignal(completion, nullptr);
    state->complete_futures();
    if (keep->hook_) {
      keep->hook_.call();
    }
  }
};

// ---- the group

namespace {

std::string_view chosen_transport() {
  const char* value = std::getenv("OCCL_TRANSPORT");
  const std::string_view transport = value == nullptr ? "auto" : value;
  TORCH_CHECK_VALUE(
      transport == "auto" || transport == "gloo" || transport == "shm",
      "OCCL_TRANSPORT is '",
      transport,
      "'. Set it to auto (the default), gloo or shm, or unset it.");
  return transport;
}

} // namespace

ProcessGroupOCCL::MakeGloo ProcessGroupOCCL::make_gloo;

// torchrun starts ranks again on the store of those that died, whose keys are still there.
std::string ProcessGroupOCCL::store_prefix() {
  const char* attempt = std::getenv("TORCHELASTIC_RESTART_COUNT");
  return c10::str("occl/", attempt == nullptr ? "0" : attempt);
}

ProcessGroupOCCL::ProcessGroupOCCL(
    c10::intrusive_ptr<Store> store,
    c10::intrusive_ptr<Backend> gloo,
    int rank,
    int size,
    c10::intrusive_ptr<Options> options)
    : Backend(rank, size),
      store_(std::move(store)),
      gloo_(std::move(gloo)),
      options_(std::move(options)),
      engine_(std::make_shared<GlooEngine>(gloo_)) {
  checks_headers(); // refuses a wrong OCCL_CHECK
  const std::string_view transport = chosen_transport();
  if (transport != "gloo" && size > 1) {
    shared_engine_ = SharedEngine::make(*store_, rank, size, options_->timeout);
    TORCH_CHECK(
        shared_engine_ || transport == "auto",
        "OCCL_TRANSPORT is 'shm', but the ranks of the group cannot share memory: they run on several hosts, or as "
        "several users. Set it to auto or gloo.");
  }
  init();
}

Engine& ProcessGroupOCCL::engine_for(const Request& request) {
  return shared_engine_ && SharedEngine::supports(request.verb) ? *shared_engine_ : *engine_;
}

ProcessGroupOCCL::~ProcessGroupOCCL() {
  for (const auto& [key, stream] : streams_) {
    orStreamDestroy(stream);
  }
}

void ProcessGroupOCCL::setTimeout(std::chrono::milliseconds timeout) {
  options_->timeout = timeout;
  gloo_->setTimeout(timeout);
}

void ProcessGroupOCCL::registerOnCompletionHook(std::function<void(std::shared_ptr<WorkInfo>)>&& hook) {
  TORCH_CHECK_WITH(DistBackendError, !hook_, "ProcessGroupOCCL OnCompletion hook already registered");
  hook_.set(std::move(hook));
}

void ProcessGroupOCCL::waitForPendingWorks() {
  std::map<std::string, orStream_t> streams;
  {
    const std::lock_guard lock(mutex_);
    streams = streams_;
  }
  for (const auto& [key, stream] : streams) {
    OPENREG_CHECK(orStreamSynchronize(stream));
  }
  hook_.wait();
}

void ProcessGroupOCCL::abort() {
  engine_->abort();
  if (shared_engine_) {
    shared_engine_->abort();
  }
}

void ProcessGroupOCCL::shutdown() {
  waitForPendingWorks();
}

c10::intrusive_ptr<Backend> ProcessGroupOCCL::split(
    const c10::intrusive_ptr<Store>& store,
    const std::vector<int>& ranks,
    const c10::intrusive_ptr<Backend::Options>& options) {
  auto made = c10::make_intrusive<Options>(options ? options->timeout : options_->timeout);
  made->is_high_priority_stream = options_->is_high_priority_stream;
  const auto prefixed = c10::make_intrusive<PrefixStore>(store_prefix(), store);
  const auto own = std::find(ranks.begin(), ranks.end(), rank_);
  if (own == ranks.end()) {
    return nullptr;
  }
  for (const int rank : ranks) {
    const auto& global = options_->global_ranks_in_group;
    made->global_ranks_in_group.push_back(global.empty() ? rank : global.at(rank));
  }
  if (options) {
    made->group_name = options->group_name;
    made->group_desc = options->group_desc;
  }
  const int rank = static_cast<int>(own - ranks.begin());
  const int size = static_cast<int>(ranks.size());
  const auto gloo = make_gloo(prefixed, rank, size, made->timeout);
  return c10::make_intrusive<ProcessGroupOCCL>(prefixed, gloo, rank, size, made);
}

// The stream's handle; made at first use.
orStream_t ProcessGroupOCCL::stream(const std::string& key, c10::Device device) {
  const std::lock_guard lock(mutex_);
  orStream_t& stream = streams_[c10::str(key, "@", static_cast<int>(device.index()))];
  if (stream == nullptr) {
    const c10::openreg::CurrentDevice current(device.index());
    OPENREG_CHECK(orStreamCreateWithPriority(&stream, 0, options_->is_high_priority_stream ? -1 : 0));
  }
  return stream;
}

std::shared_ptr<Request> ProcessGroupOCCL::make_request(
    Verb verb, OpType type, const at::Tensor& example, std::chrono::milliseconds timeout) {
  auto request = std::make_shared<Request>();
  request->verb = verb;
  request->type = type;
  request->timeout = timeout == kUnsetTimeout ? options_->timeout : timeout;
  if (example.defined()) {
    request->shape = example.sizes().vec();
    request->dtype = example.scalar_type();
  }
  return request;
}

c10::intrusive_ptr<Work> ProcessGroupOCCL::submit(
    const std::string& key, c10::Device device, std::shared_ptr<Request> request, std::vector<at::Tensor> outputs) {
  c10::openreg::check_not_forked();
  request->sequence = key == kCollectives ? ++sequence_ : ++peer_sequences_[key];
  if (coalescing_) {
    coalesced_[key].push_back(std::move(request));
    coalesced_outputs_.insert(coalesced_outputs_.end(), outputs.begin(), outputs.end());
    TORCH_CHECK(
        !coalesced_device_ || *coalesced_device_ == device, "All tensors of a coalesced call must be on one device");
    coalesced_device_ = device;
    return nullptr;
  }
  const OpType type = request->type;
  const uint64_t sequence = request->sequence;
  Chains chains;
  chains[key].push_back(std::move(request));
  return enqueue(type, device, sequence, std::move(chains), std::move(outputs));
}

// The one place where a collective meets the device.
c10::intrusive_ptr<Work> ProcessGroupOCCL::enqueue(
    OpType type, c10::Device device, uint64_t sequence, Chains chains, std::vector<at::Tensor> outputs) {
  RECORD_FUNCTION(name_of(type), c10::ArrayRef<const c10::IValue>{});
  // A coalesced call has a stream of its own if all it does is send and recv: it must not wait for collectives.
  const std::string key = chains.size() == 1           ? chains.begin()->first
                          : chains.count(kCollectives) ? kCollectives
                                                       : "p2p";
  const orStream_t comm = stream(key, device);
  auto state = std::make_shared<WorkState>();
  state->caller = c10::openreg::current_stream_handle(device.index());
  auto* const call = new Call{
      c10::intrusive_ptr<ProcessGroupOCCL>::unsafe_reclaim_from_nonowning(this),
      device.index(),
      type,
      sequence,
      std::move(chains),
      state};
  std::unique_ptr<Call> owner(call);
  const c10::openreg::CurrentDevice current(device.index());
  c10::openreg::order_after_current_stream(comm, device.index());
  orEvent_t event = nullptr;
  OPENREG_CHECK(orEventCreate(&event));
  auto work = c10::make_intrusive<WorkOCCL>(
      rank_, type, device, sequence, std::move(outputs), std::move(state), event, type == OpType::BARRIER);
  const orKernel kernel{name_of(type), &Call::visit, call};
  OPENREG_CHECK(orLaunchDeferred(comm, &Call::begin, call, &kernel));
  owner.release();
  OPENREG_CHECK(orEventRecord(event, comm));
  return work;
}

void ProcessGroupOCCL::startCoalescing() {
  coalescing_ = true;
}

c10::intrusive_ptr<Work> ProcessGroupOCCL::endCoalescing() {
  coalescing_ = false;
  Chains chains = std::exchange(coalesced_, {});
  std::vector<at::Tensor> outputs = std::exchange(coalesced_outputs_, {});
  const std::optional<c10::Device> device = std::exchange(coalesced_device_, std::nullopt);
  return device ? enqueue(OpType::COALESCED, *device, sequence_, std::move(chains), std::move(outputs)) : nullptr;
}

c10::intrusive_ptr<Work> ProcessGroupOCCL::coalesced(const std::function<void()>& calls) {
  const bool within = coalescing_;
  coalescing_ = true;
  try {
    calls();
  } catch (...) {
    coalescing_ = within;
    if (!within) {
      endCoalescing();
    }
    throw;
  }
  return within ? nullptr : endCoalescing();
}

// ---- reductions

c10::intrusive_ptr<Work> ProcessGroupOCCL::allreduce(
    std::vector<at::Tensor>& tensors, const AllreduceOptions& options) {
  const at::Tensor& tensor = check_single(tensors);
  const Reducing how = reducing(options.reduceOp, tensor, size_, "all_reduce");
  auto request = make_request(Verb::allreduce, OpType::ALLREDUCE, tensor, options.timeout);
  set_reduction(*request, options.reduceOp, how);
  request->inputs = request->outputs = {alias(tensor, how.dtype)};
  return submit(kCollectives, tensor.device(), std::move(request), tensors);
}

c10::intrusive_ptr<Work> ProcessGroupOCCL::allreduce_coalesced(
    std::vector<at::Tensor>& tensors, const AllreduceCoalescedOptions& options) {
  TORCH_CHECK_VALUE(!tensors.empty(), "Tensor list must be nonempty");
  return coalesced([&] {
    for (const at::Tensor& tensor : tensors) {
      std::vector<at::Tensor> one{tensor};
      allreduce(one, options);
    }
  });
}

c10::intrusive_ptr<Work> ProcessGroupOCCL::reduce(std::vector<at::Tensor>& tensors, const ReduceOptions& options) {
  const at::Tensor& tensor = check_single(tensors);
  check_root(options.rootRank, size_);
  const Reducing how = reducing(options.reduceOp, tensor, size_, "reduce");
  auto request = make_request(Verb::reduce, OpType::REDUCE, tensor, options.timeout);
  set_reduction(*request, options.reduceOp, how);
  request->root = static_cast<int>(options.rootRank);
  request->inputs = request->outputs = {alias(tensor, how.dtype)};
  return submit(kCollectives, tensor.device(), std::move(request), tensors);
}

c10::intrusive_ptr<Work> ProcessGroupOCCL::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const ReduceScatterOptions& options) {
  TORCH_CHECK_TYPE(input.dtype() == output.dtype(), "input tensor must be the same type as the output tensor.");
  TORCH_CHECK_VALUE(
      input.numel() == output.numel() * size_, "input tensor must be the same size as output size times world size");
  check_tensor(output);
  check_tensor(input);
  const Reducing how = reducing(options.reduceOp, input, size_, "reduce_scatter_tensor");
  auto request = make_request(Verb::reduce_scatter, OpType::_REDUCE_SCATTER_BASE, output, options.timeout);
  set_reduction(*request, options.reduceOp, how);
  request->inputs = pieces(alias(input, how.dtype), {}, size_, size_);
  request->outputs = {alias(output, how.dtype)};
  return submit(kCollectives, output.device(), std::move(request), {output});
}

c10::intrusive_ptr<Work> ProcessGroupOCCL::reduce_scatter(
    std::vector<at::Tensor>& outputs,
    std::vector<std::vector<at::Tensor>>& inputs,
    const ReduceScatterOptions& options) {
  const at::Tensor& output = check_single(outputs);
  TORCH_CHECK_VALUE(inputs.size() == 1, "Expecting one list of tensors only but got ", inputs.size());
  check_list(inputs[0], size_, output.scalar_type());
  TORCH_CHECK_VALUE(
      inputs[0][rank_].numel() == output.numel(),
      "Tensor operand to reduce_scatter must have the size of the output: input ",
      rank_,
      " has ",
      inputs[0][rank_].numel(),
      " elements and the output ",
      output.numel());
  const Reducing how = reducing(options.reduceOp, output, size_, "reduce_scatter");
  auto request = make_request(Verb::reduce_scatter, OpType::REDUCE_SCATTER, output, options.timeout);
  set_reduction(*request, options.reduceOp, how);
  for (const at::Tensor& input : inputs[0]) {
    request->inputs.push_back(alias(input, how.dtype));
  }
  request->outputs = {alias(output, how.dtype)};
  return submit(kCollectives, output.device(), std::move(request), outputs);
}

c10::intrusive_ptr<Work> ProcessGroupOCCL::reduce_scatter_tensor_coalesced(
    std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs, const ReduceScatterOptions& options) {
  return coalesced([&] {
    for (size_t i = 0; i < outputs.size(); ++i) {
      _reduce_scatter_base(outputs[i], inputs.at(i), options);
    }
  });
}

// ---- movement of bytes

c10::intrusive_ptr<Work> ProcessGroupOCCL::broadcast(
    std::vector<at::Tensor>& tensors, const BroadcastOptions& options) {
  const at::Tensor& tensor = check_single(tensors);
  check_root(options.rootRank, size_);
  auto request = make_request(Verb::broadcast, OpType::BROADCAST, tensor, options.timeout);
  request->root = static_cast<int>(options.rootRank);
  request->inputs = request->outputs = {bytes_of(tensor)};
  return submit(kCollectives, tensor.device(), std::move(request), tensors);
}

c10::intrusive_ptr<Work> ProcessGroupOCCL::_allgather_base(
    at::Tensor& output, at::Tensor& input, const AllgatherOptions& options) {
  check_tensor(input);
  check_tensor(output);
  TORCH_CHECK_TYPE(input.dtype() == output.dtype(), "output tensor must have the same type as input tensor");
  TORCH_CHECK_VALUE(
      input.numel() * size_ == output.numel(),
      "output tensor size must be equal to world_size times input tensor size");
  auto request = make_request(Verb::allgather, OpType::_ALLGATHER_BASE, input, options.timeout);
  request->inputs = {bytes_of(input)};
  request->outputs = pieces(bytes_of(output), {}, size_, size_);
  return submit(kCollectives, output.device(), std::move(request), {output});
}

c10::intrusive_ptr<Work> ProcessGroupOCCL::allgather_into_tensor_coalesced(
    std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs, const AllgatherOptions& options) {
  return coalesced([&] {
    for (size_t i = 0; i < outputs.size(); ++i) {
      _allgather_base(outputs[i], inputs.at(i), options);
    }
  });
}

c10::intrusive_ptr<Work> ProcessGroupOCCL::allgather(
    std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs, const AllgatherOptions& options) {
  const at::Tensor& input = check_single(inputs);
  TORCH_CHECK_VALUE(outputs.size() == 1, "Expecting one list of tensors only but got ", outputs.size());
  check_list(outputs[0], size_, input.scalar_type());
  auto request = make_request(Verb::allgather, OpType::ALLGATHER, input, options.timeout);
  request->inputs = {bytes_of(input)};
  request->outputs = bytes_of(outputs[0]);
  return submit(kCollectives, input.device(), std::move(request), outputs[0]);
}

c10::intrusive_ptr<Work> ProcessGroupOCCL::gather(
    std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs, const GatherOptions& options) {
  const at::Tensor& input = check_single(inputs);
  check_root(options.rootRank, size_);
  auto request = make_request(Verb::gather, OpType::GATHER, input, options.timeout);
  request->root = static_cast<int>(options.rootRank);
  request->inputs = {bytes_of(input)};
  std::vector<at::Tensor> results;
  if (rank_ == request->root) {
    TORCH_CHECK_VALUE(
        outputs.size() == 1, "requires a single-element output list containing a list with ", size_, " tensors.");
    check_list(outputs[0], size_, input.scalar_type());
    results = outputs[0];
    request->outputs = bytes_of(results);
  } else {
    TORCH_CHECK_VALUE(outputs.empty(), "requires empty output on non-root");
  }
  return submit(kCollectives, input.device(), std::move(request), std::move(results));
}

c10::intrusive_ptr<Work> ProcessGroupOCCL::scatter(
    std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs, const ScatterOptions& options) {
  const at::Tensor& output = check_single(outputs);
  check_root(options.rootRank, size_);
  auto request = make_request(Verb::scatter, OpType::SCATTER, output, options.timeout);
  request->root = static_cast<int>(options.rootRank);
  if (rank_ == request->root) {
    TORCH_CHECK_VALUE(
        inputs.size() == 1, "requires a single-element input list containing a list with ", size_, " tensors.");
    check_list(inputs[0], size_, output.scalar_type());
    TORCH_CHECK_VALUE(
        inputs[0][rank_].numel() == output.numel(), "Tensor operand to scatter must have the size of the output");
    request->inputs = bytes_of(inputs[0]);
  } else {
    TORCH_CHECK_VALUE(inputs.empty(), "requires empty input on non-root");
  }
  request->outputs = {bytes_of(output)};
  return submit(kCollectives, output.device(), std::move(request), outputs);
}

c10::intrusive_ptr<Work> ProcessGroupOCCL::alltoall_base(
    at::Tensor& output,
    at::Tensor& input,
    std::vector<int64_t>& output_splits,
    std::vector<int64_t>& input_splits,
    const AllToAllOptions& options) {
  check_tensor(output);
  check_tensor(input);
  TORCH_CHECK_TYPE(input.dtype() == output.dtype(), "output tensor must have the same type as input tensor");
  c10d::checkSplitSizes(input_splits, input, size_);
  c10d::checkSplitSizes(output_splits, output, size_);
  auto request = make_request(Verb::alltoall, OpType::ALLTOALL_BASE, input, options.timeout);
  request->inputs = pieces(bytes_of(input), input_splits, input.size(0), size_);
  request->outputs = pieces(bytes_of(output), output_splits, output.size(0), size_);
  return submit(kCollectives, output.device(), std::move(request), {output});
}

c10::intrusive_ptr<Work> ProcessGroupOCCL::alltoall(
    std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs, const AllToAllOptions& options) {
  TORCH_CHECK_VALUE(
      !inputs.empty() && inputs.size() == outputs.size() && inputs.size() == static_cast<size_t>(size_),
      "Tensor list input to all_to_all must match number of ranks");
  check_list(inputs, size_, inputs[0].scalar_type());
  check_list(outputs, size_, inputs[0].scalar_type());
  auto request = make_request(Verb::alltoall, OpType::ALLTOALL, inputs[0], options.timeout);
  request->inputs = bytes_of(inputs);
  request->outputs = bytes_of(outputs);
  return submit(kCollectives, outputs[0].device(), std::move(request), outputs);
}

// Tags are ignored, as NCCL ignores them: messages between two ranks match in their order.
c10::intrusive_ptr<Work> ProcessGroupOCCL::send(std::vector<at::Tensor>& tensors, int to, int /*tag*/) {
  const at::Tensor& tensor = check_single(tensors);
  check_root(to, size_);
  auto request = make_request(Verb::send, OpType::SEND, tensor, kUnsetTimeout);
  request->root = to;
  request->inputs = {bytes_of(tensor)};
  return submit(c10::str("send to ", to), tensor.device(), std::move(request), tensors);
}

c10::intrusive_ptr<Work> ProcessGroupOCCL::recv(std::vector<at::Tensor>& tensors, int from, int /*tag*/) {
  const at::Tensor& tensor = check_single(tensors);
  check_root(from, size_);
  auto request = make_request(Verb::recv, OpType::RECV, tensor, kUnsetTimeout);
  request->root = from;
  request->outputs = {bytes_of(tensor)};
  return submit(c10::str("recv from ", from), tensor.device(), std::move(request), tensors);
}

c10::intrusive_ptr<Work> ProcessGroupOCCL::recvAnysource(std::vector<at::Tensor>& tensors, int /*tag*/) {
  const at::Tensor& tensor = check_single(tensors);
  auto request = make_request(Verb::recv, OpType::RECVANYSOURCE, tensor, kUnsetTimeout);
  request->outputs = {bytes_of(tensor)};
  return submit("recv from any", tensor.device(), std::move(request), tensors);
}

c10::intrusive_ptr<Work> ProcessGroupOCCL::barrier(const BarrierOptions& options) {
  c10::DeviceIndex index = c10::openreg::current_device();
  if (options.device) {
    index = options.device->index() >= 0 ? options.device->index() : index;
  } else if (!options.device_ids.empty()) {
    index = static_cast<c10::DeviceIndex>(options.device_ids[0]);
  } else if (bound_device_id_) {
    index = bound_device_id_->index();
  }
  const c10::Device device(c10::DeviceType::PrivateUse1, index);
  c10::openreg::check_device_index(index);
  return submit(kCollectives, device, make_request(Verb::barrier, OpType::BARRIER, at::Tensor(), options.timeout), {});
}

} // namespace c10d::openreg
