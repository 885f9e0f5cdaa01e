// The order of work in the mode chaos: runs of one program have the same order, beside busy processes too.
//
//     stress_orders [--runs 1000] [--busy 3]
//
// Starts this program as a child for each run: `stress_orders --program N` is a small program with one thread, whose
// streams, events and kernels follow from N. Each child saves its order (OPENREG_ORDER), and the files of one program
// and schedule are compared. Exit status 0: the orders of each program and schedule are the same.

#include <openreg_launch.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace {

constexpr const char* kSchedules[] = {"late", "random:1", "random:2"};
constexpr int kPrograms = 4;

void check(orError_t error) {
  if (error != orSuccess) {
    std::fprintf(stderr, "%s\n", orGetLastErrorMessage());
    std::_Exit(1);
  }
}

void runProgram(unsigned number) {
  std::mt19937 random(number);
  std::vector<orStream_t> streams(2 + number % 3);
  std::vector<orEvent_t> events(2);
  for (orStream_t& stream : streams) {
    check(orStreamCreate(&stream));
  }
  for (orEvent_t& event : events) {
    check(orEventCreate(&event));
  }
  for (int step = 0; step < 60; ++step) {
    const orStream_t stream = streams[random() % streams.size()];
    const orEvent_t event = events[random() % events.size()];
    switch (random() % 8) {
      case 0:
        check(orEventRecord(event, stream));
        break;
      case 1:
        check(orStreamWaitEvent(stream, event, 0));
        break;
      case 2:
        check(orLaunchHostFunc(stream, [](void*) {}, nullptr));
        break;
      case 3:
        if (random() % 4 == 0) {
          check(orStreamSynchronize(stream));
        }
        break;
      default:
        check(orLaunch(stream, [](void*) {}, nullptr, orLaunchDefault));
    }
  }
}

// The order of one run of the program, as the file has it.
std::string orderOf(const char* self, int number, const char* schedule, const std::string& file) {
  setenv("OPENREG_EXECUTION", schedule, 1);
  setenv("OPENREG_ORDER", ("save:" + file).c_str(), 1);
  const std::string text = std::to_string(number);
  const char* const arguments[] = {self, "--program", text.c_str(), nullptr};
  pid_t child = 0;
  int status = 1;
  if (posix_spawn(&child, self, nullptr, nullptr, const_cast<char**>(arguments), environ) != 0 ||
      waitpid(child, &status, 0) != child || status != 0) {
    std::fprintf(stderr, "program %d with %s failed\n", number, schedule);
    std::exit(1);
  }
  std::ifstream order(file);
  return {std::istreambuf_iterator<char>(order), {}};
}

std::vector<pid_t> startBusyProcesses(int count) {
  std::vector<pid_t> busy;
  for (int i = 0; i < count; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      setsid(); // the system's scheduler groups processes by session, so each gets a full share
      for (;;) {
        getppid();
      }
    }
    busy.push_back(child);
  }
  return busy;
}

} // namespace

int main(int argc, char** argv) {
  int runs = 1000, busyCount = 3;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--program") {
      runProgram(std::atoi(argv[i + 1]));
      return 0;
    }
    (name == "--busy" ? busyCount : runs) = std::atoi(argv[i + 1]);
  }
  char folder[] = "/tmp/stress_orders.XXXXXX";
  if (mkdtemp(folder) == nullptr) {
    return 1;
  }
  const std::string file = std::string(folder) + "/order";
  const std::vector<pid_t> busy = startBusyProcesses(busyCount);
  std::map<std::pair<int, std::string>, std::string> first;
  int others = 0;
  for (int run = 0; run < runs; ++run) {
    const int number = run % kPrograms;
    const char* const schedule = kSchedules[run / kPrograms % std::size(kSchedules)];
    const std::string order = orderOf(argv[0], number, schedule, file);
    others += first.emplace(std::pair(number, schedule), order).first->second != order ? 1 : 0;
  }
  for (const pid_t child : busy) {
    kill(child, SIGKILL);
  }
  unlink(file.c_str());
  rmdir(folder);
  std::printf("%d runs of %zu programs and schedules, %d with another order\n", runs, first.size(), others);
  return others == 0 ? 0 : 1;
}
