// occl: the collectives of the simulated device. It stands where NCCL stands for CUDA, and knows nothing of PyTorch.
//
// A communicator connects processes of one host, the *ranks*. It moves bytes through device memory that the ranks share
// (orIpcGetMemHandle).
#ifndef OCCL_H
#define OCCL_H

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "openreg.h"

namespace occl {

// The buffers of a request. n: one buffer for each rank. A rank's own data lies in the buffer with its number.
//
//              inputs            outputs
//   broadcast  {buffer}          {buffer}          input and output are the same bytes; from `root`
//   allreduce  {buffer}          {buffer}          input and output may be the same bytes
//   reduce     {buffer}          {buffer}          the same; written at `root` only
//   allgather  {buffer}          n                 their sizes may differ
//   reduce_scatter  n            {buffer}          their sizes may differ
//   alltoall   n                 n                 their sizes may differ
//   gather     {buffer}          n at `root`
//   scatter    n at `root`       {buffer}
//   send       {buffer}                            to the rank `root`
//   recv                         {buffer}          from the rank `root`; -1: from any
//   barrier
enum class Verb : uint8_t {
  broadcast,
  allreduce,
  reduce,
  allgather,
  reduce_scatter,
  alltoall,
  gather,
  scatter,
  send,
  recv,
  barrier
};

// Whether a rank that gets data computes it from the data of all ranks.
constexpr bool reduces(Verb verb) {
  return verb == Verb::allreduce || verb == Verb::reduce_scatter || verb == Verb::reduce;
}

// Whether only the root sends data.
constexpr bool isFromRoot(Verb verb) {
  return verb == Verb::broadcast || verb == Verb::scatter;
}

// Whether only the root gets data.
constexpr bool isToRoot(Verb verb) {
  return verb == Verb::reduce || verb == Verb::gather;
}

// An address at which kernels may use the memory (orGetKernelPointer), or of the host.
struct Buffer {
  void* data;
  size_t bytes;
};

// The types of which reductions can be computed.
enum class DataType : uint8_t { uint8, int8, int32, int64, float16, bfloat16, float32, float64 };

enum class ReduceOp : uint8_t { sum, product, min, max };

struct Reduction {
  ReduceOp op = ReduceOp::sum;
  DataType type = DataType::uint8;
  int64_t divisor = 1; // the result is divided by this number; the quotients of integers are truncated
};

// A name of at most 23 characters. A longer one is cut.
class Name {
 public:
  Name() = default;
  Name(std::string_view text) {
    text.copy(text_.data(), text_.size() - 1);
  }
  bool operator==(const Name&) const = default;
  const char* text() const {
    return text_.data();
  }

 private:
  std::array<char, 24> text_{};
};

// Which device of which host a rank uses: the physical device, whatever *_VISIBLE_DEVICES says.
struct RankPlace {
  uint64_t host; // 0: the ranks do not compare their devices
  int32_t device;
};

// Describes a call to the other ranks, in the caller's words.
struct Header {
  static constexpr size_t kShownDims = 8;

  uint64_t sequence; // the same on all ranks; send and recv are numbered for each peer and direction
  uint64_t inlined;  // set by the transport: how many bytes of data are in the same message
  uint64_t total;    // set by the transport: how many bytes of data the receiver gets
  RankPlace place;   // placeOf()
  int32_t root;      // -1 for send and recv
  Verb verb;
  uint8_t dims;
  Name function;
  Name dataType;
  Name reduceOp; // empty: no reduction
  int64_t shape[kShownDims];
};

struct Request {
  Verb verb;
  int root = -1;
  std::vector<Buffer> inputs{};
  std::vector<Buffer> outputs{};
  Reduction reduction{}; // of the verbs that reduce
  std::chrono::milliseconds timeout{};
  Header header{};
  int source = -1; // the sender; set by recv
};

class OPENREG_EXPORT Error : public std::runtime_error {
 public:
  enum class Code {
    failed,          // a rank has exited or failed, or the transport is broken
    mismatch,        // the calls of two ranks do not match
    duplicateDevice, // two ranks use one device
    aborted,         // the group was aborted
    timeout,
  };

  Error(Code code, const std::string& what) : std::runtime_error(what), code(code) {}

  // Whether the failure leaves the ranks in step, so that the next collective may begin.
  bool keepsStep() const {
    return code == Code::mismatch || code == Code::duplicateDevice || code == Code::aborted;
  }

  const Code code;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  // Runs a request on the calling thread, and waits for the other ranks. Throws Error. Requests of several threads may
  // run at the same time: a collective waits for the collective of another thread, and a message for the message
  // between the same two ranks in the same direction.
  virtual void run(Request& request) = 0;

  // Makes the requests of other ranks fail if they wait for this rank.
  virtual void giveUp() = 0;

  // Makes all pending requests fail, and all requests that are started later.
  virtual void abort() = 0;
};

// How the ranks of a new group exchange a few bytes before they are connected. `get` waits until a rank has called
// `set` with this key.
struct Bootstrap {
  std::function<void(const std::string& key, const std::vector<uint8_t>& value)> set;
  std::function<std::vector<uint8_t>(const std::string& key)> get;
};

// Where the ranks of a group run.
struct Placement {
  std::shared_ptr<Communicator> communicator; // of this host's ranks, numbered from 0 on each host
  std::vector<int> leaders;                   // the first rank of each host
};

// Waits for the other ranks. The communicator is null on all ranks if the group is too large, or if any rank cannot
// share its memory or open that of another rank of its host.
//
// Environment: OCCL_HOSTID. Ranks of one host with different values count as ranks of several hosts, as with
// NCCL_HOSTID.
OPENREG_EXPORT Placement connect(const Bootstrap& bootstrap, int rank, int size);

// Runs `task` on a thread that runs no other task meanwhile. Idle threads are used again. The number of threads has no
// limit, because tasks wait for other ranks: with a limit, a task might wait for another task that gets no thread.
OPENREG_EXPORT void runOnThread(std::function<void()> task);

} // namespace occl

#endif // OCCL_H
