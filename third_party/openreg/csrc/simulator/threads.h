#pragma once

#include <dirent.h>

#include <fstream>
#include <iterator>
#include <string>

namespace openreg {

// Whether holds(folder, state) is true for each thread of a process: its folder in /proc, and its state there, such as
// 'S' if it sleeps, and 'D' if it waits for a disk. `process`: a number, or "self". `ifGone`: the result if there is no
// such process.
template <class Holds>
bool allThreads(const std::string& process, bool ifGone, const Holds& holds) {
  const std::string folder = "/proc/" + process + "/task/";
  DIR* const tasks = opendir(folder.c_str());
  if (tasks == nullptr) {
    return ifGone;
  }
  bool all = true;
  while (const dirent* task = all ? readdir(tasks) : nullptr) {
    if (task->d_name[0] != '.') {
      const std::string own = folder + task->d_name;
      std::ifstream file(own + "/stat");
      const std::string text(std::istreambuf_iterator<char>(file), {});
      const size_t name = text.rfind(')'); // the state follows the name: "12 (python3) S"
      all = holds(own, name != std::string::npos && name + 2 < text.size() ? text[name + 2] : 'S'); // it has ended
    }
  }
  closedir(tasks);
  return all;
}

} // namespace openreg
