// pd-engine: the command line.
#include <csignal>
#include <new>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/model.h"
#include "cli/terminal.h"
#include "open/open.h"

namespace pd::cli {
namespace {

struct LeaveDevicesAtEnd {
  ~LeaveDevicesAtEnd() { LeaveDeviceThread(); }
};

int Main(int argc, char** argv) {
  const Action action = ParseCommandLine(
      argc, argv, "Language models with prefill on one device and decode on another.", kExitCodes,
      [](const Command& program) {
        for (const auto add : {AddRun, AddBatch, AddInspect, AddExport, AddTokenize, AddLogits, AddPlan,
                               AddSimulate, AddCalibrate, AddBench, AddDoctor, AddVersion, AddTrial})
          add(program);
      });
  PrepareEnvironment();
  const LeaveDevicesAtEnd leave;
  return action();
}

int Complain(const char* what, int code) {
  for (const char* part : {"pd-engine: ", what, "\n"}) Report(part);  // nothing to be allocated any more
  return code;
}

}  // namespace
}  // namespace pd::cli

int main(int argc, char** argv) {
  using namespace pd::cli;
  OpenStandardStreams();
  for (const int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_IGN);  // a write that fails says so
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
