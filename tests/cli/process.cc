#include "tests/cli/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>

extern char** environ;  // NOLINT(readability-redundant-declaration): macOS declares it nowhere

namespace pd::test {
namespace {

struct Pipe {
  int read_end = -1, write_end = -1;
  Pipe() {
    std::array<int, 2> ends;
    if (pipe(ends.data()) != 0) ADD_FAILURE() << "no pipe";
    read_end = ends[0], write_end = ends[1];
    for (int end : ends) fcntl(end, F_SETFD, FD_CLOEXEC);
  }
  ~Pipe() { Close(read_end), Close(write_end); }
  static void Close(int& end) {
    if (end >= 0) close(end);
    end = -1;
  }
};

pid_t Spawn(const std::vector<std::string>& arguments, const Launch& launch, const Pipe& in, const Pipe& out,
            const Pipe& err) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.read_end, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out.write_end, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.write_end, STDERR_FILENO);
  std::vector<const char*> argv = {"pd-engine"}, environment;
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  argv.push_back(nullptr);
  for (const std::string& variable : launch.environment) environment.push_back(variable.c_str());
  // The first of two of one name counts.
  for (char** variable = environ; *variable; ++variable) environment.push_back(*variable);
  environment.push_back(nullptr);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, PD_BINARY, &actions, nullptr, const_cast<char**>(argv.data()),
                                const_cast<char**>(environment.data()));
  posix_spawn_file_actions_destroy(&actions);
  EXPECT_EQ(error, 0) << PD_BINARY << " does not start; the test must run in the repository's root";
  return error == 0 ? pid : 0;
}

}  // namespace

Outcome RunEngine(const std::vector<std::string>& arguments, const Launch& launch) {
  Outcome outcome;
  Pipe in, out, err;
  const pid_t pid = Spawn(arguments, launch, in, out, err);
  if (pid == 0) return outcome;
  Pipe::Close(in.read_end), Pipe::Close(out.write_end), Pipe::Close(err.write_end);
  if (launch.close_output) Pipe::Close(out.read_end);
  // Inputs of tests are smaller than a pipe's buffer, so this never waits.
  EXPECT_EQ(write(in.write_end, launch.input.data(), launch.input.size()), ssize_t(launch.input.size()));
  Pipe::Close(in.write_end);
  if (launch.on_start) launch.on_start(pid);

  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (out.read_end >= 0 || err.read_end >= 0) {
    std::array<pollfd, 2> ends = {{{out.read_end, POLLIN, 0}, {err.read_end, POLLIN, 0}}};
    poll(ends.data(), ends.size(), 1000);
    if (std::chrono::steady_clock::now() > deadline) {
      ADD_FAILURE() << "pd-engine runs for more than a minute";
      kill(pid, SIGKILL);
      break;
    }
    for (auto [pipe, text] : {std::pair(&out, &outcome.out), std::pair(&err, &outcome.err)}) {
      if (ends[pipe == &out ? 0 : 1].revents == 0) continue;
      std::array<char, 4096> buffer;
      const ssize_t size = read(pipe->read_end, buffer.data(), buffer.size());
      if (size <= 0) {
        Pipe::Close(pipe->read_end);
      } else {
        if (pipe == &out && text->empty() && launch.on_first_output) launch.on_first_output(pid);
        text->append(buffer.data(), size_t(size));
      }
    }
  }
  int status = 0;
  waitpid(pid, &status, 0);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

std::string OutputOf(const std::vector<std::string>& arguments, const Launch& launch) {
  const Outcome outcome = RunEngine(arguments, launch);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  return outcome.out;
}

std::string ErrorOf(int code, const std::vector<std::string>& arguments, const Launch& launch) {
  const Outcome outcome = RunEngine(arguments, launch);
  EXPECT_EQ(outcome.code, code) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
  EXPECT_TRUE(outcome.err.starts_with("pd-engine: ") && outcome.err.ends_with("\n")) << outcome.err;
  return outcome.err.size() < 12 ? outcome.err : outcome.err.substr(11, outcome.err.size() - 12);
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace pd::test
