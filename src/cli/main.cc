// pd-engine: the command line.
#include <csignal>
#include <cstdio>
#include <new>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/model.h"
#include "cli/terminal.h"
#include "open/open.h"

namespace pd::cli {
namespace {

// MLX's streams live on the thread that used them, and must go before its library does.
struct DeviceThread {
  ~DeviceThread() { LeaveDeviceThread(); }
};

int Main(int argc, char** argv) {
  CLI::App program("Language models with prefill on one device and decode on another.", "pd-engine");
  program.require_subcommand(1);
  program.footer(kExitCodes);
  Action action;
  AddRun(program, action);
  AddBatch(program, action);
  AddInspect(program, action);
  AddExport(program, action);
  AddTokenize(program, action);
  AddLogits(program, action);
  AddPlan(program, action);
  AddSimulate(program, action);
  AddCalibrate(program, action);
  AddBench(program, action);
  AddDoctor(program, action);
  AddVersion(program, action);
  AddAneTrial(program, action);
  try {
    program.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return WriteOutput(program.help()) ? kOk : kOutputClosed;  // of the command that was named, if one was
  } catch (const CLI::ParseError& e) {
    std::string named;  // the command and its own
    for (const CLI::App* app = &program; !app->get_subcommands().empty();) {
      app = app->get_subcommands().front();
      named += " " + app->get_name();
    }
    if (named.empty() && argc > 1 && argv[1][0] != '-')
      throw Fail(ErrorKind::kBadRequest, "there is no command '{}': 'pd-engine --help' lists them", argv[1]);
    throw Fail(ErrorKind::kBadRequest, "{}; see 'pd-engine{} --help'", e.what(), named);
  }
  PrepareEnvironment();
  const DeviceThread thread;
  return action();
}

int Complain(const char* what, int code) {
  fmt::print(stderr, "pd-engine: {}\n", what);
  return code;
}

}  // namespace
}  // namespace pd::cli

int main(int argc, char** argv) {
  using namespace pd::cli;
  std::signal(SIGPIPE, SIG_IGN);  // a write that fails says so
  try {
    return Main(argc, argv);
  } catch (const pd::Error& e) {
    return Complain(e.what(), ExitCode(e.kind()));
  } catch (const std::bad_alloc&) {
    return Complain("out of memory: choose a smaller model or a shorter context",
                    ExitCode(pd::ErrorKind::kOutOfMemory));
  } catch (const std::exception& e) {
    return Complain(e.what(), kInternal);
  }
}
