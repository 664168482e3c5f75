// `bench` itself: prompts and steps on every device, beside what the device can do at most.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"

namespace pd::cli {

struct BenchOptions {
  std::string model, bundle;
  std::vector<std::string> devices;  // empty: all that can be opened
  std::vector<int> prompts = {16, 128, 512, 1024}, batches = {1, 4, 16};
  int context = 512, repeat = 5, threads = 0, quantise_bits = 0;
  bool json = false, quiet = false;
};

std::shared_ptr<BenchOptions> AddBenchDevices(const Command& bench);
int BenchDevices(const BenchOptions& options);

}  // namespace pd::cli
