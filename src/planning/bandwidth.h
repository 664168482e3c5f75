// How fast this machine reads memory: measured once per size of working set, and kept in a file.
#pragma once
#include <cstddef>
#include <filesystem>
#include <string>

namespace pd {

// As the system names it.
std::string ProcessorName();

// A small model may sit in a cache, so a rate holds for working sets of about the same size only.
struct BandwidthKey {
  std::string cpu;   // the processor's name
  int threads = 1;   // that read at the same time
  size_t bytes = 0;  // of the working set: a power of two
};

// `bytes` is rounded up to a power of two and clamped to 1 to 512 MiB: larger sets fit no cache, and take
// long to measure.
BandwidthKey BandwidthKeyFor(size_t bytes, int threads);

// Bytes a second, the best of several passes over memory of that size; takes about 0.2 s.
double MeasureBandwidth(size_t bytes, int threads);

// Rates kept in a JSON file; an empty name keeps nothing. Not thread-safe; processes may share the file, and
// the last write wins.
class BandwidthStore {
 public:
  explicit BandwidthStore(std::filesystem::path file) : file_(std::move(file)) {}

  // The kept rate in bytes a second; if there is none, measures and keeps it. A file that cannot be read is
  // replaced; one that cannot be written costs a measurement next time.
  double Get(const BandwidthKey& key) const;
  // Measures again and keeps the larger rate: other load can only have lowered the first.
  double Improve(const BandwidthKey& key) const;

 private:
  void Keep(const BandwidthKey& key, double rate) const;
  std::filesystem::path file_;
};

}  // namespace pd
