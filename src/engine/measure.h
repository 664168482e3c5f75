// Timing devices: what `bench` prints and `calibrate` keeps.
#pragma once
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "device/device.h"
#include "engine/cost_model.h"
#include "engine/queue.h"

namespace pd {

// Milliseconds of several runs, after one that is not counted: the first.
struct Timing {
  double median_ms = 0, least_ms = 0, most_ms = 0;
  double first_ms = 0;
};
// At least `least` runs, and on until they took `ms` together.
struct Repeat {
  int least = 5;
  double ms = 0;
};
// `run` returns the milliseconds of the part that counts.
Timing TimeRuns(const Repeat& repeat, const std::function<double()>& run);

// The thread that a device is called on, bound as its lane would be. One thread's.
class DeviceThread {
 public:
  // `last` is called on the thread before it ends.
  explicit DeviceThread(const PhysicalDevice& device, std::function<void()> last = {});
  ~DeviceThread();
  DeviceThread(const DeviceThread&) = delete;
  DeviceThread& operator=(const DeviceThread&) = delete;

  // Calls f there and waits; passes on what it throws.
  void Do(const std::function<void()>& f) { Start(f).get(); }
  // The same without waiting; the future throws.
  std::future<void> Start(std::function<void()> f);

 private:
  Queue<std::optional<std::packaged_task<void()>>> tasks_;  // none: the end
  std::thread thread_;
};

// `count` tokens of a prompt after `history` tokens, keys and values only; at most `chunk` at a time, and no
// more than the device takes. The device is the caller's thread's.
Timing TimePrompt(DecodeDevice& device, int vocab, int history, int count, int chunk, const Repeat& repeat);
Timing TimePrefill(PrefillDevice& device, int vocab, int history, int count, int chunk, const Repeat& repeat);
// Whether a prefill device takes all of a prompt in chunks of that size, its first tokens included.
bool TakesPrompt(const PrefillDevice& device, int count, int chunk);
// Steps of `rows` sequences with `context` tokens each.
Timing TimeStep(DecodeDevice& device, int vocab, int rows, int context, int runs);
// Imports of `count` tokens that the unit computed.
Timing TimeImport(DecodeDevice& device, const KvSegment& segment, int runs);

struct CalibrationProgress {
  std::function<void(int done, int total)> show = {};  // may throw to end it
};

// All of one model; they end on the threads they were measured on.
struct CalibrationDevices {
  std::vector<std::unique_ptr<PrefillDevice>> units;
  std::unique_ptr<DecodeDevice> decode;
  std::function<void()> leave = {};  // Devices::leave_thread
};

// Measures prefill by length and history on every unit and on the decode device, decode by batch and context,
// handoff, and what a decode step loses while a unit prefills. Takes well under a minute for a model of a few
// hundred million parameters; slow devices are measured at fewer lengths. `machine` and `model` of the result
// are left empty.
MachineCosts Calibrate(CalibrationDevices devices, const ModelSpec& spec,
                       const CalibrationProgress& progress);

}  // namespace pd
