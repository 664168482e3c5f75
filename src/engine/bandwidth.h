// How fast this machine reads memory: measured once for each size of working set and kept in a file.
#pragma once
#include <cstddef>
#include <filesystem>
#include <string>

namespace pd {

// As the system calls it.
std::string ProcessorName();

// A small model may sit in a cache, so a rate holds for working sets of about the same size only.
struct BandwidthKey {
  std::string cpu;   // the processor's name
  int threads = 1;   // that read together
  size_t bytes = 0;  // of the working set: a power of two
};

// `bytes` is rounded up to a power of two from 1 MiB to 512 MiB: beyond that no cache helps, and measuring
// takes long.
BandwidthKey BandwidthKeyFor(size_t bytes, int threads);

// Bytes a second, the best of several passes over memory of that size; takes about 0.2 s.
double MeasureBandwidth(size_t bytes, int threads);

// Rates kept in a JSON file. Used by one thread; several processes may share the file, the last to write
// wins.
class BandwidthStore {
 public:
  explicit BandwidthStore(std::filesystem::path file) : file_(std::move(file)) {}

  // The kept rate in bytes a second, or one measured now and kept. A file that cannot be read is measured
  // again and replaced; one that cannot be written costs a measurement next time.
  double Get(const BandwidthKey& key) const;
  // Measures again and keeps the larger rate: what else ran at the first measurement can only have lowered
  // it.
  double Improve(const BandwidthKey& key) const;

 private:
  void Keep(const BandwidthKey& key, double rate) const;
  std::filesystem::path file_;
};

}  // namespace pd
